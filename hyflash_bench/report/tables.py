"""Frames as tables of a page: headings, cells and intervals as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hyflash_bench.report.text import NOT_MEASURED, cell_text, heading, without_paths

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Cell", "Heading", "Table", "ladder_of", "table_of"]

Kind = Literal["num", "name", "prose"]
PROSE_LENGTH = 24
LOW, HIGH = "_low", "_high"


@dataclass(frozen=True, slots=True)
class Heading:
    """Head of a column.

    Attributes:
        text: What is shown.
        meaning: What the column means, for a tooltip.
        kind: What stands below: ``num``, ``name`` or ``prose``; a class of the style sheet.
    """

    text: str
    meaning: str
    kind: Kind


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
            Heading(heading(name), (meanings or {}).get(name, ""), _kind(frame[name])) for name in shown
        ),
        rows=tuple(
            tuple(Cell(without_paths(cell_text(name, row[name])), _interval(name, row)) for name in shown)
            for row in frame.to_dict("records")
        ),
    )


def ladder_of(frame: pd.DataFrame, caption: str, metric: str) -> Table:
    """Lay out a metric with a row per drafter and a column per context length.

    Where there is no number, the cell says what became of the drafter there.

    Args:
        frame: ``drafter``, ``context_length``, ``status`` and the metric, with its interval.
        caption: What the table shows.
        metric: Column of the number.
    """
    rungs = sorted({int(length) for length in frame["context_length"]})
    cells = {
        (row["drafter"], int(row["context_length"])): _rung(row, metric) for row in frame.to_dict("records")
    }
    lengths = [Heading(f"{rung:,} tokens", "", kind="num") for rung in rungs]
    return Table(
        caption=caption,
        headings=(Heading(heading("drafter"), "", kind="name"), *lengths),
        rows=tuple(
            (
                Cell(without_paths(drafter)),
                *(cells.get((drafter, rung), Cell(NOT_MEASURED)) for rung in rungs),
            )
            for drafter in dict.fromkeys(frame["drafter"])
        ),
    )


def _rung(row: Mapping[Any, Any], metric: str) -> Cell:
    text = cell_text(metric, row[metric])
    if text == NOT_MEASURED and row["status"] != "ok":
        return Cell(str(row["status"]))
    return Cell(text, _interval(metric, row))


def _interval(name: str, row: Mapping[Any, Any]) -> str:
    """``2.20 to 2.41``, or nothing where it was not computed."""
    low, high = row.get(name + LOW), row.get(name + HIGH)
    texts = [cell_text(name, low), cell_text(name, high)]
    return "" if NOT_MEASURED in texts else " to ".join(texts)


def _kind(column: pd.Series[Any]) -> Kind:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if is_numeric_dtype(column) and not is_bool_dtype(column):
        return "num"
    longest = max((len(str(value)) for value in column.dropna()), default=0)
    return "prose" if longest > PROSE_LENGTH else "name"
