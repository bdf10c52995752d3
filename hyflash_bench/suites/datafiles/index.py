"""Where every conversation of some files stands, and which rows are wrong."""

from __future__ import annotations

import hashlib
import heapq
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hyflash_bench.errors import DataError
from hyflash_bench.suites.datafiles.plain import Plain
from hyflash_bench.suites.datafiles.scan import RawRow, fields_of, raw_rows
from hyflash_bench.suites.formats.base import BadRow, Entry, Format, Row

__all__ = ["MAX_CONVERSATIONS", "Index", "Place", "index_of", "row_at"]

MAX_CONVERSATIONS = 20_000
"""Of larger files so many are taken, spread by hash: a run over more would never end, and memory
stays the same however long the file is."""

_SHOWN = 5
_NTH_BITS = 24
"""Of a row's number within its line, where a list stands in one."""


class Place(NamedTuple):
    """Where a conversation stands, and what a plan needs to know of it.

    Attributes:
        file: Index of its file.
        offset: First byte of its row.
        length: Bytes of the row.
        line: Line (or row) it begins in.
        part: Index within the row.
        item: Name within the task.
        category: As the data set groups it.
        num_turns: User turns.
        document: Name of the text that it is about; "" for one of its own.
    """

    file: int
    offset: int
    length: int
    line: int
    part: int
    item: str
    category: str
    num_turns: int
    document: str


@dataclass(slots=True)
class Index:
    """What was found in some files.

    Attributes:
        places: Conversations in file order.
        digest: SHA-256 over the rows and names of all that can be used.
        num_rows: Rows read.
        num_bad: Of these, wrong.
        num_found: Conversations found, more than ``places`` in files beyond :data:`MAX_CONVERSATIONS`.
        problems: The first wrong rows, with their places.
    """

    places: list[Place] = field(default_factory=list)
    digest: str = ""
    num_rows: int = 0
    num_bad: int = 0
    num_found: int = 0
    problems: list[str] = field(default_factory=list)

    def add_problem(self, where: str, reason: str) -> None:
        """Note a wrong row."""
        self.num_bad += 1
        if len(self.problems) < _SHOWN:
            self.problems.append(f"{where}: {reason}")

    def told(self) -> str:
        """What was wrong: how many rows, and the first of them."""
        more = self.num_bad - len(self.problems)
        others = f"; and {more:,} more" if more else ""
        return f"{self.num_bad:,} of {self.num_rows:,} rows are wrong. {'; '.join(self.problems)}{others}"


def index_of(files: Sequence[Plain], labels: Sequence[str], form: Format, *, skip_bad_rows: bool) -> Index:
    """Read all files once.

    Args:
        files: The files.
        labels: What tells them apart, see :func:`labels_of`.
        form: Their format.
        skip_bad_rows: Leave wrong rows out instead of refusing them.

    Raises:
        DataError: Rows are wrong, or none is left.
    """
    index = Index()
    digest = hashlib.sha256()
    kept: list[tuple[int, int, Place]] = []  # a heap of the smallest hashes, negated
    names = array("Q")
    rows = array("Q")
    for number, plain in enumerate(files):
        prefix = f"{_safe(labels[number])}/" if len(files) > 1 else ""
        for raw in raw_rows(plain.path):
            index.num_rows += 1
            try:
                entries = _entries(raw, form, labels[number])
            except BadRow as reason:
                index.add_problem(f"{plain.shown}, {_spot(plain, raw.line, raw.nth)}", str(reason))
                continue
            digest.update(raw.content)
            for part, entry in enumerate(entries):
                item = prefix + _item(entry, raw)
                category = entry.category or (labels[number] if prefix else "")
                stands = (number, raw.offset, len(raw.content), raw.line, part)
                place = Place(*stands, item, category, len(entry.turns), entry.document)
                rank = _rank(item)
                digest.update(item.encode())
                names.append(rank)
                rows.append((raw.line << _NTH_BITS | raw.nth) * len(files) + number)
                push = heapq.heappush if len(kept) < MAX_CONVERSATIONS else heapq.heappushpop
                push(kept, (-rank, -len(names), place))
    again = _repeated(names, rows)
    index.digest = digest.hexdigest()
    index.num_found = sum(row not in again for row in rows) if again else len(rows)
    for row, first in again.items():
        plain = files[row % len(files)]
        spots = [_spot(plain, *divmod(each // len(files), 1 << _NTH_BITS)) for each in (row, first)]
        index.add_problem(f"{plain.shown}, {spots[0]}", f"its id comes up before, in {spots[1]}")
    in_order = sorted(kept, key=lambda each: -each[1])
    index.places = [place for _, count, place in in_order if rows[-count - 1] not in again]
    if index.num_bad and not skip_bad_rows:
        raise DataError(
            f"{index.told()}. Correct the file, check that it is of format {form.name} ({form.fields}), "
            "or leave such rows out with --skip-bad-rows."
        )
    if not index.places:
        said = f" {index.told()}." if index.num_bad else ""
        raise DataError(f"{', '.join(plain.shown for plain in files)}: no row can be used.{said}")
    return index


def row_at(plain: Plain, place: Place, form: Format, label: str) -> Entry:
    """Read one conversation again.

    Raises:
        DataError: The file was changed since it was indexed.
    """
    with plain.path.open("rb") as file:
        file.seek(place.offset)
        content = file.read(place.length)
    try:
        return _entries(RawRow(place.offset, place.line, content), form, label)[place.part]
    except (BadRow, IndexError):
        raise DataError(
            f"{plain.shown}, {_spot(plain, place.line)}: the row is another one than when the run was "
            "planned. Leave the file as it is while it is in use."
        ) from None


def _entries(raw: RawRow, form: Format, label: str) -> Sequence[Entry]:
    if raw.problem:
        raise BadRow(raw.problem)
    return form.read(Row(fields_of(raw.content), label))


def _spot(plain: Plain, line: int, nth: int = 1) -> str:
    return f"{plain.unit} {line}" + (f" ({nth}. row in it)" if nth > 1 else "")


def _item(entry: Entry, raw: RawRow) -> str:
    """The conversation's name: the data set's own, or its line."""
    line = f"line-{raw.line}" + (f".{raw.nth}" if raw.nth > 1 else "")
    name = line if entry.key is None else _safe(entry.key)
    return f"{name}/{entry.part}" if entry.part else name


def _safe(key: str) -> str:
    """The name itself where it can stand in tables and commands; else what is left, and a hash."""
    clean = "".join(c if c.isascii() and (c.isalnum() or c in "._-/") else "-" for c in key)[:80]
    return clean if clean == key else f"{clean}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"


def _rank(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


def _repeated(names: array[int], rows: array[int]) -> dict[int, int]:
    """Rows whose name an earlier row has, with that row."""
    import numpy as np

    if not names:
        return {}
    ranks = np.frombuffer(names, np.uint64)
    order = np.argsort(ranks, kind="stable")
    same = np.flatnonzero(ranks[order][1:] == ranks[order][:-1])
    return {rows[order[at + 1]]: rows[order[at]] for at in same.tolist()}
