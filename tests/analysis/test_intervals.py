"""Intervals: honest about few conversations, right about many."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyflash_bench.analysis.intervals import Interval, paired_ratio_interval, ratio_interval

COUNTS = st.tuples(st.integers(1, 50), st.integers(1, 20))


def test_a_ratio_of_sums_not_a_mean_of_ratios() -> None:
    assert ratio_interval([10, 1, 1, 1, 1], [1, 1, 1, 1, 1]).value == 14 / 5
    assert ratio_interval([4, 30], [1, 20]).value == 34 / 21


@pytest.mark.parametrize("num", [1, 2, 3, 4])
def test_few_conversations_get_a_number_and_a_reason(num: int) -> None:
    interval = ratio_interval(range(1, num + 1), [1] * num)
    assert interval.value == (num + 1) / 2
    assert math.isnan(interval.low)
    assert interval.reason == f"{num} conversations; an interval needs 5"
    assert interval.verdict() is None


def test_nothing_measured_is_null() -> None:
    for interval in (ratio_interval([], []), ratio_interval([0, 0], [0, 0])):
        assert math.isnan(interval.value)
        assert interval.reason == "not measured"


def test_conversations_without_a_step_do_not_count() -> None:
    assert ratio_interval([2, 2, 2, 2, 0], [1, 1, 1, 1, 0]).num_conversations == 4


def test_no_spread_is_an_interval_of_no_width() -> None:
    interval = ratio_interval([3] * 8, [2] * 8)
    assert (interval.low, interval.value, interval.high) == (1.5, 1.5, 1.5)


def test_dividing_by_a_reference_of_zero_is_null() -> None:
    interval = paired_ratio_interval([1] * 6, [1] * 6, [0] * 6, [1] * 6)
    assert math.isnan(interval.value)
    assert interval.reason == "nothing to divide by"


@settings(max_examples=25, deadline=None)
@given(st.lists(COUNTS, min_size=5, max_size=30))
def test_intervals_hold_together(rows: list[tuple[int, int]]) -> None:
    above, below = zip(*rows, strict=True)
    interval = ratio_interval(above, below, num_resamples=499)
    ratios = [a / b for a, b in rows]
    assert min(ratios) - 1e-9 <= interval.low <= interval.high <= max(ratios) + 1e-9
    assert interval == ratio_interval(above, below, num_resamples=499)


def test_coverage_is_about_what_it_says() -> None:
    rng = np.random.default_rng(1)
    truth, hits, num_trials = 3.0, 0, 200
    for _ in range(num_trials):
        below = rng.integers(5, 40, size=25)
        above = below * rng.gamma(shape=9.0, scale=truth / 9.0, size=25)
        interval = ratio_interval(above, below, num_resamples=999)
        hits += interval.low <= truth <= interval.high
    assert 0.88 <= hits / num_trials <= 0.99


def test_pairing_sees_what_unpaired_intervals_cannot() -> None:
    rng = np.random.default_rng(2)
    difficulty = rng.uniform(0.5, 4.0, size=20)
    steps = np.full(20, 50.0)
    one = steps * difficulty * 1.1 * rng.normal(1, 0.01, size=20)
    other = steps * difficulty
    paired = paired_ratio_interval(one, steps, other, steps)
    assert paired.value == pytest.approx(1.1, abs=0.01)
    assert paired.verdict() == "higher"
    assert paired_ratio_interval(other, steps, one, steps).verdict() == "lower"
    apart = ratio_interval(one, steps), ratio_interval(other, steps)
    assert apart[0].low < apart[1].high


def test_equal_drafters_do_not_differ() -> None:
    rng = np.random.default_rng(3)
    above, below = rng.uniform(50, 150, size=30), np.full(30, 50.0)
    other = above * rng.normal(1, 0.05, size=30)
    assert paired_ratio_interval(above, below, other, below).verdict() == "no clear difference"
    assert paired_ratio_interval(above, below, above, below).verdict() == "no clear difference"


def test_prompts_cut_from_one_document_are_drawn_together() -> None:
    """Each document eight times: as good as one measurement of it, not as eight."""
    rng = np.random.default_rng(4)
    ratios = rng.uniform(1.5, 4.0, size=9)
    above, below = np.repeat(50 * ratios, 8), np.full(72, 50.0)
    documents = [f"document {number}" for number in range(9) for _ in range(8)]

    naive, clustered = ratio_interval(above, below), ratio_interval(above, below, documents)

    assert clustered.value == naive.value
    assert clustered.num_conversations == 72
    assert clustered.high - clustered.low > 2 * (naive.high - naive.low)
    once = ratio_interval(400 * ratios, np.full(9, 400.0))
    assert (clustered.low, clustered.high) == pytest.approx((once.low, once.high))


def test_a_document_brings_both_sides_of_a_comparison_along() -> None:
    """Its difficulty cancels; what is left varies from document to document, not within one."""
    rng = np.random.default_rng(5)
    difficulty, gain = rng.uniform(1, 5, size=12), rng.normal(1.05, 0.15, size=12)
    steps = np.full(60, 40.0)
    other = np.repeat(40 * difficulty, 5)
    one = other * np.repeat(gain, 5)
    documents = [str(number) for number in range(12) for _ in range(5)]

    naive = paired_ratio_interval(one, steps, other, steps)
    clustered = paired_ratio_interval(one, steps, other, steps, documents)

    assert clustered.value == naive.value
    assert clustered.high - clustered.low > 1.8 * (naive.high - naive.low)
    assert clustered.high - clustered.low < ratio_interval(one, steps, documents).high / 2


def test_many_prompts_from_few_documents_get_no_interval() -> None:
    documents = [str(number % 3) for number in range(30)]
    interval = ratio_interval(range(1, 31), [1] * 30, documents)
    assert interval.reason == "3 documents; an interval needs 5"
    assert interval.num_conversations == 30
    assert interval.value == 15.5


def test_documents_of_conversations_without_a_step_do_not_count() -> None:
    documents = [str(number) for number in range(6)]
    assert ratio_interval([2] * 6, [1] * 5 + [0], documents).reason is None
    assert ratio_interval([2] * 6, [1] * 4 + [0] * 2, documents).reason == (
        "4 conversations; an interval needs 5"
    )


def test_a_document_each_changes_nothing() -> None:
    above, below = [3, 9, 4, 7, 8, 2], [1, 3, 2, 3, 2, 1]
    assert ratio_interval(above, below, list("fedcba")) == ratio_interval(above, below)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.01, 1.2, "higher"),
        (0.8, 0.99, "lower"),
        (0.9, 1.1, "no clear difference"),
        (1.0, 1.2, "no clear difference"),
    ],
)
def test_verdicts_follow_the_whole_interval(low: float, high: float, verdict: str) -> None:
    assert Interval((low + high) / 2, low, high, 9).verdict() == verdict
