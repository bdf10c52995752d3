import io
import tarfile
import zipfile

import pytest

from hyflash_bench.errors import DownloadError
from hyflash_bench.suites.archives import repack


def _tar(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def test_texts_are_kept_without_the_folder_around_them(tmp_path):
    _tar(
        tmp_path / "a.tgz", {"pkg-1/a.txt": b"hello", "pkg-1/sub/b.txt": "é".encode(), "pkg-1/c.bin": b"\xff"}
    )
    repack(tmp_path / "a.tgz", tmp_path / "out.zip", "pkg 1")
    with zipfile.ZipFile(tmp_path / "out.zip") as texts:
        assert texts.namelist() == ["a.txt", "sub/b.txt"]


@pytest.mark.parametrize(
    "name", ["../evil.txt", "/etc/evil.txt", "a/../../evil.txt", "C:/evil.txt", "..\\evil"]
)
def test_a_member_outside_the_archive_is_refused(tmp_path, name):
    _tar(tmp_path / "a.tgz", {"pkg/a.txt": b"hello", name: b"evil"})
    with pytest.raises(DownloadError, match="points outside"):
        repack(tmp_path / "a.tgz", tmp_path / "out.zip", "pkg 1")
    assert not (tmp_path / "out.zip").exists()


def test_links_are_not_followed(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        link = tarfile.TarInfo("pkg/link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    repack(tmp_path / "a.tar", tmp_path / "out.zip", "pkg 1")
    with zipfile.ZipFile(tmp_path / "out.zip") as texts:
        assert texts.namelist() == []


def test_what_is_no_archive_is_refused(tmp_path):
    (tmp_path / "a.tgz").write_text("no archive")
    with pytest.raises(DownloadError, match="cannot be read"):
        repack(tmp_path / "a.tgz", tmp_path / "out.zip", "pkg 1")
