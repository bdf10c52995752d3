"""What one drafter has over another in some strata of a run, and one gain over another gain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from hyflash_bench.analysis.intervals import (
    Interval,
    counted_ratio,
    paired_gain_interval,
    paired_ratio_interval,
)
from hyflash_bench.analysis.metric import CONVERSATION, DOCUMENT, Metric
from hyflash_bench.results.status import NUMBER_STATUSES, worst

if TYPE_CHECKING:
    import pandas as pd

    from hyflash_bench.results.reader import Run
    from hyflash_bench.spec.claims import Contexts, Strata

__all__ = ["Arm", "Gain", "Gains"]

_OF_STEPS: Final[Mapping[str, str]] = MappingProxyType(
    {"num_uncut_committed": "committed", "num_uncut_accepted": "accepted", "num_uncut_drafted": "drafted"}
)
"""Sums over the steps that no limit cut, and the column of the steps table each is made from."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One side of a comparison: a drafter by its label, on some strata."""

    drafter: str
    strata: Strata


@dataclass(frozen=True, slots=True)
class Gain:
    """One number over another.

    Attributes:
        ratio: The quotient with its interval, or the reason why there is none.
        value: Above the line.
        reference: Below the line.
    """

    ratio: Interval
    value: float
    reference: float


@dataclass(frozen=True)
class Gains:
    """The gains that a run can show, each side read off its tables once."""

    run: Run
    _known: dict[tuple[str, Arm], pd.DataFrame] = field(default_factory=dict, repr=False, compare=False)

    def problem(self, arm: Arm) -> str | None:
        """Why an arm has no number, or None: not run, or it failed somewhere in the strata."""
        if arm.drafter not in set(self.run.cells["drafter"]):
            return "not run"
        done = _within(self.run.conversations, arm)
        done = done[_in_rungs(done, arm.strata.contexts)]
        if done.empty:
            return "no conversation there"
        status = done["status"].mask(done["cell_status"] == "mismatch", "mismatch")
        failed = done[~status.isin(NUMBER_STATUSES)]
        if failed.empty:
            return None
        why = next(iter(failed["message"].dropna()), None)
        what = worst(status)
        return f"{what} on {len(failed)} of {len(done)} conversations{f' ({why})' if why else ''}"

    def num_pending(self, arm: Arm) -> int:
        """Conversations of the arm's suites that the run has not come to yet."""
        cells = self.run.cells
        mine = cells[_is_of(cells, arm)]
        return int(mine["num_pending"].fillna(0).sum())

    def between(self, metric: Metric, one: Arm, other: Arm) -> Gain:
        """A metric of one arm over that of another.

        On the same conversations where the strata agree, and on the same documents where they do not.
        """
        sides = [self._sums(metric, arm) for arm in (one, other)]
        if any(side.empty for side in sides):
            return _nothing("not measured")
        if metric.pooling == "max":
            paired = one.strata == other.strata
            return _counted(*(_shared(sides) if paired else sides), paired=paired)
        return _sampled([_shared(sides, CONVERSATION if one.strata == other.strata else (DOCUMENT,))])

    def over(self, metric: Metric, gain: tuple[Arm, Arm], than: tuple[Arm, Arm]) -> Gain:
        """A gain over another gain, paired as in :meth:`between`."""
        first, second = ([self._sums(metric, arm) for arm in pair] for pair in (gain, than))
        if any(side.empty for side in (*first, *second)):
            return _nothing("not measured")
        if gain[0].strata == than[0].strata:
            sides = _shared([*first, *second])
        else:
            sides = _shared([*_shared(first), *_shared(second)], (DOCUMENT,))
        return _sampled([sides[:2], sides[2:]])

    def _sums(self, metric: Metric, arm: Arm) -> pd.DataFrame:
        """Suite, item_id, document, ``above`` and ``below`` of each conversation of an arm."""
        key = (metric.name, arm)
        if key not in self._known:
            self._known[key] = metric.per_conversation(self._rows(metric, arm))
        return self._known[key]

    def _rows(self, metric: Metric, arm: Arm) -> pd.DataFrame:
        contexts = arm.strata.contexts
        if contexts is None or contexts.only:
            turns = _within(self.run.turns, arm)
            return turns[_in_rungs(turns, contexts)]
        rows = _within(self.run.steps if metric.above in _OF_STEPS else self.run.turns, arm)
        rows = rows[_between(rows["context_length"], contexts)]
        return _as_turns(rows) if metric.above in _OF_STEPS else rows


def _is_of(frame: pd.DataFrame, arm: Arm) -> pd.Series[bool]:
    """Rows of the drafter, suites and sampling, without a memory cap: a cap changes what is left to count."""
    strata = arm.strata
    same = (frame["drafter"] == arm.drafter) & (frame["sampling"] == strata.sampling)
    return same & frame["suite"].isin(strata.suites) & frame["memory_cap_bytes"].isna()


def _within(frame: pd.DataFrame, arm: Arm) -> pd.DataFrame:
    rows = frame[_is_of(frame, arm)]
    return rows if arm.strata.kinds is None else rows[rows["kind"].isin(arm.strata.kinds)]


def _in_rungs(frame: pd.DataFrame, contexts: Contexts | None) -> pd.Series[bool]:
    """Rows whose conversation was made for these lengths; one that grows may enter any range."""
    rungs = frame["context_rung"]
    if contexts is not None and contexts.only:
        return rungs.isin(contexts.only).astype("bool")
    return rungs.isna() | _between(rungs, contexts)


def _between(lengths: pd.Series[Any], contexts: Contexts | None) -> pd.Series[bool]:
    low, high = (contexts.from_, contexts.below) if contexts else (None, None)
    known = lengths.astype("float64")
    return known.ge(low or 0) & known.lt(high or math.inf)


def _as_turns(steps: pd.DataFrame) -> pd.DataFrame:
    """Steps with the sums that a turn of this one step would have."""
    counts = ~steps["limit_cut"].astype("bool")
    sums = {name: steps[column].where(counts, 0) for name, column in _OF_STEPS.items()}
    return steps.assign(num_uncut_steps=counts.astype("int64"), **sums)


def _shared(sides: Sequence[pd.DataFrame], by: Sequence[str] = CONVERSATION) -> list[pd.DataFrame]:
    """The sides on the conversations, or the documents, of which every one of them says something."""
    keys = list(by)
    common = sides[0][keys].drop_duplicates()
    for side in sides:
        common = common.merge(side.loc[side["below"] > 0, keys].drop_duplicates(), on=keys)
    return [common.merge(side, on=keys) for side in sides]


def _counted(one: pd.DataFrame, other: pd.DataFrame, *, paired: bool) -> Gain:
    """Bytes: nothing to resample."""
    ratio = counted_ratio(one["above"], other["above"], paired=paired)
    return Gain(ratio, one["above"].max(), other["above"].max())


def _sampled(pairs: Sequence[Sequence[pd.DataFrame]]) -> Gain:
    """A ratio of sums over another; of two pairs, the first's over the second's. Resampled by document."""
    sides = [side for pair in pairs for side in pair]
    if any(side.empty for side in sides):
        return _nothing("no conversation in common")
    columns, documents = _columns(sides)
    numbers = [
        _ratio(above.sum(), below.sum()) for above, below in zip(columns[::2], columns[1::2], strict=True)
    ]
    if len(pairs) == 1:
        value, reference = numbers
        interval = paired_ratio_interval(columns[0], columns[1], columns[2], columns[3], documents)
    else:
        value, reference = _ratio(*numbers[:2]), _ratio(*numbers[2:])
        interval = paired_gain_interval(columns[:4], columns[4:], documents)
    return Gain(replace(interval, num_conversations=min(map(len, sides))), value, reference)


def _columns(sides: Sequence[pd.DataFrame]) -> tuple[list[pd.Series[Any]], list[str]]:
    """``above`` and ``below`` of each side in turn, in one order, and the document of each row.

    Sides with other conversations meet as sums over the documents, which they share.
    """
    keys = [list(side[list(CONVERSATION)].itertuples(index=False)) for side in sides]
    if all(each == keys[0] for each in keys):
        return [side[name] for side in sides for name in ("above", "below")], list(sides[0][DOCUMENT])
    sums = [side.groupby(DOCUMENT)[["above", "below"]].sum() for side in sides]
    return [side[name] for side in sums for name in ("above", "below")], list(sums[0].index)


def _nothing(reason: str) -> Gain:
    return Gain(Interval.missing(reason), math.nan, math.nan)


def _ratio(above: float, below: float) -> float:
    return float(above) / float(below) if below else math.nan
