"""Intervals: honest about few conversations, right about many."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hyflash_bench.analysis.intervals import (
    Interval,
    bootstrap_level,
    counted_ratio,
    holm,
    paired_gain_interval,
    paired_ratio_interval,
    ratio_interval,
    verdicts,
)

COUNTS = st.tuples(st.integers(1, 50), st.integers(1, 20))


def test_a_ratio_of_sums_not_a_mean_of_ratios() -> None:
    assert ratio_interval([10, 1, 1, 1, 1], [1, 1, 1, 1, 1]).value == 14 / 5
    assert ratio_interval([4, 30], [1, 20]).value == 34 / 21


@pytest.mark.parametrize("num", [1, 2, 3, 4])
def test_few_conversations_get_a_number_and_a_reason(num: int) -> None:
    interval = ratio_interval(range(1, num + 1), [1] * num)
    assert interval.value == (num + 1) / 2
    assert math.isnan(interval.low)
    assert interval.reason == f"{num} conversation{'s' * (num > 1)}; an interval needs 5"
    assert interval.verdict() is interval.method is None


def test_nothing_measured_is_null() -> None:
    for interval in (ratio_interval([], []), ratio_interval([0, 0], [0, 0])):
        assert math.isnan(interval.value)
        assert interval.reason == "not measured"


def test_conversations_without_a_step_do_not_count() -> None:
    assert ratio_interval([2, 2, 2, 2, 0], [1, 1, 1, 1, 0]).num_conversations == 4


def test_no_spread_is_an_interval_of_no_width() -> None:
    interval = ratio_interval([3] * 8, [2] * 8)
    assert (interval.low, interval.value, interval.high) == (1.5, 1.5, 1.5)
    assert interval.method == "percentile"  # BCa has no acceleration where nothing varies


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


@pytest.mark.parametrize(("num", "least"), [(5, 0.84), (8, 0.88), (25, 0.90)])
def test_coverage_is_about_what_it_says(num: int, least: float) -> None:
    """How often the interval holds the truth, in simulated runs of so many documents."""
    rng = np.random.default_rng(1)
    truth, hits, num_trials = 3.0, 0, 200
    for _ in range(num_trials):
        below = rng.integers(5, 40, size=num)
        above = below * rng.gamma(shape=9.0, scale=truth / 9.0, size=num)
        interval = ratio_interval(above, below, num_resamples=999)
        hits += interval.low <= truth <= interval.high
    assert least <= hits / num_trials <= 0.99


def test_a_comparison_of_equals_is_seldom_called_a_difference() -> None:
    """Both for the interval and for the p-value, which corrections are made from."""
    rng = np.random.default_rng(2)
    outside, small, num_trials = 0, 0, 200
    for _ in range(num_trials):
        steps = rng.integers(20, 60, size=12).astype(float)
        easy = rng.uniform(1, 4, size=12)
        one, other = (steps * easy * np.exp(rng.normal(0, 0.1, size=12)) for _ in range(2))
        interval = paired_ratio_interval(one, steps, other, steps, num_resamples=999)
        outside += interval.verdict() != "no clear difference"
        small += interval.p_value < 0.05
    assert 0.01 <= outside / num_trials <= 0.11
    assert 0.01 <= small / num_trials <= 0.09


def test_the_ends_are_those_of_scipy_at_a_raised_level() -> None:
    rng = np.random.default_rng(3)
    above, below = rng.uniform(20, 90, size=9), rng.uniform(10, 30, size=9)
    expected = stats.bootstrap(
        (above, below), lambda a, b, axis=-1: a.sum(axis) / b.sum(axis), paired=True, n_resamples=499,
        confidence_level=bootstrap_level(9), method="BCa", rng=np.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    interval = ratio_interval(above, below, num_resamples=499)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))
    assert interval.method == "BCa"


def test_the_level_is_raised_for_few_documents_and_not_for_many() -> None:
    # Normal quantile sqrt(n / (n - 1)) * t: 3.104 for five documents, 1.96 in the limit.
    assert bootstrap_level(5) == pytest.approx(1 - 2 * stats.norm.sf(np.sqrt(5 / 4) * 2.776445), abs=1e-6)
    assert bootstrap_level(100_000) == pytest.approx(0.95, abs=1e-4)
    levels = [bootstrap_level(num) for num in (5, 8, 20, 100)]
    assert levels == sorted(levels, reverse=True)


def test_the_p_value_of_documents_of_one_size_is_students_on_logarithms() -> None:
    """For small differences; the jackknife of a ratio of sums is then a mean."""
    rng = np.random.default_rng(4)
    gains = 1.0 + rng.normal(0.001, 0.001, size=15)
    interval = paired_ratio_interval(100 * gains, [50] * 15, [100] * 15, [50] * 15)
    assert interval.p_value == pytest.approx(stats.ttest_1samp(np.log(gains), 0).pvalue, rel=0.01)


def test_p_values_at_the_edges() -> None:
    same, zero = [2.0] * 6, [0.0] * 6
    assert paired_ratio_interval(same, same, same, same).p_value == 1.0
    assert paired_ratio_interval([4.0] * 6, same, same, same).p_value == 0.0
    nothing = paired_ratio_interval(zero, same, [1, 2, 3, 1, 2, 3], same)
    assert (nothing.verdict(), nothing.p_value) == ("lower", 0.0)
    assert math.isnan(ratio_interval(range(1, 9), [*same, 2, 2]).p_value)


def test_a_ratio_and_its_inverse_are_as_sure() -> None:
    rng = np.random.default_rng(5)
    one, other, steps = rng.uniform(50, 90, 12), rng.uniform(40, 80, 12), rng.uniform(20, 40, 12)
    forth, back = (
        paired_ratio_interval(one, steps, other, steps),
        paired_ratio_interval(other, steps, one, steps),
    )
    assert forth.p_value == pytest.approx(back.p_value)


def test_holm_on_a_closed_case() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
    corrected = holm([math.nan, 0.02, math.nan, 0.03])
    assert corrected[1::2] == pytest.approx([0.04, 0.04])
    assert math.isnan(corrected[0])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_keeps_order_and_lies_between_none_and_bonferroni(p_values: list[float]) -> None:
    corrected = holm(p_values)
    for p_value, after in zip(p_values, corrected, strict=True):
        assert p_value - 1e-12 <= after <= min(1.0, p_value * len(p_values)) + 1e-12
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    assert [corrected[at] for at in order] == sorted(corrected)


def test_verdicts_need_interval_and_corrected_p_value() -> None:
    def compared(low: float, high: float, p_value: float) -> Interval:
        return Interval((low + high) / 2, low, high, 9, p_value=p_value)

    few = [compared(1.1, 1.3, 0.03), compared(0.9, 1.2, 0.5)]
    assert verdicts(few[:1]) == ["higher"]
    assert verdicts(few) == ["no clear difference"] * 2
    assert verdicts([compared(0.9, 1.2, 0.001)]) == ["no clear difference"]
    assert verdicts([Interval.missing("oom"), compared(0.5, 0.6, 0.001)]) == [None, "lower"]
    assert verdicts([Interval(2, 2, 2, 9, method="extremes"), *few]) == ["higher", *verdicts(few)]


def test_counts_are_compared_by_their_extremes() -> None:
    paired = counted_ratio([10, 20], [20, 80], paired=True)
    assert (paired.value, paired.low, paired.high) == (0.25, 0.25, 0.5)
    apart = counted_ratio([10, 20], [20, 80], paired=False)
    assert (apart.value, apart.low, apart.high, apart.method) == (0.25, 0.125, 1.0, "extremes")
    assert counted_ratio([0, 0], [0, 0], paired=True).value == 1.0
    assert counted_ratio([1], [0], paired=True).reason == "nothing to divide by"
    assert counted_ratio([], [1], paired=False).reason == "no conversation in common"


def test_a_gain_over_itself_is_one_and_over_none_is_itself() -> None:
    rng = np.random.default_rng(6)
    gain = [rng.uniform(1, 9, size=10) for _ in range(4)]
    even = [np.ones(10)] * 4
    assert paired_gain_interval(gain, gain).value == pytest.approx(1.0)
    over, alone = paired_gain_interval(gain, even), paired_ratio_interval(*gain)
    assert (over.value, over.low, over.high) == pytest.approx((alone.value, alone.low, alone.high))


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
