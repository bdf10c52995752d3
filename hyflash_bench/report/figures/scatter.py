"""Figures that set two numbers of each drafter against each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from hyflash_bench.report.figures.common import (
    Looks,
    blank,
    bytes_axis,
    drafter_key,
    drafters_of,
    error_bar,
    looks_of,
    plain,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["pareto", "simulated_by_device"]


def pareto(
    frame: pd.DataFrame,
    looks: Looks | None = None,
    metric: str = "decode_tok_per_s",
    title: str = "decoding speed (tokens/s)",
) -> go.Figure:
    """A metric against the drafter's bytes; the front, where nothing is both smaller and better, joined.

    Args:
        frame: ``drafter``, ``drafter_bytes``, the metric with its ends where known, and ``is_on_front``.
        looks: How the page draws each drafter.
        metric: Column of the number.
        title: Title of its axis, unit included.
    """
    figure, looks = blank(), looks_of(frame, looks)
    known = frame[(frame["drafter_bytes"] > 0) & frame[metric].notna()]
    if "is_on_front" in known:
        front = known[known["is_on_front"].fillna(False).astype("bool")].sort_values(
            ["drafter_bytes", metric]
        )
        figure.add_scatter(
            x=front["drafter_bytes"].tolist(),
            y=front[metric].tolist(),
            name="Pareto front",
            mode="lines",
            line={"color": "#7f7f7f", "width": 1.25, "dash": "dot", "shape": "hv"},
            hoverinfo="skip",
        )
    for row in known.sort_values("drafter").to_dict("records"):
        look = looks[row["drafter"]]
        figure.add_scatter(
            x=[row["drafter_bytes"]],
            y=[row[metric]],
            name=plain(row["drafter"]),
            legendgroup=drafter_key(row["drafter"]),
            mode="markers",
            marker={"symbol": look.symbol, "size": 12, "color": look.colour},
            error_y=error_bar(row, metric),
            hovertemplate="%{x:.3s}B: %{y:.2f}",
        )
    figure.update_xaxes(
        title="drafter bytes (log scale)", **bytes_axis(known["drafter_bytes"].astype("float64"))
    )
    figure.update_yaxes(title=title, rangemode="tozero")
    return figure


def simulated_by_device(frame: pd.DataFrame, looks: Looks | None = None) -> go.Figure:
    """Simulated speedup on each device: a line a device, a mark a drafter; 1 is plain decoding.

    Args:
        frame: ``drafter``, ``device``, ``simulated_speedup``; one row a drafter and device.
        looks: How the page draws each drafter.
    """
    figure, looks = blank(), looks_of(frame, looks)
    known = frame.dropna(subset=["simulated_speedup"])
    devices = list(dict.fromkeys(known["device"]))
    for drafter, part in drafters_of(known):
        look = looks[drafter]
        figure.add_scatter(
            x=part["simulated_speedup"].tolist(),
            y=[plain(str(device)) for device in part["device"]],
            name=plain(drafter),
            legendgroup=drafter_key(drafter),
            mode="markers",
            marker={"symbol": look.symbol, "size": 11, "color": look.colour},
            hovertemplate="%{y}: %{x:.2f}",
        )
    figure.add_vline(x=1, line={"color": "#7f7f7f", "width": 1, "dash": "dot"})
    figure.update_layout(height=130 + 30 * max(len(devices), 1))
    figure.update_xaxes(title="simulated speedup (times)", rangemode="tozero")
    figure.update_yaxes(type="category", autorange="reversed")
    return figure
