"""The rows of a JSON file as bytes with their places: JSON lines, a list of objects, or one object."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from hyflash_bench.suites.formats.base import BadRow

__all__ = ["MAX_ROW_BYTES", "RawRow", "fields_of", "raw_rows"]

MAX_ROW_BYTES = 32 * 2**20
"""Longer rows are refused before they fill the memory; the longest of public sets have about 3 MiB."""

_CHUNK = 2**20
_BOM = b"\xef\xbb\xbf"
_OUTSIDE = re.compile(rb'[\[\]{}"\n]')
_INSIDE = re.compile(rb'["\\\n]')
_BETWEEN = b" \t\r\n,"


@dataclass(frozen=True, slots=True)
class RawRow:
    """A row as it stands in the file.

    Attributes:
        offset: Where it begins, in bytes.
        line: Line of its first byte, from 1.
        content: Its bytes; empty if there is a problem.
        problem: Why it cannot be used.
        nth: Which of the rows that begin in its line.
    """

    offset: int
    line: int
    content: bytes
    problem: str | None = None
    nth: int = 1


def raw_rows(path: Path) -> Iterator[RawRow]:
    """Every row of the file, one at a time."""
    with path.open("rb") as file:
        start = file.read(len(_BOM))
        begin = len(_BOM) if start == _BOM else 0
        file.seek(begin)
        head = file.read(_CHUNK).lstrip()
        file.seek(begin)
        if head.startswith(b"["):
            yield from _of_list(file)
        elif _is_one_object(path, head):
            yield RawRow(begin, 1, file.read())
        else:
            yield from _of_lines(file)


def fields_of(content: bytes) -> dict[str, Any]:
    """What a row says.

    Raises:
        BadRow: It is no JSON object in UTF-8.
    """
    try:
        value = json.loads(content.decode())
    except UnicodeDecodeError as error:
        raise BadRow(f"it is not UTF-8 text (byte {error.start + 1} of the row)") from None
    except json.JSONDecodeError as error:
        is_cut = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated")
        raise BadRow(
            "it ends in the middle of a value; was the file cut short?"
            if is_cut
            else f"it is no JSON: {error.msg} at character {error.pos + 1}"
        ) from None
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, endless nesting
        raise BadRow(f"it cannot be read: {str(error)[:80]}") from None
    if not isinstance(value, dict):
        raise BadRow("it is no object with named fields")
    return value


def _is_one_object(path: Path, head: bytes) -> bool:
    """Whether a file of a moderate size is a single object over several lines."""
    first = head.partition(b"\n")[0].strip()
    if first not in (b"{", b"{}") or path.stat().st_size > MAX_ROW_BYTES:
        return False
    try:
        fields_of(path.read_bytes().removeprefix(_BOM))
    except BadRow:
        return False
    return True


def _of_lines(file: BufferedReader) -> Iterator[RawRow]:
    line = 0
    while True:
        offset = file.tell()
        pieces, length = [], 0
        while piece := file.readline(_CHUNK):
            length += len(piece)
            pieces.append(piece)
            if length > MAX_ROW_BYTES:
                pieces.clear()
            if piece.endswith(b"\n"):
                break
        if not length:
            return
        line += 1
        content = b"".join(pieces)
        if length > MAX_ROW_BYTES:
            yield RawRow(offset, line, b"", _too_long(length))
        elif content.strip():
            yield RawRow(offset, line, content)


def _too_long(length: int) -> str:
    return f"it has {length:,} bytes; at most {MAX_ROW_BYTES:,} are read"


def _of_list(file: BufferedReader) -> Iterator[RawRow]:
    """Elements of a list, found by their brackets; only the one at hand is held."""
    scanner = _Brackets(file.tell())
    while chunk := file.read(_CHUNK):
        yield from scanner.feed(chunk)
    if scanner.depth:
        yield RawRow(scanner.offset, scanner.line, b"", "the list is not closed; was the file cut short?")


class _Brackets:
    """Cuts a list into its elements as bytes come in.

    Attributes:
        depth: Brackets that are open.
        offset: Byte that comes next.
        line: Its line.
    """

    def __init__(self, offset: int) -> None:
        self.depth = 0
        self.offset = offset
        self.line = 1
        self._in_text = False
        self._skip = 0  # bytes after a backslash that a chunk's end cut off
        self._begin: tuple[int, int] | None = None  # offset and line of the element at hand
        self._nth = self._last_line = 0
        self._held = bytearray()
        self._length = 0

    def feed(self, chunk: bytes) -> Iterator[RawRow]:
        """Go through the next bytes; yields the elements that end in them."""
        at, kept = self._skip, 0
        self._skip = 0
        while match := (_INSIDE if self._in_text else _OUTSIDE).search(chunk, at):
            mark, at = match[0], match.end()
            if mark == b"\n":
                self.line += 1
            elif mark == b"\\":
                at += 1
            elif mark == b'"':
                self._in_text = not self._in_text
            elif mark in b"[{":
                self.depth += 1
                if self.depth == 2:
                    yield from self._between(chunk[kept : match.start()])
                    self._begin, kept = (self.offset + match.start(), self.line), match.start()
            else:
                self.depth -= 1
                if self.depth == 1:
                    self._hold(chunk[kept:at])
                    yield self._taken()
                    kept = at
                elif self.depth == 0:
                    yield from self._between(chunk[kept : match.start()])
                    kept = at
        self._skip = max(0, at - len(chunk))
        if self._begin is None and self.depth <= 1:
            yield from self._between(chunk[kept:])
        else:
            self._hold(chunk[kept:])
        self.offset += len(chunk)

    def _hold(self, piece: bytes) -> None:
        self._length += len(piece)
        if self._length <= MAX_ROW_BYTES:
            self._held += piece
        else:
            self._held.clear()

    def _taken(self) -> RawRow:
        assert self._begin is not None
        offset, line = self._begin
        self._nth = self._nth + 1 if line == self._last_line else 1
        self._last_line = line
        problem = _too_long(self._length) if self._length > MAX_ROW_BYTES else None
        found = RawRow(offset, line, b"" if problem else bytes(self._held), problem, self._nth)
        self._begin, self._length = None, 0
        self._held.clear()
        return found

    def _between(self, piece: bytes) -> Iterator[RawRow]:
        """What stands between elements should be commas."""
        rest = piece.strip(_BETWEEN + b"[")
        if rest:
            yield RawRow(self.offset, self.line, b"", f"{rest[:20]!r} in the list is no object")
