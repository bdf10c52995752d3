"""Figures over an ordered axis: context length, or the slots of a draft."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from hyflash_bench.report.figures.common import (
    HIGH,
    LOW,
    Looks,
    blank,
    bytes_axis,
    context_axis,
    drafter_key,
    drafters_of,
    looks_of,
    plain,
)
from hyflash_bench.report.theme import Style
from hyflash_bench.spec.units import format_bytes

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "acceptance_by_context",
    "break_even_by_context",
    "bytes_by_context",
    "position_acceptance",
    "speed_by_context",
]


def acceptance_by_context(frame: pd.DataFrame, looks: Looks | None = None) -> go.Figure:
    """Acceptance length over context length, a line and a band per drafter.

    Args:
        frame: ``drafter``, ``context_length``, ``acceptance_length`` with ``_low`` and ``_high``.
        looks: How the page draws each drafter.
    """
    figure = _lines(frame, "context_length", "acceptance_length", looks)
    figure.update_xaxes(context_axis(frame["context_length"]))
    figure.update_yaxes(title="acceptance length (tokens per step)", rangemode="tozero")
    return figure


def speed_by_context(
    frame: pd.DataFrame, looks: Looks | None = None, metric: str = "decode_tok_per_s"
) -> go.Figure:
    """Decoding speed over context length, a line and a band per drafter.

    Args:
        frame: ``drafter``, ``context_length`` and the metric, with ``_low`` and ``_high`` where known.
        looks: How the page draws each drafter.
        metric: ``decode_tok_per_s``, or ``simulated_tok_per_s``, which the axis then says.
    """
    figure = _lines(frame, "context_length", metric, looks)
    kind = "simulated speed" if metric.startswith("simulated") else "decoding speed"
    figure.update_xaxes(context_axis(frame["context_length"]))
    figure.update_yaxes(title=f"{kind} (tokens/s)", rangemode="tozero")
    return figure


def bytes_by_context(
    frame: pd.DataFrame,
    looks: Looks | None = None,
    metric: str = "drafter_bytes",
    room: pd.DataFrame | None = None,
) -> go.Figure:
    """Bytes a drafter holds over context length, on logarithmic axes.

    Args:
        frame: ``drafter``, ``context_length`` and the metric.
        looks: How the page draws each drafter.
        metric: ``drafter_bytes`` or another count of bytes.
        room: ``memory_cap_bytes``, ``context_length``, ``room_bytes``: what each cap leaves for a
            drafter beside the target, drawn as a line.
    """
    import pandas as pd

    held = frame[frame[metric] > 0]  # zero has no place on a logarithmic axis
    figure = _lines(held, "context_length", metric, looks)
    sizes = held[metric].astype("float64")
    if room is not None and not room.empty:
        left = room[room["room_bytes"] > 0]
        for cap, part in left.groupby("memory_cap_bytes"):
            figure.add_scatter(
                x=part["context_length"].tolist(),
                y=part["room_bytes"].tolist(),
                name=f"room under {format_bytes(float(cap))}",  # type: ignore[arg-type]
                mode="lines",
                line={"color": "#7f7f7f", "dash": "dot", "width": 1.5},
                hovertemplate="%{x}: %{y:.3s}",
            )
        sizes = pd.concat([sizes, left["room_bytes"].astype("float64")])
    figure.update_xaxes(context_axis(held["context_length"]))
    figure.update_yaxes(title="bytes (log scale)", **bytes_axis(sizes))
    return figure


def position_acceptance(frame: pd.DataFrame, looks: Looks | None = None) -> go.Figure:
    """Chance that a slot is accepted, given the slots before it, a line per drafter.

    Args:
        frame: ``drafter``, ``position``, ``position_acceptance``, with ``_low`` and ``_high`` where known.
        looks: How the page draws each drafter.
    """
    figure = _lines(frame, "position", "position_acceptance", looks)
    figure.update_xaxes(title="slot of the draft", dtick=1)
    figure.update_yaxes(title="probability of acceptance", range=[0, 1.02])
    return figure


def break_even_by_context(frame: pd.DataFrame, looks: Looks | None = None) -> go.Figure:
    """Acceptance length that a drafter needs to pay (no marker), and the one it reached (markers).

    Args:
        frame: ``drafter``, ``context_length``, ``break_even_acceptance_length``,
            ``measured_acceptance_length``; of one device.
        looks: How the page draws each drafter.
    """
    looks = looks_of(frame, looks)
    figure = _lines(frame, "context_length", "measured_acceptance_length", looks)
    for drafter, part in drafters_of(_known(frame, "context_length", "break_even_acceptance_length")):
        figure.add_scatter(
            x=part["context_length"].tolist(),
            y=part["break_even_acceptance_length"].tolist(),
            name=f"{plain(drafter)} needs",
            legendgroup=drafter_key(drafter),
            showlegend=False,
            mode="lines",
            line={"color": looks[drafter].colour, "dash": "dot", "width": 1.5},
            hovertemplate="%{x}: needs %{y:.2f}",
        )
    figure.update_xaxes(context_axis(frame["context_length"]))
    figure.update_yaxes(title="acceptance length (tokens per step)", rangemode="tozero")
    return figure


def _known(frame: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    return frame.dropna(subset=[x, y]).sort_values(["drafter", x])


def _lines(frame: pd.DataFrame, x: str, y: str, looks: Looks | None) -> go.Figure:
    """A line with markers per drafter; intervals as bands behind them."""
    figure, looks = blank(), looks_of(frame, looks)
    groups = list(drafters_of(_known(frame, x, y)))
    for drafter, part in groups:
        figure.add_traces(_band(part, x, y, looks[drafter], drafter))
    for drafter, part in groups:
        look = looks[drafter]
        figure.add_scatter(
            x=part[x].tolist(),
            y=part[y].tolist(),
            name=plain(drafter),
            legendgroup=drafter_key(drafter),
            mode="lines+markers",
            line={"color": look.colour, "dash": look.dash, "width": 2.25},
            marker={"symbol": look.symbol, "size": 8, "color": look.colour},
            hovertemplate="%{x}: %{y:.3s}" if y.endswith("_bytes") else "%{x}: %{y:.2f}",
        )
    return figure


def _band(part: pd.DataFrame, x: str, y: str, look: Style, drafter: str) -> list[Any]:
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
            legendgroup=drafter_key(drafter),
        )
    ]
