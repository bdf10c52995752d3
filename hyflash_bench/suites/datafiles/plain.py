"""Packed files unpacked once into the cache, so that any row can be read again from its place."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hyflash_bench.atomic import replacing
from hyflash_bench.data import cache_folder
from hyflash_bench.errors import DataError
from hyflash_bench.suites.download import sha256_of

__all__ = ["MAX_UNPACKED_BYTES", "Plain", "kept_rows", "plain_file"]

MAX_UNPACKED_BYTES = 32 * 2**30
"""A file of a few kilobytes can unpack to any size; larger data sets than this are no prompts."""

_CHUNK = 2**20
_PARQUET_ROWS = 64
_FOREIGN = {
    b"PK\x03\x04": "a zip archive; unpack it and give a file in it",
    b"\xff\xfe": "UTF-16 text; convert it to UTF-8",
    b"\xfe\xff": "UTF-16 text; convert it to UTF-8",
    b"\x28\xb5\x2f\xfd": "packed by zstd; unpack it or pack it by gzip",
    b"BZh": "packed by bzip2; unpack it or pack it by gzip",
    b"\xfd7zXZ": "packed by xz; unpack it or pack it by gzip",
    b"version https://git-lfs": "a pointer of git LFS, not the file; fetch it with git lfs pull",
}


@dataclass(frozen=True, slots=True)
class Plain:
    """A data file as JSON.

    Attributes:
        path: The file itself, or its unpacked copy.
        shown: The file as the user knows it.
        unit: What its rows are counted in: ``line``, or ``row`` where the format has no lines.
    """

    path: Path
    shown: str
    unit: str = "line"


def plain_file(path: Path) -> Plain:
    """The file as JSON lines or a JSON list; Parquet and gzip are unpacked into the cache.

    Raises:
        DataError: It is of another kind, empty, damaged or cut short.
    """
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from None
    if not head.strip():
        raise DataError(f"{path} is empty. Give a file with rows.")
    if head.startswith(b"PAR1"):
        return Plain(kept_rows(sha256_of(path), lambda: _parquet_rows(path)), str(path), "row")
    if head.startswith(b"\x1f\x8b"):
        return Plain(_unpacked(path), str(path))
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            raise DataError(f"{path} is {what}.")
    if b"\0" in head:
        raise DataError(f"{path} is no text. Give JSON lines, JSON, either packed by gzip, or Parquet.")
    return Plain(path, str(path))


def kept_rows(key: str, rows: Callable[[], Iterable[Mapping[str, Any]]]) -> Path:
    """Rows as JSON lines in the cache, made the first time.

    Args:
        key: Hash of what they come from.
        rows: Makes them.
    """
    kept = _kept(key)
    if not kept.is_file():
        with replacing(kept) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
            for row in rows():
                # Lone surrogates cannot be written as they are; they are found when the row is read.
                file.write(json.dumps(row, ensure_ascii=True, default=_plain) + "\n")
    return kept


def _kept(key: str) -> Path:
    return cache_folder() / "data" / key[:16] / "rows.jsonl"


def _plain(value: object) -> str:
    if isinstance(value, bytes):
        return "(bytes)"
    return str(value)


def _unpacked(path: Path) -> Path:
    kept = _kept(sha256_of(path))
    if not kept.is_file():
        with replacing(kept) as temporary, temporary.open("wb") as target:
            _unpack(path, target)
    return kept


def _unpack(path: Path, target: IO[bytes]) -> None:
    num_bytes = num_lines = 0
    try:
        with gzip.open(path) as source:
            while chunk := source.read1(_CHUNK):  # what is there, even if the file breaks off behind it
                num_bytes += len(chunk)
                num_lines += chunk.count(b"\n")
                if num_bytes > MAX_UNPACKED_BYTES:
                    raise DataError(
                        f"{path} unpacks to more than {MAX_UNPACKED_BYTES:,} bytes. Give a smaller one."
                    )
                target.write(chunk)
    except EOFError:
        raise DataError(
            f"{path}, line {num_lines + 1}: the packed file ends here, cut short. Fetch it again."
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{path}, line {num_lines + 1}: the packed file is damaged ({error}). Fetch it again."
        ) from None
    if not num_bytes:
        raise DataError(f"{path} is empty when unpacked. Give a file with rows.")


def _parquet_rows(path: Path) -> Iterable[Mapping[str, Any]]:
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_PARQUET_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield row
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0][:200]
        raise DataError(
            f"{path}, row {number + 1}: the Parquet file is damaged or cut short ({reason}). Fetch it again."
        ) from None
    if not number:
        raise DataError(f"{path} has no rows. Give a file with rows.")
