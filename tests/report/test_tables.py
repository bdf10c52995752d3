"""Frames as tables of a page."""

from __future__ import annotations

import math

import pandas as pd

from hyflash_bench.report.tables import ladder_of, table_of
from hyflash_bench.report.text import NOT_MEASURED


def test_intervals_stand_below_their_number_and_empty_columns_are_left_out() -> None:
    """x_low and x_high belong to x."""
    frame = pd.DataFrame(
        {
            "drafter": ["a", "b"],
            "speedup": [1.5, math.nan],
            "speedup_low": [1.4, math.nan],
            "speedup_high": [1.6, math.nan],
            "score": [math.nan, math.nan],
        }
    )
    table = table_of(frame, "Speed", ["drafter", "speedup", "score", "absent"], {"speedup": "ratio"})

    assert [(one.text, one.meaning, one.kind) for one in table.headings] == [
        ("drafter", "", "name"),
        ("speedup", "ratio", "num"),
    ]
    assert [(cell.text, cell.interval) for _, cell in table.rows] == [
        ("1.50", "1.40 to 1.60"),
        (NOT_MEASURED, ""),
    ]


def test_long_texts_get_room() -> None:
    """Messages are read, not scanned."""
    frame = pd.DataFrame({"message": ["x" * 30], "status": ["ok"]})

    assert [one.kind for one in table_of(frame, "", ["message", "status"]).headings] == ["prose", "name"]


def test_a_ladder_has_a_column_per_length_and_says_what_became_of_the_rest() -> None:
    """A drafter that stopped is not a gap."""
    frame = pd.DataFrame(
        {
            "drafter": ["a", "a", "b"],
            "context_length": [8192, 512, 512],
            "status": ["oom", "ok", "ok"],
            "acceptance_length": [math.nan, 2.0, math.nan],
        }
    )
    table = ladder_of(frame, "", "acceptance_length")

    assert [one.text for one in table.headings] == ["drafter", "512 tokens", "8,192 tokens"]
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["a", "2.00", "oom"],
        ["b", NOT_MEASURED, NOT_MEASURED],
    ]
