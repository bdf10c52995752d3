"""Where curves cross, on curves whose crossing is known."""

from __future__ import annotations

from random import Random

import pandas as pd
import pytest

from hyflash_bench.analysis.crossover import crossover
from hyflash_bench.errors import UsageError
from tests.analysis.tables import HandRun, turn, turns

LENGTHS = (512, 1024, 2048, 4096)


def drafts(
    drafter: str, curve: tuple[float, ...], num: int = 12, noise: float = 0.0
) -> list[dict[str, object]]:
    """A hundred steps a document and length; easy documents are easy at every length."""
    rows = []
    for document in range(num):
        own = 1 + noise * Random(f"{drafter}{document}").uniform(-1, 1)
        for length, value in zip(LENGTHS, curve, strict=False):
            rows.append(
                turn(
                    f"t/{document}/{length}", drafter=drafter, cell_id=drafter, context_rung=length,
                    num_uncut_steps=1000, num_uncut_committed=round(1000 * value * own),
                )
            )  # fmt: skip
    return rows


def only(one: tuple[float, ...], other: tuple[float, ...], **values: object) -> pd.Series:
    run = HandRun(turns(*drafts("one", one, **values), *drafts("other", other, **values)))
    found = crossover(run)
    assert len(found) == 1
    return found.iloc[0]


def test_a_crossing_between_two_lengths_is_straight_in_logarithms() -> None:
    # The logarithm of the ratio goes from -log 2 to +log 2 between 1,024 and 2,048 tokens.
    row = only((1, 1, 2, 4), (4, 2, 1, 1))
    assert row["crossover_context"] == pytest.approx((1024 * 2048) ** 0.5)
    assert (row["ahead_before"], row["ahead_after"]) == ("other", "one")
    assert (row["num_documents"], row["num_lengths"]) == (12, 4)
    assert row["crossover_low"] == row["crossover_high"] == pytest.approx(row["crossover_context"])
    assert pd.isna(row["reason"])


def test_the_interval_holds_the_crossing_and_widens_with_noise() -> None:
    widths = []
    for noise in (0.02, 0.1):
        row = only((2.0, 2.2, 2.6, 3.0), (3.0, 2.6, 2.2, 2.0), noise=noise)
        assert row["crossover_low"] < row["crossover_context"] < row["crossover_high"]
        assert row["crossover_low"] < (1024 * 2048) ** 0.5 < row["crossover_high"]
        widths.append(row["crossover_high"] - row["crossover_low"])
    assert widths[0] < widths[1]


@pytest.mark.parametrize("level", [0, 2])
def test_lengths_where_both_are_level_decide_nothing(level: int) -> None:
    one, other = [1.0, 1.0, 2.0, 4.0], [4.0, 2.0, 1.0, 1.0]
    one[level] = other[level]
    row = only(tuple(one), tuple(other))
    assert row["crossover_context"] == pytest.approx((1024 * 2048) ** 0.5 if level == 0 else 2048)
    assert (row["ahead_before"], row["ahead_after"]) == ("other", "one")
    assert row["crossover_low"] == row["crossover_high"] == pytest.approx(row["crossover_context"])


def test_an_end_beyond_what_was_measured_is_open() -> None:
    row = only((2.0, 2.0, 2.0, 2.1), (2.3, 2.3, 2.3, 2.08), noise=0.1)
    assert row["crossover_context"] > 2048
    assert pd.isna(row["crossover_high"])
    assert "beyond 4,096 tokens, which were not measured" in row["reason"]


@pytest.mark.parametrize(
    ("one", "other", "reason"),
    [
        ((3, 3, 3, 3), (2, 2, 2, 2), "no crossing: one is ahead from 512 to 4,096 tokens"),
        ((2, 2, 2, 2), (3, 3, 3, 3), "no crossing: other is ahead from 512 to 4,096 tokens"),
        ((2, 2, 2, 2), (2, 2, 2, 2), "no crossing: the two are equal from 512 to 4,096 tokens"),
        ((3, 2, 3, 2), (2, 3, 2, 3), "the curves cross 3 times from 512 to 4,096 tokens"),
        ((3,), (2, 2, 2, 2), "fewer than two context lengths in common"),
    ],
)
def test_without_one_crossing_the_reason_stands(
    one: tuple[float, ...], other: tuple[float, ...], reason: str
) -> None:
    row = only(one, other)
    assert pd.isna(row["crossover_context"])
    assert row["reason"] == reason


def test_few_documents_give_a_crossing_without_interval() -> None:
    row = only((1, 1, 2, 4), (4, 2, 1, 1), num=3)
    assert row["crossover_context"] == pytest.approx((1024 * 2048) ** 0.5)
    assert row["reason"] == "3 documents; an interval needs 5"


def test_only_shared_conversations_count() -> None:
    extra = drafts("one", (9, 9, 9, 9), num=20)[12 * 4 :]
    run = HandRun(turns(*drafts("one", (1, 1, 2, 4)), *extra, *drafts("other", (4, 2, 1, 1))))
    assert crossover(run).iloc[0]["crossover_context"] == pytest.approx((1024 * 2048) ** 0.5)


def test_where_less_is_better_the_lower_curve_is_ahead() -> None:
    rows = [
        {**row, "mode": "live", "ttft_s": row["num_uncut_committed"] / 1000}
        for row in (*drafts("one", (1, 1, 2, 4)), *drafts("other", (4, 2, 1, 1)))
    ]
    row = crossover(HandRun(turns(*rows)), "ttft_s").iloc[0]
    assert (row["ahead_before"], row["ahead_after"]) == ("one", "other")


def test_pairs_can_be_chosen_and_an_absent_drafter_is_named() -> None:
    curves = {"a": (1, 2, 3, 4), "b": (4, 3, 2, 1), "c": (1, 1, 1, 1)}
    run = HandRun(turns(*(row for label, curve in curves.items() for row in drafts(label, curve))))
    assert len(crossover(run)) == 3
    found = crossover(run, pairs=[("b", "a"), ("a", "nobody")])
    assert found["ahead_after"].iloc[0] == "a"
    assert found["reason"].iloc[1] == "nobody: not run"
    with pytest.raises(UsageError, match="no ratio"):
        crossover(run, "drafter_bytes")


def test_suites_without_fixed_lengths_have_no_rows() -> None:
    run = HandRun(turns(turn("a", num_uncut_steps=1, num_uncut_committed=1)))
    assert crossover(run).empty
