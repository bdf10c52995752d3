"""Waiting times by percentile, and silence where there are too few."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

from hyflash_bench.analysis.latency import latency
from tests.analysis.tables import HandRun, table, turn, turns


@dataclass
class TimedRun(HandRun):
    """A run with a step for every turn, a third of a second in each part."""

    @property
    def steps(self) -> pd.DataFrame:
        """One row a turn."""
        parts = dict.fromkeys(("draft_s", "verify_s", "observe_s"), 1 / 3)
        return table("steps", [{**row, **parts} for row in self.turns.to_dict("records")])


def run_of(num: int, **values: object) -> TimedRun:
    seconds = np.arange(1, num + 1, dtype=float)
    return TimedRun(
        turns(
            *(
                turn(f"{at}", mode="live", ttft_s=each, decode_s=2 * each, num_committed=4, **values)
                for at, each in enumerate(seconds)
            )
        )
    )


def test_percentiles_are_those_of_numpy() -> None:
    row = latency(run_of(200)).iloc[0]
    for percent in (50, 95, 99):
        expected = np.percentile(np.arange(1, 201), percent)
        assert row[f"ttft_p{percent}_s"] == pytest.approx(expected)
        assert row[f"time_per_output_token_p{percent}_s"] == pytest.approx(expected / 2)
        assert row[f"step_p{percent}_s"] == pytest.approx(1.0)
    assert (row["num_turns"], row["num_steps"]) == (200, 200)
    assert pd.isna(row["reason"])


@pytest.mark.parametrize(
    ("num", "known"), [(1, [50]), (19, [50]), (20, [50, 95]), (99, [50, 95]), (100, [50, 95, 99])]
)
def test_a_percentile_needs_values_beyond_it(num: int, known: list[int]) -> None:
    row = latency(run_of(num)).iloc[0]
    assert [percent for percent in (50, 95, 99) if pd.notna(row[f"ttft_p{percent}_s"])] == known
    assert pd.isna(row["reason"]) is (num == 100)
    if num == 20:
        assert row["reason"] == (
            "too few for the 99th percentile of 20 turns and the 99th percentile of 20 steps"
        )


def test_what_was_not_timed_or_failed_says_why() -> None:
    replayed = TimedRun(turns(turn("a")))
    assert latency(replayed).iloc[0]["reason"] == "not measured"
    failed = latency(run_of(30, status="oom", cell_status="oom")).iloc[0]
    assert (failed["reason"], failed["num_turns"]) == ("oom", 0)
    assert pd.isna(failed["ttft_p50_s"])


def test_groups_are_kept_apart() -> None:
    frame = pd.concat([run_of(3, drafter="a", cell_id="a").turns, run_of(5, drafter="b", cell_id="b").turns])
    found = latency(TimedRun(frame), ["drafter"]).set_index("drafter")
    assert found["ttft_p50_s"].to_dict() == {"a": 2.0, "b": 3.0}
    assert found["num_steps"].to_dict() == {"a": 3, "b": 5}
