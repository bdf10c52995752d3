"""What all figures share: names that stay text, axes, intervals."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from hyflash_bench.report.text import visible
from hyflash_bench.report.theme import TEMPLATE, Style, styles
from hyflash_bench.spec.units import format_bytes

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "HIGH",
    "LOW",
    "Looks",
    "blank",
    "bytes_axis",
    "context_axis",
    "drafter_key",
    "drafters_of",
    "error_bar",
    "looks_of",
    "plain",
]

Looks = Mapping[str, Style]
"""How each drafter is drawn; made once a page."""

LOW, HIGH = "_low", "_high"
LONGEST_NAME = 48


def blank(**layout: Any) -> go.Figure:
    """An empty figure in the project's manner."""
    return go.Figure(layout={"template": TEMPLATE, **layout})


def looks_of(frame: pd.DataFrame, looks: Looks | None) -> Looks:
    """The page's looks, or some made for the drafters of the frame."""
    return looks or styles(frame["drafter"])


def drafters_of(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each drafter, in the order of their names."""
    for drafter, part in frame.groupby("drafter", sort=True):
        yield str(drafter), part


def plain(label: str) -> str:
    """A label that plotly cannot take for markup, of a length that a legend can bear."""
    text = visible(label)
    if len(text) > LONGEST_NAME:
        text = f"{text[: LONGEST_NAME - 1]}\N{HORIZONTAL ELLIPSIS}"
    return html.escape(text, quote=False)


def drafter_key(drafter: str) -> str:
    """Ties a drafter's line, band and markers together, for the legend and for the page's filter."""
    return f"drafter {visible(drafter)}"


def context_axis(lengths: pd.Series[Any]) -> dict[str, Any]:
    """A logarithmic axis with a tick at each length that was measured."""
    rungs = sorted({int(length) for length in lengths.dropna()})
    ticks = {"tickvals": rungs, "ticktext": [f"{rung:,}" for rung in rungs]}
    return {"title": "context length (tokens, log scale)", "type": "log", **ticks}


def bytes_axis(sizes: pd.Series[Any]) -> dict[str, Any]:
    """A logarithmic axis of bytes in binary units; zero has no place on it."""
    known = sizes.dropna()
    if known.empty:
        return {"type": "log"}
    low, high = math.floor(math.log2(known.min())), math.ceil(math.log2(known.max()))
    ticks = [2**power for power in range(low, high + 1, max(1, (high - low) // 6))]
    return {"type": "log", "tickvals": ticks, "ticktext": [format_bytes(tick) for tick in ticks]}


def error_bar(row: Mapping[Any, Any], value: str) -> dict[str, Any] | None:
    """A row's interval around its value, or None where there is none."""
    low, high = row.get(value + LOW), row.get(value + HIGH)
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return None
    ends = {"array": [high - row[value]], "arrayminus": [row[value] - low]}
    return {"type": "data", "symmetric": False, "color": "#7f7f7f", "thickness": 1.5, "width": 5, **ends}
