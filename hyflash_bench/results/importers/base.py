"""What an importer makes of a file, and what importers share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hyflash_bench.errors import DataError
from hyflash_bench.results.records import ReportedTurn, Status
from hyflash_bench.suites.datafiles.plain import plain_file
from hyflash_bench.suites.datafiles.scan import fields_of, raw_rows
from hyflash_bench.suites.formats.base import BadRow, Row

__all__ = ["MAX_STEPS", "Imported", "Told", "counted", "counts", "remark", "rows_of", "seconds"]

_MAX_COUNT = 10**15
MAX_STEPS = 200_000
"""Of more steps than these, only the sums are kept."""


@dataclass(slots=True)
class Told:
    """A conversation, or all of a server's together, as a file tells it."""

    item: str
    turns: list[ReportedTurn]
    category: str | None = None
    status: Status = "ok"
    message: str | None = None
    repeat: int = 0


@dataclass(slots=True)
class Imported:
    """What a file says.

    Attributes:
        format: Which kind of file it is.
        conversations: What was measured.
        drafter: What the file calls the method.
        target: What it calls the model.
        temperature: Sampling, where it says so.
        is_plain: Whether nothing was drafted.
        draft_budget: Most tokens drafted in a step.
        notes: What was converted, and what could not be and why.
        reported: Numbers under the file's own definitions, for the record.
    """

    format: str
    conversations: list[Told]
    drafter: str | None = None
    target: str | None = None
    temperature: float | None = None
    is_plain: bool = False
    draft_budget: int | None = None
    notes: list[str] = field(default_factory=list)
    reported: dict[str, Any] = field(default_factory=dict)


def rows_of(path: Path) -> Iterator[tuple[str, Row]]:
    """Every row of a file with its place, for messages.

    Raises:
        DataError: A row is damaged.
    """
    plain = plain_file(path)
    for raw in raw_rows(plain.path):
        where = f"{plain.shown}, {plain.unit} {raw.line}"
        try:
            if raw.problem:
                raise BadRow(raw.problem)
            yield where, Row(fields_of(raw.content), path.stem)
        except BadRow as reason:
            raise DataError(f"{where}: {reason}. Correct the file.") from None


def counts(row: Row, key: str) -> list[int]:
    """A list of whole numbers from 0 on."""
    values = row.fields.get(key)
    if not isinstance(values, list):
        raise BadRow(f"key {key!r} is no list of numbers")
    for number, value in enumerate(values, start=1):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_COUNT:
            raise BadRow(f"key {key!r}: number {number} is {str(value)[:40]!r}, not a whole number from 0 on")
    return list(values)


def counted(row: Row, key: str) -> int | None:
    """A whole number from 0 on, or None where it is missing or null; missing is not zero."""
    value = row.fields.get(key)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT
    if not is_number or value != int(value):
        raise BadRow(f"key {key!r} is {str(value)[:40]!r}, not a whole number from 0 on")
    return int(value)


def remark(said: object) -> str:
    """What a file says of a failure, short and fit to be written."""
    return str(said)[:200].encode(errors="replace").decode()


def seconds(values: Sequence[Any] | None, index: int) -> float | None:
    """One of a list of times; None where there is none."""
    if not isinstance(values, list) or index >= len(values):
        return None
    value = values[index]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < float("inf") else None
