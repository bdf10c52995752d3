"""JSON lines: a line counts once its newline is on disk, and nothing else does."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from contextlib import suppress
from io import RawIOBase
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from hyflash_bench.atomic import write_error
from hyflash_bench.errors import DataError
from hyflash_bench.spec.base import Spec

__all__ = ["Line", "LineFile", "decode", "encode", "read_line_at", "read_lines"]


class Line(NamedTuple):
    """A complete line of a file.

    Attributes:
        number: Counted from 1.
        offset: Byte at which it starts.
        value: What it holds.
    """

    number: int
    offset: int
    value: dict[str, Any]


class Opener(Protocol):
    """How a file is opened for appending; tests put a failing disk here."""

    def __call__(self, path: Path) -> RawIOBase: ...


def _open_unbuffered(path: Path) -> RawIOBase:
    # No buffer: after a failed write nothing may be left that a later close would still write.
    return path.open("ab+", buffering=0)


class LineFile:
    """A file that only grows, by whole lines that are on disk when :meth:`append` returns.

    What a crash left of a last line is cut off on opening.
    """

    def __init__(self, path: Path, opener: Opener = _open_unbuffered) -> None:
        self.path = path
        try:
            self._file = opener(path)
            self._length = _length_of_whole_lines(path)
            self._cut()
        except OSError as error:
            raise write_error(path, error) from error

    def append(self, record: Spec) -> int:
        """Write one record and return the byte at which its line starts.

        Raises:
            DataError: The record holds NaN or infinity, the file was taken away, or the disk is
                full; the file then ends with the line before.
        """
        line = encode(record).encode() + b"\n"
        if not self._is_in_place():
            raise DataError(
                f"{self.path} was removed or replaced while it was being written. "
                "Put the run folder back, or run the same command again from the start."
            )
        try:
            self._cut()
            rest = memoryview(line)
            while rest:
                rest = rest[self._file.write(rest) or 0 :]
            os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):  # if this fails too, the next append or opening does it
                self._cut()
            raise write_error(self.path, error) from error
        start = self._length
        self._length += len(line)
        return start

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _is_in_place(self) -> bool:
        """Whether the path still leads to the open file; what is written elsewhere is lost."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), self.path.stat())
        except FileNotFoundError:
            return False

    def _cut(self) -> None:
        """Drop what an interrupted write left behind the last whole line."""
        if self._file.seek(0, os.SEEK_END) != self._length:
            self._file.truncate(self._length)
            os.fsync(self._file.fileno())


def encode(record: Spec, indent: int | None = None) -> str:
    """A record as JSON.

    Raises:
        DataError: NaN or infinity, which JSON has no word for; "not measured" is None.
    """
    values = record.model_dump()
    try:
        return json.dumps(values, allow_nan=False, ensure_ascii=False, indent=indent)
    except ValueError:
        where = ", ".join(_not_finite(values)) or "a value"
        raise DataError(
            f"{type(record).__name__}: {where} is NaN or infinite. "
            "Store a finite number, or None for what was not measured."
        ) from None


def decode(text: str | bytes, where: str) -> dict[str, Any]:
    """One JSON object.

    Raises:
        DataError: Not JSON, not an object, or with NaN or infinity in it.
    """
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{where} is not valid JSON ({error}). The file was changed by something else: "
            "restore it, or run again with --fresh."
        ) from None
    if not isinstance(value, dict):
        raise DataError(f"{where} holds a {type(value).__name__}, not an object; restore the file.")
    return value


def read_lines(path: Path) -> Iterator[Line]:
    """Every complete line; what follows the last newline was never finished and is left out.

    Raises:
        DataError: A complete line is not a JSON object; with file and line.
    """
    if not path.exists():
        return
    offset = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            yield Line(number, offset, decode(line, f"{path}, line {number}"))
            offset += len(line)


def read_line_at(path: Path, offset: int) -> dict[str, Any]:
    """The line that starts at a byte."""
    with path.open("rb") as file:
        file.seek(offset)
        return decode(file.readline(), f"{path}, byte {offset}")


def _length_of_whole_lines(path: Path, block: int = 65536) -> int:
    """Bytes up to and including the last newline, found from the end."""
    end = path.stat().st_size
    with path.open("rb") as file:
        while end > 0:
            start = max(0, end - block)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
    return 0


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def _not_finite(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, float) and not math.isfinite(value):
        yield path
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _not_finite(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _not_finite(inner, f"{path}[{index}]")
