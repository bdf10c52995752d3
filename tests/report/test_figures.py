"""Figures from frames."""

from __future__ import annotations

import json
import math

import pandas as pd
import pytest

from hyflash_bench.report import figures
from hyflash_bench.report.theme import styles

LADDER = pd.DataFrame(
    {
        "drafter": ["suffix", "suffix", "hyflash", "hyflash"],
        "context_length": [2048, 512, 512, 2048],
        "acceptance_length": [2.5, 2.0, 3.0, 3.5],
        "acceptance_length_low": [2.4, 1.9, 2.9, 3.4],
        "acceptance_length_high": [2.6, 2.1, 3.1, 3.6],
        "drafter_bytes": pd.array([4096, 1024, 0, 0], dtype="Int64"),
    }
)


def _lines(figure: object) -> dict[str, object]:
    return {trace.name: trace for trace in figure.data if trace.name}  # type: ignore[attr-defined]


def test_acceptance_is_drawn_in_order_of_context_with_its_band() -> None:
    """A line per drafter, and behind it the interval there and back."""
    figure = figures.acceptance_by_context(LADDER)
    suffix = _lines(figure)["suffix"]
    band = next(trace for trace in figure.data if trace.legendgroup == suffix.legendgroup)

    assert list(suffix.x) == [512, 2048]
    assert list(suffix.y) == [2.0, 2.5]
    assert suffix.line.color == styles(LADDER["drafter"])["suffix"].colour
    assert list(band.y) == [2.1, 2.6, 2.4, 1.9]
    assert figure.layout.yaxis.rangemode == "tozero"
    assert list(figure.layout.xaxis.ticktext) == ["512", "2,048"]


def test_missing_intervals_draw_no_band() -> None:
    """Not computed is not zero."""
    frame = LADDER.assign(acceptance_length_low=math.nan, acceptance_length_high=math.nan)

    assert len(figures.acceptance_by_context(frame).data) == 2


def test_bytes_leave_out_what_a_logarithm_cannot_show() -> None:
    """A drafter of zero bytes stands in the table, not on the axis."""
    assert list(_lines(figures.bytes_by_context(LADDER))) == ["suffix"]


def test_speeds_are_bars_from_slow_to_fast_and_unmeasured_ones_are_left_out() -> None:
    """The interval becomes the error bar."""
    frame = pd.DataFrame(
        {
            "drafter": ["a", "b", "c"],
            "status": ["ok", "interrupted", "ok"],
            "decode_tok_per_s": [20.0, 10.0, math.nan],
            "decode_tok_per_s_low": [18.0, math.nan, math.nan],
            "decode_tok_per_s_high": [23.0, math.nan, math.nan],
        }
    )
    slow, fast = figures.speed_by_drafter(frame).data

    assert (slow.y[0], fast.y[0]) == ("b (interrupted)", "a")
    assert (fast.error_x.array[0], fast.error_x.arrayminus[0]) == (3.0, 2.0)
    assert slow.error_x.array is None


@pytest.mark.parametrize(
    "draw", [figures.acceptance_by_context, figures.bytes_by_context, figures.position_acceptance]
)
def test_names_cannot_become_markup_and_figures_are_plain_json(draw: object) -> None:
    """plotly reads <b> and <a> in names; no NaN and no numpy reaches the page."""
    frame = LADDER.assign(
        drafter="<a href='x'>y</a>",
        drafter_bytes=5,
        position=LADDER["context_length"],
        position_acceptance=[0.5, math.nan, 0.2, 0.1],
    )
    figure = draw(frame)  # type: ignore[operator]

    assert all("<" not in trace.name for trace in figure.data if trace.name)
    json.dumps(figure.to_plotly_json(), allow_nan=False)
