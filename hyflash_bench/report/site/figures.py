"""A drafter's numbers over the dates of the runs: a DataFrame in, a plotly figure out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hyflash_bench.analysis.metrics import METRICS
from hyflash_bench.report.figures.common import (
    Looks,
    blank,
    drafter_key,
    drafters_of,
    error_bar,
    looks_of,
    plain,
)
from hyflash_bench.report.text import heading

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

__all__ = ["over_time"]


def over_time(frame: pd.DataFrame, metric: str, looks: Looks | None = None) -> go.Figure:
    """A metric over the dates of runs, a line per drafter label, with intervals where they are known.

    Args:
        frame: ``drafter``, ``created_at`` (ISO 8601) and the metric, with ``_low`` and ``_high``; rows that
            may be compared with each other.
        metric: Column of the number.
        looks: How the page draws each drafter.
    """
    figure, looks = blank(), looks_of(frame, looks)
    known = frame.dropna(subset=[metric]).sort_values("created_at", kind="stable")
    for drafter, part in drafters_of(known):
        look, bars = looks[drafter], [error_bar(row, metric) for row in part.to_dict("records")]
        figure.add_scatter(
            x=part["created_at"].tolist(),
            y=part[metric].tolist(),
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [bar["array"][0] if bar else 0 for bar in bars],
                "arrayminus": [bar["arrayminus"][0] if bar else 0 for bar in bars],
                "thickness": 1.5,
                "width": 5,
            },
            name=plain(drafter),
            legendgroup=drafter_key(drafter),
            mode="lines+markers",
            line={"color": look.colour, "dash": look.dash, "width": 2.25},
            marker={"symbol": look.symbol, "size": 9, "color": look.colour},
            hovertemplate="%{x|%Y-%m-%d %H:%M}: %{y:.2f}",
        )
    figure.update_layout(showlegend=known["drafter"].nunique() > 1)
    figure.update_xaxes(title="start of the run (UTC)", type="date")
    unit = METRICS[metric].unit if metric in METRICS else ""
    figure.update_yaxes(title=f"{heading(metric)} ({unit})" if unit else heading(metric), rangemode="tozero")
    return figure
