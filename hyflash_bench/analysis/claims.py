"""Claims held against a run: reproduced, not reproduced, inconclusive, or not tested and why.

A claim is about a ratio, since that is what pairs: a drafter's number over another's on the same
conversations, or such a gain over the same gain elsewhere. The whole 95 % interval has to lie on
one side of the threshold; otherwise nothing was shown. Bytes are counted and not sampled: their
ends are the least and the most that the conversations of the strata give.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from hyflash_bench.analysis.budgets import budget_of
from hyflash_bench.analysis.frames import COUNT, FLOAT, TEXT, frame_of
from hyflash_bench.analysis.gains import Arm, Gain, Gains
from hyflash_bench.analysis.intervals import Interval
from hyflash_bench.analysis.metrics import Metric, metric_named
from hyflash_bench.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

    from hyflash_bench.results.reader import Run
    from hyflash_bench.spec.claims import Claim, ClaimFile, Strata

__all__ = ["OUTCOMES", "Outcome", "evaluate", "judge", "require_claimable"]

Outcome = Literal["reproduced", "not reproduced", "inconclusive", "not tested"]
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)


def evaluate(claims: ClaimFile, run: Run) -> pd.DataFrame:
    """Hold every claim against a run; none is left out.

    Args:
        claims: What is claimed.
        run: The run.

    Returns:
        One row per claim, or per context length where a claim tells them apart: ``claim``,
        ``statement``, ``source``, ``verdict``, ``ratio`` with ``ratio_low`` and ``ratio_high``,
        ``wanted`` (what the ratio should be), ``num_conversations``, ``strata``, ``metric``,
        ``drafter`` with ``value``, ``reference`` with ``reference_value``, ``interval_method``,
        ``reason`` (why there is no verdict or no interval, or what is still missing), and
        ``budget``, the training behind the drafters.

    Raises:
        UnknownName: No such metric.
        UsageError: A metric that nothing can be claimed of.
    """
    metrics = [_claimable(claim) for claim in claims.claims]
    gains = Gains(run)
    tests = [
        _Test(claim, metric, strata, gains)
        for claim, metric in zip(claims.claims, metrics, strict=True)
        for strata in claim.strata.each()
    ]
    return frame_of(map(_row, tests), _DTYPES)


def require_claimable(claims: ClaimFile) -> None:
    """Check that every claim's metric is one that drafters can be compared by.

    Raises:
        UnknownName: No such metric.
        UsageError: A metric that nothing can be claimed of.
    """
    for claim in claims.claims:
        _claimable(claim)


def judge(claim: Claim, interval: Interval) -> Outcome:
    """What an interval says about a claim."""
    if interval.reason is not None:
        return "inconclusive" if math.isfinite(interval.value) else "not tested"
    low, high, wanted = interval.low, interval.high, claim.threshold
    match claim.relation:
        case "higher":
            holds, fails = low > wanted, high <= wanted
        case "at-least":
            holds, fails = low >= wanted, high < wanted
        case "lower":
            holds, fails = high < wanted, low >= wanted
        case "at-most":
            holds, fails = high <= wanted, low > wanted
        case "equal":
            least, most = wanted - claim.tolerance, wanted + claim.tolerance
            holds, fails = least <= low and high <= most, high < least or low > most
    return "reproduced" if holds else "not reproduced" if fails else "inconclusive"


def _claimable(claim: Claim) -> Metric:
    metric = metric_named(claim.metric)
    if not metric.has_interval and metric.pooling != "max":
        raise UsageError(
            f"Claim {claim.id}: {metric.name} does not compare drafters. "
            "Choose a ratio such as acceptance_length, or bytes such as drafter_peak_bytes."
        )
    if metric.pooling == "max" and claim.than is not None:
        raise UsageError(
            f"Claim {claim.id}: {metric.name} is counted and has no gain to compare. "
            "Drop than, or use against_strata."
        )
    return metric


@dataclass(frozen=True)
class _Test:
    """A claim on one of its strata."""

    claim: Claim
    metric: Metric
    strata: Strata
    gains: Gains

    @cached_property
    def pairs(self) -> tuple[tuple[Arm, Arm], ...]:
        """Drafter and reference; with ``than``, those of the other gain too."""
        claim, than = self.claim, self.claim.than
        here = (Arm(claim.drafter, self.strata), Arm(claim.against, claim.against_strata or self.strata))
        if than is None:
            return (here,)
        strata = than.strata or self.strata
        there = (Arm(than.drafter or claim.drafter, strata), Arm(than.against or claim.against, strata))
        return (here, there)

    @cached_property
    def problem(self) -> str | None:
        """Why there is nothing to judge, or None."""
        return _listed((arm.drafter, self.gains.problem(arm)) for arm in self._arms)

    @cached_property
    def gain(self) -> Gain:
        """What the run says."""
        if self.problem is not None:
            return Gain(Interval.missing(self.problem), math.nan, math.nan)
        if len(self.pairs) == 1:
            return self.gains.between(self.metric, *self.pairs[0])
        return self.gains.over(self.metric, *self.pairs)

    @property
    def reason(self) -> str | None:
        """What keeps the verdict back, or what is missing below it."""
        pending = 0 if self.problem else sum(map(self.gains.num_pending, self._arms))
        missing = f"{pending} conversations not run yet" if pending else None
        unequal = "the training budgets differ" if self._has_unequal_budgets else None
        return "; ".join(filter(None, (self.gain.ratio.reason, unequal, missing))) or None

    @property
    def verdict(self) -> Outcome:
        """An acceptance that more training may have bought decides nothing."""
        outcome = judge(self.claim, self.gain.ratio)
        is_counted = self.metric.pooling == "max"
        if outcome == "not tested" or is_counted or not self._has_unequal_budgets:
            return outcome
        return "inconclusive"

    @property
    def _has_unequal_budgets(self) -> bool:
        budgets = {budget_of(self.gains.run, arm.drafter) for arm in self._arms} - {None}
        return len(budgets) > 1

    @property
    def budget(self) -> str | None:
        """The training of its drafters, said once where it is the same."""
        drafters = dict.fromkeys(arm.drafter for arm in self._arms)
        return _listed((drafter, budget_of(self.gains.run, drafter)) for drafter in drafters)

    @property
    def _arms(self) -> list[Arm]:
        return list(dict.fromkeys(arm for pair in self.pairs for arm in pair))


def _listed(said: Iterable[tuple[str, str | None]]) -> str | None:
    """``hyflash, window: not run; eagle: oom ...``: who shares a text stands before it."""
    by_text: dict[str, list[str]] = {}
    for drafter, text in said:
        if text and drafter not in by_text.setdefault(text, []):
            by_text[text].append(drafter)
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in by_text.items()) or None


def _row(test: _Test) -> dict[str, Any]:
    claim, ratio = test.claim, test.gain.ratio
    (one, other), *elsewhere = test.pairs
    drafter, reference, strata = one.drafter, other.drafter, _told(one.strata)
    if elsewhere:
        drafter, reference = (" / ".join(arm.drafter for arm in pair) for pair in test.pairs)
        other = elsewhere[0][0]
    if other.strata != one.strata:
        strata = f"{strata}; against {_told(other.strata)}"
    return {
        "claim": claim.id,
        "statement": claim.statement,
        "source": "paper" if claim.source == "paper" else "this project's control",
        "verdict": test.verdict,
        "ratio": ratio.value,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
        "wanted": _wanted(claim),
        "num_conversations": ratio.num_conversations,
        "strata": strata,
        "metric": claim.metric,
        "drafter": drafter,
        "value": test.gain.value,
        "reference": reference,
        "reference_value": test.gain.reference,
        "interval_method": ratio.method,
        "reason": test.reason,
        "budget": test.budget,
    }


_SIGNS: Final = {"higher": "above", "lower": "below", "at-least": "at least", "at-most": "at most"}


def _wanted(claim: Claim) -> str:
    """``above 1``, ``at most 0.1``, ``1 within 0.02``."""
    if claim.relation == "equal":
        return (
            f"{claim.threshold:g} within {claim.tolerance:g}" if claim.tolerance else f"{claim.threshold:g}"
        )
    return f"{_SIGNS[claim.relation]} {claim.threshold:g}"


def _told(strata: Strata) -> str:
    """``longctx, question, from 2,048 tokens``."""
    contexts = strata.contexts
    parts = [" and ".join(strata.suites), *(strata.kinds or ())]
    if contexts is not None and contexts.only:
        parts.append(f"at {' and '.join(f'{length:,}' for length in contexts.only)} tokens")
    elif contexts is not None:
        ends = [("from", contexts.from_), ("below", contexts.below)]
        parts.append(f"{' '.join(f'{word} {length:,}' for word, length in ends if length)} tokens")
    return ", ".join([*parts, *([] if strata.sampling == "greedy" else [strata.sampling])])


_DTYPES: Final = {
    **dict.fromkeys(("claim", "statement", "source", "verdict"), TEXT),
    **dict.fromkeys(("ratio", "ratio_low", "ratio_high"), FLOAT),
    "wanted": TEXT,
    "num_conversations": COUNT,
    **dict.fromkeys(("strata", "metric", "drafter"), TEXT),
    "value": FLOAT,
    "reference": TEXT,
    "reference_value": FLOAT,
    **dict.fromkeys(("interval_method", "reason", "budget"), TEXT),
}
