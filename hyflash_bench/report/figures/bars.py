"""Figures of bars: one value per drafter, with its interval or its parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import plotly.graph_objects as go

from hyflash_bench.report.figures.common import (
    HIGH,
    LOW,
    Looks,
    blank,
    drafter_key,
    drafters_of,
    error_bar,
    looks_of,
    plain,
)
from hyflash_bench.report.text import heading
from hyflash_bench.report.theme import PARTS

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["decode_time", "first_token_time", "metric_by_group", "speed_by_drafter"]

DECODING: Final[Mapping[str, str]] = {
    "draft": "draft",
    "verify": "verify",
    "observe": "observe",
    "overhead": "overhead",
}


def speed_by_drafter(frame: pd.DataFrame, looks: Looks | None = None) -> go.Figure:
    """Decoding speed as one bar per drafter, with its interval.

    Args:
        frame: ``drafter``, ``status``, ``decode_tok_per_s``, with ``_low`` and ``_high`` where known.
        looks: How the page draws each drafter.
    """
    value = "decode_tok_per_s"
    figure, looks = blank(showlegend=False), looks_of(frame, looks)
    for row in frame.dropna(subset=[value]).sort_values(value).to_dict("records"):
        figure.add_bar(
            x=[row[value]],
            y=[
                _two_lines(row["drafter"] if row["status"] == "ok" else f"{row['drafter']} ({row['status']})")
            ],
            orientation="h",
            legendgroup=drafter_key(row["drafter"]),
            marker={"color": looks[row["drafter"]].colour},
            error_x=error_bar(row, value),
            hovertemplate="%{y}: %{x:.2f}<extra></extra>",
        )
    figure.update_layout(height=_height(len(figure.data)), bargap=0.35)
    figure.update_xaxes(title="decoding speed (tokens/s)", rangemode="tozero")
    figure.update_yaxes(showgrid=False)
    return figure


def metric_by_group(
    frame: pd.DataFrame,
    by: str,
    looks: Looks | None = None,
    metric: str = "acceptance_length",
    title: str = "acceptance length (tokens per step)",
) -> go.Figure:
    """A metric by kind, category or turn number: bars side by side, one per drafter.

    Args:
        frame: ``drafter``, ``by``, the metric, with ``_low`` and ``_high`` where known.
        by: Column of the groups.
        looks: How the page draws each drafter.
        metric: Column of the number.
        title: Title of the value's axis, unit included.
    """
    figure, looks = blank(barmode="group", bargap=0.3), looks_of(frame, looks)
    for drafter, part in drafters_of(frame.dropna(subset=[by, metric])):
        look = looks[drafter]
        figure.add_bar(
            x=[plain(str(value)) for value in part[by]],
            y=part[metric].tolist(),
            name=plain(drafter),
            legendgroup=drafter_key(drafter),
            marker={"color": look.colour, "pattern": {"shape": look.pattern, "fgcolor": "#ffffff"}},
            error_y=_error_bars(part, metric),
            hovertemplate="%{x}: %{y:.2f}",
        )
    figure.update_xaxes(title=heading(by), type="category", showgrid=False)
    figure.update_yaxes(title=title, rangemode="tozero")
    return figure


def decode_time(frame: pd.DataFrame) -> go.Figure:
    """Seconds per committed token, stacked by what they were spent on.

    Args:
        frame: ``drafter``, ``decode_tok_per_s``, and ``draft_share``, ``verify_share``,
            ``observe_share``, ``overhead_share``.
    """
    rows = frame.dropna(subset=["decode_tok_per_s"])
    seconds = {
        part: (1000 * rows[f"{part}_share"] / rows["decode_tok_per_s"]).tolist()
        for part in DECODING
        if f"{part}_share" in rows
    }
    return _stacked(rows, seconds, "time per token (milliseconds)")


def first_token_time(frame: pd.DataFrame) -> go.Figure:
    """Time to the first token, stacked: prefill, the drafter's reading of the prompt, the rest.

    Args:
        frame: ``drafter``, ``ttft_s``, ``prefill_s``, ``observe_prompt_s``; a row a drafter.
    """
    rows = frame.dropna(subset=["ttft_s", "prefill_s"])
    reading = rows["observe_prompt_s"].fillna(0.0)
    rest = (rows["ttft_s"] - rows["prefill_s"] - reading).clip(lower=0.0)
    seconds = {"prefill": rows["prefill_s"], "observe prompt": reading, "first token": rest}
    return _stacked(
        rows, {part: one.tolist() for part, one in seconds.items()}, "time to first token (seconds)"
    )


def _stacked(rows: pd.DataFrame, seconds: Mapping[str, list[float]], title: str) -> go.Figure:
    figure = blank(barmode="stack", bargap=0.35, legend={"traceorder": "normal"})
    names = [_two_lines(str(drafter)) for drafter in rows["drafter"]]
    owners = [drafter_key(str(drafter)) for drafter in rows["drafter"]]
    for part, values in seconds.items():
        figure.add_bar(
            x=[None if value != value else value for value in values],  # noqa: PLR0124 - NaN alone
            y=names,
            name=part,
            orientation="h",
            meta={"drafters": owners},  # the page's filter takes rows out by them
            marker={"color": PARTS[part]},
            hovertemplate="%{y}: %{x:.3s}",
        )
    figure.update_layout(height=_height(len(names)))
    figure.update_xaxes(title=title, rangemode="tozero")
    figure.update_yaxes(showgrid=False, autorange="reversed")
    return figure


def _two_lines(label: str) -> str:
    """A drafter's name with its options on a line of their own."""
    return plain(label).replace(":", ":<br>", 1)


def _error_bars(part: pd.DataFrame, metric: str) -> dict[str, Any] | None:
    if metric + LOW not in part or metric + HIGH not in part:
        return None
    above, below = part[metric + HIGH] - part[metric], part[metric] - part[metric + LOW]
    if above.isna().all():
        return None
    ends = {"array": above.fillna(0.0).tolist(), "arrayminus": below.fillna(0.0).tolist()}
    return {"type": "data", "symmetric": False, "color": "#7f7f7f", "thickness": 1.25, "width": 3, **ends}


def _height(num_bars: int) -> int:
    """Pixels: a bar is as thick as a line of text, however many there are."""
    return 96 + 40 * max(num_bars, 1)
