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
