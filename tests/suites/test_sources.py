import hashlib
import subprocess
import sys
import zipfile

import pytest

from hyflash_bench.errors import DataError, DownloadError, MissingDependency, UnknownName
from hyflash_bench.spec.suite import FileSource, NpmSource, PypiSource
from hyflash_bench.suites import download
from hyflash_bench.suites.sources import Library


def _archive(tmp_path):
    path = tmp_path / "made.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in (1, 2, 10):
            archive.writestr(f"pkg/part_{number}.txt", f"Part {number}.\r\n")
    return path


def _pypi(sha256):
    return PypiSource(type="pypi", package="made", version="1.0", sha256=sha256, licence="MIT")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HYFLASH_BENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _saved(cache, archive, sha256):
    folder = cache / "texts" / sha256[:16]
    folder.mkdir(parents=True)
    (folder / "archive").write_bytes(archive.read_bytes())


def test_an_archive_saved_by_hand_is_used_and_read_in_natural_order(tmp_path, cache):
    archive = _archive(tmp_path)
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    _saved(cache, archive, sha256)
    library, lines = Library({"made": _pypi(sha256)}, tmp_path), []
    library.prepare(["made"], lines.append)
    assert lines == ["Reading made 1.0"]
    assert library.files("made", ["part_*.txt"]) == ("part_1.txt", "part_2.txt", "part_10.txt")
    assert library.read("made", "part_2.txt") == "Part 2.\n"


def test_another_hash_is_an_error_that_names_both(tmp_path, cache):
    _saved(cache, _archive(tmp_path), "0" * 64)
    with pytest.raises(DownloadError, match=f"{'0' * 64} expected, [0-9a-f]{{64}} found"):
        Library({"made": _pypi("0" * 64)}, tmp_path).prepare(["made"])
    assert not list(cache.rglob("texts.zip"))


def test_a_missing_file_is_named_with_the_nearest(tmp_path):
    (tmp_path / "garden.txt").write_text("x")
    library = Library({"notes": FileSource(type="file", path=".", licence="MIT")}, tmp_path)
    with pytest.raises(DataError, match=r"Did you mean 'garden\.txt'"):
        library.read("notes", "gardens.txt")
    with pytest.raises(DataError):
        library.read("notes", "../garden.txt")
    with pytest.raises(UnknownName):
        library.read("note", "garden.txt")


@pytest.mark.parametrize(
    "path", ["../secret.txt", "..", "texts/../../secret.txt", "link.txt", "{base}/secret.txt"]
)
def test_a_text_outside_the_suites_folder_is_not_read(tmp_path, path):
    """A suite may be a stranger's; links are followed before they are judged."""
    (tmp_path / "secret.txt").write_text("secret")
    folder = tmp_path / "suite"
    (folder / "texts").mkdir(parents=True)
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    source = FileSource(type="file", path=path.format(base=tmp_path), licence="MIT")
    with pytest.raises(DataError, match="leads out of the suite's folder"):
        Library({"a": source}, folder).prepare(["a"])


def test_a_link_in_a_folder_of_texts_leads_nowhere_either(tmp_path):
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "suite" / "texts").mkdir(parents=True)
    (tmp_path / "suite" / "texts" / "link.txt").symlink_to(tmp_path / "secret.txt")
    library = Library({"a": FileSource(type="file", path="texts", licence="MIT")}, tmp_path / "suite")
    with pytest.raises(DataError, match="leads out"):
        library.read("a", "link.txt")


def test_a_local_file_with_another_hash_or_none_there_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    changed = FileSource(type="file", path="a.txt", sha256="0" * 64, licence="MIT")
    with pytest.raises(DownloadError, match="expected"):
        Library({"a": changed}, tmp_path).prepare(["a"])
    with pytest.raises(MissingDependency, match=r"b\.txt"):
        Library({"b": FileSource(type="file", path="b.txt", licence="MIT")}, tmp_path).prepare(["b"])


def test_without_npm_the_message_says_what_to_do(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(download.shutil, "which", lambda name: None)
    source = NpmSource(type="npm", package="@a/b", version="1.0.0", sha256="1" * 64, licence="MIT")
    with pytest.raises(MissingDependency, match=r"Install Node\.js.*save the archive as"):
        Library({"b": source}, tmp_path).prepare(["b"])


def test_without_pip_the_message_says_what_to_do(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(download, "has_pip", lambda: False)
    with pytest.raises(MissingDependency, match="ensurepip"):
        Library({"made": _pypi("1" * 64)}, tmp_path).prepare(["made"])


def test_without_a_network_the_clients_reason_is_passed_on(tmp_path, cache, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, stdout="ERROR: No matching distribution found for made\n")
    monkeypatch.setattr(download.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(DownloadError, match=r"No matching distribution.*Check the network"):
        Library({"made": _pypi("1" * 64)}, tmp_path).prepare(["made"])


def test_a_hash_refused_by_pip_is_reported_as_such(tmp_path, cache, monkeypatch):
    said = f"ERROR: THESE PACKAGES DO NOT MATCH\n  Expected sha256 {'1' * 64}\n       Got        {'2' * 64}\n"
    failed = subprocess.CompletedProcess([], 1, stdout=said)
    monkeypatch.setattr(download.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(DownloadError, match=f"{'1' * 64} expected, {'2' * 64} found"):
        Library({"made": _pypi("1" * 64)}, tmp_path).prepare(["made"])


def test_pip_downloads_a_source_archive_without_running_its_build(tmp_path, cache, monkeypatch):
    """A package whose build would leave a trace is fetched from a folder, and leaves none."""
    import io
    import tarfile

    trace = tmp_path / "trace"
    index = tmp_path / "index"
    index.mkdir()
    setup = f"open({str(trace)!r}, 'w')\nfrom setuptools import setup\nsetup(name='made', version='1.0')\n"
    with tarfile.open(index / "made-1.0.tar.gz", "w:gz") as archive:
        for name, text in {"setup.py": setup, "docs/a.txt": "Hello.", "PKG-INFO": "Name: made\n"}.items():
            entry = tarfile.TarInfo(f"made-1.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    sha256 = download.sha256_of(index / "made-1.0.tar.gz")
    library = Library({"made": _pypi(sha256)}, tmp_path)
    assert library.read("made", "docs/a.txt") == "Hello."
    assert not trace.exists()


def _kept(tmp_path, cache):
    """A library whose texts are in the cache, and the file that holds them."""
    archive = _archive(tmp_path)
    sha256 = download.sha256_of(archive)
    _saved(cache, archive, sha256)
    library = Library({"made": _pypi(sha256)}, tmp_path)
    library.prepare(["made"])
    return library, cache / "texts" / sha256[:16] / "texts.zip"


def test_a_damaged_copy_of_the_texts_is_made_again(tmp_path, cache):
    library, texts = _kept(tmp_path, cache)
    texts.write_bytes(texts.read_bytes()[:-40])
    assert library.read("made", "part_1.txt") == "Part 1.\n"


def test_a_damaged_text_is_told_and_not_used(tmp_path, cache):
    library, texts = _kept(tmp_path, cache)
    content = bytearray(texts.read_bytes())
    content[40:46] = bytes(6)  # within the first text, behind its name
    texts.write_bytes(content)
    with pytest.raises(DataError, match="Remove that file"):
        library.read("made", "part_1.txt")


def test_looking_for_pip_leaves_setuptools_its_distutils():
    code = (
        "import sys, importlib\nfrom hyflash_bench.suites.download import has_pip\nassert has_pip()\n"
        "import setuptools\nprint(importlib.import_module('distutils.core').__file__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "setuptools" in done.stdout, done.stderr
