"""Turns a fetched archive into a zip of its texts, which is read without unpacking anything.

One text of a compressed tar costs a pass over all of it; a zip hands it out directly, and checks
it on the way. Names in an archive never become paths on the disk.
"""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from hyflash_bench.errors import DownloadError

__all__ = ["repack"]

MAX_TEXT_BYTES = 64 * 2**20
MAX_TOTAL_BYTES = 2 * 2**30

# A fixed date keeps the zip's bytes the same from one day to the next.
_DATE = (1980, 1, 1, 0, 0, 0)


class _Member(NamedTuple):
    name: str
    content: bytes


def repack(archive: Path, target: Path, label: str) -> None:
    """Write the UTF-8 files of a tar, tgz, zip or wheel to the zip ``target``.

    A single folder around everything (``django-5.2.8/``, ``package/``) is left off the names.
    Links, devices, binaries and files over 64 MiB are left out.

    Raises:
        DownloadError: Not an archive, a member points outside of it, or it unpacks to over 2 GiB.
    """
    try:
        texts = list(_texts(archive, label))
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise DownloadError(f"{label}: the archive cannot be read: {error}.") from None
    top = _single_top_folder(texts)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as out:
        for name, content in texts:
            out.writestr(zipfile.ZipInfo(name.removeprefix(top), _DATE), content, zipfile.ZIP_DEFLATED)


def _texts(archive: Path, label: str) -> Iterator[_Member]:
    total = 0
    for name, content in _members(archive, label):
        total += len(content)
        if total > MAX_TOTAL_BYTES:
            raise DownloadError(f"{label}: the archive unpacks to more than 2 GiB; it is not used.")
        try:
            content.decode("utf-8")
        except UnicodeDecodeError:
            continue
        yield _Member(name, content)


def _members(archive: Path, label: str) -> Iterator[_Member]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            for entry in opened.infolist():
                name = _checked(entry.filename, label)
                if not entry.is_dir() and entry.file_size <= MAX_TEXT_BYTES:
                    yield _Member(name, opened.read(entry))
        return
    with tarfile.open(archive) as opened_tar:
        for member in opened_tar:
            name = _checked(member.name, label)
            content = opened_tar.extractfile(member) if member.isfile() else None
            if content is not None and member.size <= MAX_TEXT_BYTES:
                yield _Member(name, content.read())


def _checked(name: str, label: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
        raise DownloadError(
            f"{label}: the archive has a member {name!r} that points outside of it; "
            "it is not used. Get it from a trustworthy mirror."
        )
    return str(path)


def _single_top_folder(members: list[_Member]) -> str:
    tops = {name.partition("/")[0] for name, _ in members if "/" in name}
    flat = any("/" not in name for name, _ in members)
    return f"{tops.pop()}/" if len(tops) == 1 and not flat else ""
