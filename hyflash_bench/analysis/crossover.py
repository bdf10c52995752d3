"""The context length at which one drafter overtakes another, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hyflash_bench.analysis.frames import COUNT, FLOAT, TEXT, frame_of, identity_dtypes
from hyflash_bench.analysis.groups import GROUP, WORK, Degenerate, Groups
from hyflash_bench.analysis.intervals import MIN_DOCUMENTS, NUM_RESAMPLES, SEED, bootstrap_level
from hyflash_bench.analysis.metric import CONVERSATION, DOCUMENT, Metric
from hyflash_bench.analysis.metrics import metric_named
from hyflash_bench.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from hyflash_bench.results.reader import Run

    Floats = NDArray[np.float64]

__all__ = ["crossover"]

_COLUMNS: Final = ("above", "below", "above_reference", "below_reference")


def crossover(
    run: Run,
    metric: str = "acceptance_length",
    pairs: Sequence[tuple[str, str]] | None = None,
    *,
    degenerate: Degenerate = "all",
) -> pd.DataFrame:
    """Where the curves of two drafters over context length cross, on the conversations they share.

    Between the lengths that a suite asks for, the logarithm of the two drafters' ratio is taken as
    straight over the logarithm of the length. Documents are resampled, each with all of its lengths;
    a resample in which one drafter leads throughout puts the crossing outside the lengths measured.

    Args:
        run: The run.
        metric: A ratio such as acceptance_length or decode_tok_per_s.
        pairs: Labels of two drafters each; every pair of the run by default.
        degenerate: Whether turns in which the target repeats itself count.

    Returns:
        One row per pair, suite with fixed lengths, sampling and memory cap: ``drafter``,
        ``reference``, ``crossover_context`` in tokens with ``crossover_low`` and ``crossover_high``,
        ``ahead_before`` and ``ahead_after``, the better drafter on each side, ``num_documents``,
        ``num_lengths`` that both have, and ``reason``: why there is no crossing, no interval or an
        end of it is open.

    Raises:
        UnknownName: No such metric.
        UsageError: The metric is no ratio.
    """
    chosen = metric_named(metric)
    if not chosen.has_interval:
        raise UsageError(f"Metric {metric!r} is no ratio: its curves cannot be resampled.")
    groups = Groups(run, (*GROUP, "context_rung"), degenerate)
    rows = (
        {**work, "metric": metric, **found}
        for work, curves in _works(groups, chosen)
        for found in _crossings(curves, pairs, chosen)
    )
    return frame_of(rows, _DTYPES)


Curves = dict[str, dict[int, "pd.DataFrame"]]
"""Sums per conversation by drafter and context length."""


def _works(groups: Groups, metric: Metric) -> Iterator[tuple[dict[str, Any], Curves]]:
    """The curves of all drafters, one work after another."""
    table = groups.table[groups.table["context_rung"].notna()]
    sums = groups.sums(metric)
    for _, part in table.groupby(list(WORK), dropna=False, sort=False):
        curves: Curves = {str(label): {} for label in part["drafter"]}
        for row, label, rung, status in part[["drafter", "context_rung", "status"]].itertuples():
            if status in metric.gate and row in sums:
                curves[label][int(rung)] = sums[row]
        yield {name: part[name].iloc[0] for name in WORK}, curves


def _crossings(
    curves: Curves, pairs: Sequence[tuple[str, str]] | None, metric: Metric
) -> Iterator[dict[str, Any]]:
    for one, other in combinations(curves, 2) if pairs is None else pairs:
        named = {"drafter": one, "reference": other}
        if one in curves and other in curves:
            yield {**named, **_Pair.of(curves[one], curves[other]).crossing(one, other, metric)}
        else:
            yield {**named, "reason": f"{one if one not in curves else other}: not run"}


@dataclass(frozen=True)
class _Pair:
    """Sums of two drafters.

    Attributes:
        lengths: Context lengths that both have, ascending.
        sums: [length, column, document]; zeros where a document was not cut to a length.
    """

    lengths: list[int]
    sums: Floats

    @classmethod
    def of(cls, one: dict[int, pd.DataFrame], other: dict[int, pd.DataFrame]) -> _Pair:
        """Both on the conversations that they share."""
        both = {
            length: one[length].merge(
                other[length], on=[*CONVERSATION, DOCUMENT], suffixes=("", "_reference")
            )
            for length in sorted(set(one) & set(other))
        }
        by_document = {length: each.groupby(DOCUMENT)[list(_COLUMNS)].sum() for length, each in both.items()}
        by_document = {length: each for length, each in by_document.items() if len(each)}
        documents = sorted({name for each in by_document.values() for name in each.index})
        columns = [each.reindex(documents, fill_value=0.0).to_numpy().T for each in by_document.values()]
        return cls(list(by_document), np.array(columns).reshape(len(columns), len(_COLUMNS), len(documents)))

    def crossing(self, one: str, other: str, metric: Metric) -> dict[str, Any]:
        """Where they cross, in words and numbers."""
        known: dict[str, Any] = {"num_documents": self.sums.shape[2], "num_lengths": len(self.lengths)}
        if len(self.lengths) < 2:
            return {**known, "reason": "fewer than two context lengths in common"}
        curve = _log_ratios(self.sums.sum(axis=2)[None])[0]
        if not np.isfinite(curve).all():
            return {**known, "reason": "nothing to divide by"}
        signs = np.sign(curve[curve != 0])
        turns = int((signs[1:] != signs[:-1]).sum())
        ends = f"from {self.lengths[0]:,} to {self.lengths[-1]:,} tokens"
        leads = [one, other] if metric.better != "lower" else [other, one]
        if turns == 0:
            who = "the two are equal" if not signs.size else f"{leads[int(signs[0] < 0)]} is ahead"
            return {**known, "reason": f"no crossing: {who} {ends}"}
        if turns > 1:
            return {**known, "reason": f"the curves cross {turns} times {ends}"}
        rises = signs[-1]
        value = float(_first_zero(rises * curve[None], self.lengths)[0])
        low, high, reason = self._interval(rises)
        return {
            **known,
            "crossover_context": value,
            "crossover_low": low,
            "crossover_high": high,
            "ahead_before": leads[int(rises > 0)],
            "ahead_after": leads[int(rises < 0)],
            "reason": reason,
        }

    def _interval(self, rises: float) -> tuple[float, float, str | None]:
        num = self.sums.shape[2]
        if num < MIN_DOCUMENTS:
            return math.nan, math.nan, f"{num} document{'s' * (num > 1)}; an interval needs {MIN_DOCUMENTS}"
        weights = np.random.default_rng(SEED).multinomial(num, np.full(num, 1 / num), size=NUM_RESAMPLES)
        curves = rises * _log_ratios(np.einsum("bd,lcd->blc", weights, self.sums))
        curves = curves[np.isfinite(curves).all(axis=1)]
        if not len(curves):
            return math.nan, math.nan, "too few documents with something to divide by"
        outside = (1 - bootstrap_level(num)) / 2
        found = _first_zero(curves, self.lengths)
        low, high = np.quantile(found, [outside, 1 - outside], method="inverted_cdf")
        opened = [
            f"below {self.lengths[0]:,}" if math.isinf(low) else "",
            f"beyond {self.lengths[-1]:,}" if math.isinf(high) else "",
        ]
        reason = " and ".join(filter(None, opened))
        low, high = (float(end) if math.isfinite(end) else math.nan for end in (low, high))
        return low, high, f"the interval reaches {reason} tokens, which were not measured" if reason else None


def _log_ratios(sums: Floats) -> Floats:
    """Logarithm of one number over the other: [resample, length, column] -> [resample, length]."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(sums[..., 0] / sums[..., 1]) - np.log(sums[..., 2] / sums[..., 3]))


def _first_zero(curves: Floats, lengths: Sequence[int]) -> Floats:
    """Where each curve first rises through zero; infinite where it starts above, or never does.

    Lengths at which the two are level decide nothing: a curve that starts level and sinks starts below.
    """
    at = np.log(lengths)
    is_above, is_below = curves > 0, curves < 0
    was_below = np.logical_or.accumulate(is_below, axis=1)
    has_crossed = is_above & was_below
    first = has_crossed.argmax(axis=1)
    rows, before = np.arange(len(curves)), np.maximum(first - 1, 0)
    low, high = curves[rows, before], curves[rows, first]
    rise = np.where(high > low, high - low, 1.0)  # of no use where nothing crosses
    found = np.exp(at[before] - low / rise * (at[first] - at[before]))
    starts_above = (is_above & ~was_below).any(axis=1) | ~is_below.any(axis=1)
    found = np.where(has_crossed.any(axis=1), found, np.inf)
    return np.where(starts_above, -np.inf, found)


_DTYPES: Final = {
    **identity_dtypes(WORK),
    **dict.fromkeys(("metric", "drafter", "reference"), TEXT),
    **dict.fromkeys(("crossover_context", "crossover_low", "crossover_high"), FLOAT),
    **dict.fromkeys(("ahead_before", "ahead_after"), TEXT),
    **dict.fromkeys(("num_documents", "num_lengths"), COUNT),
    "reason": TEXT,
}
