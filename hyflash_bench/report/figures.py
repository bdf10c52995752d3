"""One function per figure: a DataFrame in, a plotly figure out."""

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

__all__ = ["acceptance_by_context", "bytes_by_context", "position_acceptance", "speed_by_drafter"]

Looks = Mapping[str, Style]
"""How each drafter is drawn; made once a page, so that a drafter looks the same on all figures."""

LOW, HIGH = "_low", "_high"


def acceptance_by_context(frame: pd.DataFrame, looks: Looks | None = None) -> go.Figure:
    """Acceptance length over context length, a line and a band per drafter.

    Args:
        frame: ``drafter``, ``context_length``, ``acceptance_length`` with ``_low`` and ``_high``.
        looks: How the page draws each drafter.
    """
    figure = _lines(frame, "context_length", "acceptance_length", looks)
    figure.update_xaxes(title="context length (tokens)", **_ladder(frame["context_length"]))
    figure.update_yaxes(title="acceptance length (tokens per step)", rangemode="tozero")
    return figure


def bytes_by_context(
    frame: pd.DataFrame, looks: Looks | None = None, metric: str = "drafter_bytes"
) -> go.Figure:
    """Bytes a drafter holds over context length, on logarithmic axes.

    Args:
        frame: ``drafter``, ``context_length`` and the metric.
        looks: How the page draws each drafter.
        metric: ``drafter_bytes`` or another count of bytes.
    """
    held = frame[frame[metric] > 0]  # zero has no place on a logarithmic axis
    figure = _lines(held, "context_length", metric, looks)
    figure.update_xaxes(title="context length (tokens)", **_ladder(held["context_length"]))
    figure.update_yaxes(title="bytes (log scale)", **_powers_of_two(held[metric]))
    return figure


def speed_by_drafter(frame: pd.DataFrame, looks: Looks | None = None) -> go.Figure:
    """Decoding speed as one bar per drafter, with its interval.

    Args:
        frame: ``drafter``, ``status``, ``decode_tok_per_s``, with ``_low`` and ``_high`` where known.
        looks: How the page draws each drafter.
    """
    return _bars(frame, "decode_tok_per_s", "decoding speed (tokens/s)", looks)


def position_acceptance(frame: pd.DataFrame, looks: Looks | None = None) -> go.Figure:
    """Chance that a slot is accepted, given the slots before it, a line per drafter.

    Args:
        frame: ``drafter``, ``position``, ``position_acceptance``.
        looks: How the page draws each drafter.
    """
    figure = _lines(frame, "position", "position_acceptance", looks)
    figure.update_xaxes(title="slot of the draft", dtick=1)
    figure.update_yaxes(title="accepted, given the slots before", range=[0, 1.02])
    return figure


def _lines(frame: pd.DataFrame, x: str, y: str, looks: Looks | None) -> go.Figure:
    """A line with markers per drafter; intervals as bands behind them."""
    figure = go.Figure(layout={"template": TEMPLATE})
    looks = looks or styles(frame["drafter"])
    groups = list(_groups(frame.dropna(subset=[x, y]).sort_values(["drafter", x])))
    for drafter, part in groups:
        figure.add_traces(_band(part, x, y, looks[drafter], drafter))
    for drafter, part in groups:
        look = looks[drafter]
        figure.add_scatter(
            x=part[x].tolist(),
            y=part[y].tolist(),
            name=_plain(drafter),
            legendgroup=_key(drafter),
            mode="lines+markers",
            line={"color": look.colour, "dash": look.dash, "width": 2.5},
            marker={"symbol": look.symbol, "size": 8},
            hovertemplate="%{x}: %{y:.3s}" if y.endswith("_bytes") else "%{x}: %{y:.2f}",
        )
    return figure


def _band(part: pd.DataFrame, x: str, y: str, look: Style, drafter: str) -> list[go.Scatter]:
    known = part.dropna(subset=[y + LOW, y + HIGH]) if y + LOW in part and y + HIGH in part else None
    if known is None or len(known) < 2:
        return []
    return [
        go.Scatter(
            x=known[x].tolist() + known[x].tolist()[::-1],
            y=known[y + HIGH].tolist() + known[y + LOW].tolist()[::-1],
            fill="toself",
            fillcolor=look.band,
            mode="lines",
            line={"width": 0},
            hoverinfo="skip",
            showlegend=False,
            legendgroup=_key(drafter),
        )
    ]


def _bars(frame: pd.DataFrame, value: str, title: str, looks: Looks | None) -> go.Figure:
    figure = go.Figure(layout={"template": TEMPLATE, "showlegend": False})
    looks = looks or styles(frame["drafter"])
    for row in frame.dropna(subset=[value]).sort_values(value).to_dict("records"):
        figure.add_bar(
            x=[row[value]],
            y=[_plain(row["drafter"] if row["status"] == "ok" else f"{row['drafter']} ({row['status']})")],
            orientation="h",
            marker={"color": looks[row["drafter"]].colour},
            error_x=_error(row, value),
            hovertemplate="%{y}: %{x:.2f}<extra></extra>",
        )
    figure.update_xaxes(title=title, rangemode="tozero")
    figure.update_yaxes(gridcolor="rgba(0,0,0,0)")
    return figure


def _error(row: Mapping[Any, Any], value: str) -> dict[str, Any] | None:
    low, high = row.get(value + LOW), row.get(value + HIGH)
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return None
    ends = {"array": [high - row[value]], "arrayminus": [row[value] - low]}
    return {"type": "data", "symmetric": False, "color": "#7f7f7f", **ends}


def _groups(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    for drafter, part in frame.groupby("drafter", sort=True):
        yield str(drafter), part


def _ladder(lengths: pd.Series[Any]) -> dict[str, Any]:
    """A logarithmic axis with a tick at each length that was measured."""
    rungs = sorted({int(length) for length in lengths.dropna()})
    return {"type": "log", "tickvals": rungs, "ticktext": [f"{rung:,}" for rung in rungs]}


def _powers_of_two(sizes: pd.Series[Any]) -> dict[str, Any]:
    """A logarithmic axis of bytes in binary units."""
    low, high = math.floor(math.log2(sizes.min())), math.ceil(math.log2(sizes.max()))
    ticks = [2**power for power in range(low, high + 1, max(1, (high - low) // 6))]
    return {"type": "log", "tickvals": ticks, "ticktext": [format_bytes(tick) for tick in ticks]}


def _plain(label: str) -> str:
    """A label that plotly cannot take for markup."""
    return html.escape(visible(label), quote=False)


def _key(drafter: str) -> str:
    """Ties a drafter's line and band together."""
    return f"drafter {visible(drafter)}"
