"""Frames as tables of a page: headings, cells and intervals as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from hyflash_bench.report.text import NOT_MEASURED, cell_text, heading

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Cell", "Heading", "Table", "ladder_of", "table_of", "tone_of"]

Kind = Literal["num", "name", "prose"]
Tone = Literal["", "good", "part", "bad", "fail", "dull"]
PROSE_LENGTH = 24
LOW, HIGH = "_low", "_high"

_TONES: Final[Mapping[str, Tone]] = {
    "higher": "good",
    "reproduced": "good",
    "fits": "good",
    "window": "part",
    "no draft": "part",
    "lower": "bad",
    "not reproduced": "bad",
    "oom": "fail",
    "out of memory": "bad",
    "error": "fail",
    "mismatch": "fail",
    "timeout": "fail",
    "incompatible": "fail",
    "interrupted": "fail",
    "no clear difference": "dull",
    "inconclusive": "dull",
    "not tested": "dull",
    "not run": "dull",
}


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
    """One cell.

    Attributes:
        text: What it says.
        interval: The interval below it, where there is one.
        tone: how a verdict or status is coloured and marked; the text says it too.
        drafter: Label of the drafter that it names, which gets its mark and answers to the filter.
        value: The number behind the text, for sorting.
    """

    text: str
    interval: str = ""
    tone: Tone = ""
    drafter: str = ""
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table for the template; the first column names the row.

    Attributes:
        caption: What it shows.
        headings: One a column.
        rows: Their cells.
        is_matrix: Whether cells are words that are told apart at a glance.
    """

    caption: str
    headings: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]
    is_matrix: bool = False


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
        rows=tuple(tuple(_cell(name, row) for name in shown) for row in frame.to_dict("records")),
    )


def ladder_of(
    frame: pd.DataFrame, caption: str, metric: str, column: str = "context_length", unit: str = "tokens"
) -> Table:
    """Lay out a metric with a row per drafter and a column per context length, or per other value.

    Where there is no number, the cell says what became of the drafter there.

    Args:
        frame: ``drafter``, ``column``, the metric with its interval, and ``status`` where known.
        caption: What the table shows.
        metric: Column of the number, or of a word.
        column: What is laid out from left to right.
        unit: Behind each of its values.
    """
    steps = list(dict.fromkeys(frame[column]))
    if column == "context_length":
        steps.sort()
    cells = {(row["drafter"], row[column]): _rung(row, metric) for row in frame.to_dict("records")}
    kind: Kind = _kind(frame[metric])
    tops = [Heading(f"{cell_text(column, step)} {unit}".strip(), "", kind) for step in steps]
    return Table(
        caption=caption,
        headings=(Heading(heading("drafter"), "", kind="name"), *tops),
        rows=tuple(
            (_name(drafter), *(cells.get((drafter, step), Cell(NOT_MEASURED)) for step in steps))
            for drafter in dict.fromkeys(frame["drafter"])
        ),
    )


def tone_of(text: str) -> Tone:
    """Whether a verdict or status is good, bad or neither."""
    return _TONES.get(text, "")


def _name(drafter: str) -> Cell:
    return Cell(drafter, drafter=drafter)


def _cell(name: str, row: Mapping[Any, Any]) -> Cell:
    value = row[name]
    text = cell_text(name, value)
    if name == "drafter":
        return _name(text)
    tone = tone_of(text) if isinstance(value, str) else ""
    return Cell(text, _interval(name, row), tone, value=_number(value))


def _rung(row: Mapping[Any, Any], metric: str) -> Cell:
    text = cell_text(metric, row[metric])
    status = str(row.get("status", "ok"))
    if text == NOT_MEASURED and status != "ok":
        return Cell(status, tone=tone_of(status))
    return Cell(text, _interval(metric, row), tone_of(text), value=_number(row[metric]))


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and value == value  # noqa: PLR0124
    return float(value) if is_number else None


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
