"""Acceptance slot by slot."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from hyflash_bench.analysis.intervals import ratio_interval
from hyflash_bench.analysis.positions import position_acceptance, step_distribution
from tests.analysis.tables import steps


def rates(frame: pd.DataFrame) -> list[tuple[int, int]]:
    table = position_acceptance(frame)
    assert table["position"].tolist() == list(range(1, len(table) + 1))
    assert (table["position_acceptance"] == table["num_accepted"] / table["num_reached"]).all()
    return list(zip(table["num_accepted"], table["num_reached"], strict=True))


def test_a_slot_is_judged_only_once_the_slots_before_it_were_accepted() -> None:
    assert rates(steps((3, 0, 1), (3, 1, 2), (3, 3, 4), (2, 2, 3))) == [(3, 4), (2, 3), (1, 1)]


def test_slots_behind_the_end_of_the_reply_are_not_rejected() -> None:
    # The second token drafted was the end of sequence: slot 3 was never put to the target.
    assert rates(steps((3, 2, 2), eos_cut=True)) == [(1, 1), (1, 1)]


def test_an_end_that_the_target_added_itself_rejects_the_slot_it_took() -> None:
    assert rates(steps((3, 1, 2), eos_cut=True)) == [(1, 1), (0, 1)]


def test_steps_cut_by_the_limit_and_trees_are_left_out() -> None:
    assert rates(pd.concat([steps((2, 1, 2)), steps((2, 2, 1), limit_cut=True)])) == [(1, 1), (0, 1)]
    assert rates(steps((6, 2, 3), depth=3)) == []


def test_void_and_failed_cells_are_left_out() -> None:
    assert rates(steps((2, 1, 2), cell_status="mismatch")) == []
    assert rates(steps((2, 1, 2), cell_status="oom")) == []
    assert rates(steps((2, 1, 2), status="oom")) == []
    assert rates(steps((2, 1, 2), is_scored=False)) == []


def test_steps_without_drafts_give_no_rows() -> None:
    assert position_acceptance(steps((0, 0, 1), (0, 0, 1))).empty


def test_no_steps_no_rows() -> None:
    table = position_acceptance(steps(), by=["drafter", "suite"])
    assert table.empty
    assert list(table) == [
        "drafter",
        "suite",
        "position",
        "num_reached",
        "num_accepted",
        "num_conversations",
        "position_acceptance",
        "position_acceptance_low",
        "position_acceptance_high",
        "reason",
    ]


@pytest.mark.parametrize("column", ["drafter", "suite"])
def test_groups_are_kept_apart(column: str) -> None:
    frame = pd.concat([steps((1, 1, 2), **{column: "x"}), steps((1, 0, 1), **{column: "y"})])
    table = position_acceptance(frame, by=[column]).set_index(column)
    assert table["position_acceptance"].to_dict() == {"x": 1.0, "y": 0.0}


def test_steps_are_counted_by_the_tokens_they_committed() -> None:
    frame = pd.concat([steps((4, 0, 1), (4, 0, 1), (4, 3, 4)), steps((4, 4, 1), limit_cut=True)])
    table = step_distribution(frame)
    assert table["committed"].tolist() == [1, 2, 3, 4]
    assert table["num_steps"].tolist() == [2, 0, 0, 1]
    assert table["num_tokens"].tolist() == [2, 0, 0, 4]
    assert table["step_share"].sum() == table["token_share"].sum() == 1.0
    # The two sums are those of acceptance_length.
    assert table["num_tokens"].sum() / table["num_steps"].sum() == 2.0


def test_distributions_of_groups_are_kept_apart_and_void_cells_left_out() -> None:
    frame = pd.concat(
        [
            steps((1, 1, 2), drafter="x"),
            steps((1, 0, 1), drafter="y"),
            steps((1, 1, 2), drafter="z", cell_status="mismatch"),
        ]
    )
    table = step_distribution(frame, ["drafter"])
    assert list(zip(table["drafter"], table["committed"], table["num_steps"], strict=True)) == [
        ("x", 1, 0),
        ("x", 2, 1),
        ("y", 1, 1),
    ]
    assert step_distribution(steps()).empty
    assert list(step_distribution(steps())) == list(table)


def test_slots_have_the_interval_of_their_conversations() -> None:
    """Resampled by conversation, not by step: the same as the ratio of each conversation's sums."""
    said = {f"item-{number}": (2, number % 3, number % 3 + 1) for number in range(8)}
    frame = pd.concat([steps(one, (2, 1, 2), item_id=item) for item, one in said.items()])
    first, second = position_acceptance(frame).to_dict("records")

    kept = [1 + (one[1] >= 1) for one in said.values()]
    expected = ratio_interval(kept, [2] * 8)
    assert (first["position_acceptance_low"], first["position_acceptance_high"]) == (
        expected.low,
        expected.high,
    )
    assert first["num_conversations"] == 8
    assert second["num_reached"] == sum(kept)


def test_few_conversations_have_no_interval_and_say_so() -> None:
    row = position_acceptance(steps((1, 1, 2), (1, 0, 1))).to_dict("records")[0]
    assert np.isnan(row["position_acceptance_low"])
    assert row["reason"] == "1 conversation; an interval needs 5"
