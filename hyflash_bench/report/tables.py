"""Frames as tables of a page: headings, cells and intervals as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hyflash_bench.report.text import cell_text, heading

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Cell", "Heading", "Table", "table_of"]

LOW, HIGH = "_low", "_high"


@dataclass(frozen=True, slots=True)
class Heading:
    """Head of a column: its text, what it means, and whether numbers stand below."""

    text: str
    meaning: str
    is_number: bool


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: its text, and the interval below it where there is one."""

    text: str
    interval: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table for the template; the first column names the row."""

    caption: str
    headings: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]


def table_of(
    frame: pd.DataFrame,
    caption: str,
    columns: Sequence[str],
    meanings: Mapping[str, str] | None = None,
) -> Table:
    """Lay out a frame.

    Columns ``x_low`` and ``x_high`` become the interval below ``x``; columns that the frame lacks,
    or that hold nothing at all, are left out.

    Args:
        frame: One row a table row.
        caption: What the table shows.
        columns: Which columns, in which order.
        meanings: What a column means, by its name.
    """
    shown = [name for name in columns if name in frame and frame[name].notna().any()]
    return Table(
        caption=caption,
        headings=tuple(
            Heading(heading(name), (meanings or {}).get(name, ""), _is_number(frame[name])) for name in shown
        ),
        rows=tuple(
            tuple(Cell(cell_text(name, row[name]), _interval(name, row)) for name in shown)
            for row in frame.to_dict("records")
        ),
    )


def _interval(name: str, row: Mapping[Any, Any]) -> str:
    """``2.20 to 2.41``, or nothing where it was not computed."""
    low, high = row.get(name + LOW), row.get(name + HIGH)
    texts = [cell_text(name, low), cell_text(name, high)]
    is_known = all(text != cell_text(name, None) for text in texts)
    return " to ".join(texts) if is_known else ""


def _is_number(column: pd.Series[Any]) -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return bool(is_numeric_dtype(column)) and not is_bool_dtype(column)
