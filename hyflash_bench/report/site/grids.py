"""Tables of a site: cells that lead to pages, columns that can be filtered and sorted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from hyflash_bench.analysis.groups import CAP
from hyflash_bench.analysis.metrics import METRICS
from hyflash_bench.report.tables import tone_of
from hyflash_bench.report.text import NOT_MEASURED, cell_text, heading

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Cell", "Grid", "Heading", "grid_of"]

Link = Callable[[str, Mapping[str, Any]], str]
"""Where the cell of a column in a row leads to; nothing if it leads nowhere."""

_HEADINGS: Final = {
    "run_id": "run",
    "context_length": "context",
    "measured_by": "version",
    "num_conversations": "n",
}
_NONE: Final = {"context_length": "all", **dict.fromkeys(CAP, "none")}
"""What stands for a missing value where it is a choice and no lack of a measurement."""

_MEANINGS: Final = {
    "context_length": "Context length in tokens that the suite asked for; all: the whole suite.",
    "cap_kind": "Simulated: bytes were counted against the cap; enforced: they were withheld.",
    "cap_policy": "What was done at the cap.",
    "device": "Device profile whose usable memory the cap is.",
    "weight_bits": "Bits of a weight of the target that the cap counts with.",
    "machine": "What the run was measured on. Speeds of different machines do not compare.",
    "memory_cap_bytes": "Memory cap that was asked for.",
    "num_conversations": "Conversations behind the numbers.",
    "status": "What became of the conversations: the worst of them.",
    "verdict": "Speed against plain decoding in the same run.",
}
_SPEEDS: Final = ("decode_tok_per_s", "speedup")
_PROSE: Final = 40


@dataclass(frozen=True, slots=True)
class Heading:
    """Head of a column.

    Attributes:
        text: What is shown.
        meaning: For a tooltip.
        kind: ``num``, ``name`` or ``prose``: a class of the style sheet.
        chosen: What a filter over the column shows at first; None for a column without a filter, and
            empty for everything.
    """

    text: str
    meaning: str
    kind: Literal["num", "name", "prose"]
    chosen: str | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: its text, small print below it, where it leads to, and the number to sort it by."""

    text: str
    small: str = ""
    href: str = ""
    tone: str = ""
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """A table for the templates; its key is an element's id."""

    key: str
    caption: str
    headings: Sequence[Heading]
    rows: Sequence[Sequence[Cell]]


def grid_of(
    frame: pd.DataFrame,
    key: str,
    caption: str,
    columns: Sequence[str],
    *,
    link: Link = lambda _column, _row: "",
    filters: Mapping[str, str] | None = None,
) -> Grid:
    """Lay out a frame; columns that it lacks, or that hold nothing, are left out.

    Args:
        frame: One row a table row.
        key: Id of the table.
        caption: What it shows.
        columns: Which columns, in which order.
        link: Where cells lead to.
        filters: Columns with a filter, and what each shows at first.
    """
    shown = [name for name in columns if name in frame and frame[name].notna().any()]
    rows = [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]
    return Grid(
        key,
        caption,
        [_heading(name, frame[name], (filters or {}).get(name)) for name in shown],
        [[_cell(name, row, link(name, row)) for name in shown] for row in rows],
    )


def _heading(name: str, column: pd.Series[Any], chosen: str | None) -> Heading:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    meaning = METRICS[name].definition if name in METRICS else _MEANINGS.get(name, "")
    text = _HEADINGS.get(name, heading(name))
    if is_numeric_dtype(column) and not is_bool_dtype(column):
        return Heading(text, meaning, "num", chosen)
    longest = max((len(str(value)) for value in column.dropna()), default=0)
    return Heading(text, meaning, "prose" if longest > _PROSE else "name", chosen)


def _cell(name: str, row: Mapping[str, Any], href: str) -> Cell:
    value = row[name]
    text = cell_text(name, value)
    if text == NOT_MEASURED:
        return Cell(_NONE.get(name, text))
    small = [_interval(name, row)]
    if name in _SPEEDS and row.get("is_busy") is True:
        small.append("busy machine")
    if name == "run_id":
        small.append(str(row.get("created_at", ""))[:10])
    return Cell(
        text,
        ", ".join(filter(None, small)),
        href,
        tone_of(text) if isinstance(value, str) else "",
        None if isinstance(value, str) else float(value),
    )


def _interval(name: str, row: Mapping[str, Any]) -> str:
    ends = [cell_text(name, row.get(f"{name}{end}")) for end in ("_low", "_high")]
    return "" if NOT_MEASURED in ends else " to ".join(ends)
