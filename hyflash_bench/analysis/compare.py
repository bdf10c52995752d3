"""Like with like: drafters within a run, a drafter in several runs, any drafter with any other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from hyflash_bench.analysis.frames import COUNT, FLOAT, TEXT, frame_of, identity_dtypes
from hyflash_bench.analysis.groups import GROUP, WORK, Groups, Key
from hyflash_bench.analysis.intervals import Interval, holm, verdicts
from hyflash_bench.analysis.metrics import METRICS, Metric, metric_named
from hyflash_bench.analysis.sides import Side, Source, sides_of, unlike
from hyflash_bench.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DEFAULT_METRICS", "comparable", "compare"]

DEFAULT_METRICS: Final = ("acceptance_length", "decode_tok_per_s", "drafter_bytes")


def compare(
    first: Source,
    *others: Source,
    metric: str | Sequence[str] | None = None,
    allow_different: bool = False,
) -> pd.DataFrame:
    """Compare runs, or drafters within runs, with the first of them, on the conversations they share.

    One run alone: its drafters with plain decoding. ``RUN::drafter`` alone: the run's other drafters
    with that one. A run after a run: every drafter with the one of the same label. A side that names
    no drafter, after a first that does: all of its drafters with that one.

    Args:
        first: A run, its folder, its name or ``RUN::drafter``; or a pair of run and label. All
            others are compared with it.
        others: The same.
        metric: One or several: ratios such as acceptance_length or decode_tok_per_s (whose ratio is
            the speedup), and counts such as drafter_bytes. By default these three where they can be
            compared; the others stand with their reason in ``frame.attrs["left_out"]``.
        allow_different: Compare in spite of another target, precision, suite version, sampling, cap
            or limit or, for times, another machine; ``differences`` says what differs.

    Returns:
        One row per metric, drafter, suite, sampling and memory cap: ``status``, ``value``,
        ``reference`` and ``reference_value``, their ``ratio`` with ``ratio_low``, ``ratio_high`` and
        ``interval_method``, ``p_value`` and ``p_holm`` (corrected for the rows of the metric),
        ``verdict`` (higher, lower, no clear difference), ``num_conversations`` in common, ``num_in_run``
        and ``num_in_reference`` of each side, ``reason`` why a number or an interval is missing,
        ``differences``. A row that has nothing to be compared with is there too, with the reason.

    Raises:
        UsageError: The sides are not alike, or share no work; the message names what differs.
        UnknownName: No such run, metric or drafter.
    """
    asked = [comparable(name) for name in ([metric] if isinstance(metric, str) else metric or ())]
    sides = sides_of([first, *others])
    pairs = list(_pairs(sides, allow_different))
    chosen, left_out = (asked, {}) if asked else _by_default(pairs)
    found = list(dict.fromkeys(each for pair in pairs for one in chosen for each in pair.differences(one)))
    if found and not allow_different:
        names = " and ".join(dict.fromkeys(side.name for side in sides))
        raise UsageError(
            f"{names} are not alike: {'; '.join(found)}. Run them under the same conditions, or add "
            "--allow-different (allow_different=True) to compare them all the same."
        )
    frame = frame_of((row for one in chosen for row in _rows(pairs, one)), _DTYPES)
    frame.attrs["left_out"] = left_out
    return frame


def comparable(name: str) -> Metric:
    """A metric that drafters can be compared by.

    Raises:
        UnknownName: No such metric.
        UsageError: It is no ratio and no count of bytes.
    """
    metric = metric_named(name)
    if not metric.has_interval and metric.pooling != "max":
        known = ", ".join(
            each.name for each in METRICS.values() if each.has_interval or each.pooling == "max"
        )
        raise UsageError(f"Metric {name!r} does not compare drafters. Choose one of: {known}.")
    return metric


@dataclass(frozen=True, eq=False)
class _Pair:
    """A row of one side and the row it is compared with; either may be missing, but not both."""

    ours: Side
    theirs: Side
    row: int | None
    other_row: int | None
    _found: dict[bool, list[str]] = field(default_factory=dict, repr=False)

    def differences(self, metric: Metric) -> list[str]:
        """What makes the two unlike for a metric."""
        if self.row is None or self.other_row is None:
            return []
        timed = metric.rows == "live"
        if timed not in self._found:
            self._found[timed] = unlike(self.ours, self.row, self.theirs, self.other_row, timed=timed)
        return self._found[timed]

    def ratio(self, metric: Metric) -> Interval:
        """The metric of one over that of the other."""
        if self.row is None or self.other_row is None:
            side = self.ours if self.row is None else self.theirs
            return Interval.missing(f"not run in {side.name}")
        return self.ours.groups.paired(metric, self.row, self.theirs.groups, self.other_row)

    def values(self, metric: Metric) -> tuple[float | None, float | None]:
        """The metric of each."""
        return _value(self.ours.groups, metric, self.row), _value(self.theirs.groups, metric, self.other_row)


def _pairs(sides: Sequence[Side], allow_different: bool) -> Iterator[_Pair]:
    """Every row that is compared, and with which.

    Raises:
        UsageError: Two sides share no work.
    """
    first, *others = sides
    if not others:
        first, others = _within(first)
    for other in others:
        found = list(_between(first, other, allow_different))
        if not any(pair.row is not None and pair.other_row is not None for pair in found):
            raise UsageError(
                f"{first.name} and {other.name} share no work: one has {first.work}, the other "
                f"{other.work}. Compare runs of the same suite, sampling, memory cap and drafters, or "
                "name a drafter of each: RUN::drafter."
            )
        yield from found


def _within(side: Side) -> tuple[Side, list[Side]]:
    """The reference of a run that stands alone, and what is compared with it."""
    if side.drafter is not None:
        return side, [Side(side.groups)]
    cells = side.run.cells
    plain = [str(label) for label in cells.loc[cells["is_reference"], "drafter"].unique()]
    if not plain:
        known = ", ".join(sorted(cells["drafter"].unique()))
        raise UsageError(
            f"Run {side.run.run_id} has no plain decoding to compare with. "
            f"Name one of its drafters as RUN::drafter: {known}."
        )
    return Side(side.groups, plain[0]), [side]


def _between(first: Side, other: Side, allow_different: bool) -> Iterator[_Pair]:
    places = dict(zip(first.groups.keys, range(len(first.groups.table)), strict=True))
    is_within = other.groups is first.groups and first.drafter is not None and other.drafter is None
    met = set()
    for row in other.rows:
        drafter, *work = other.groups.keys[row]
        wanted = first.drafter or drafter
        place = places.get((wanted, *work))
        if place is None and allow_different:
            place = _nearest(places, (wanted, *work))
        if is_within and place == row:
            continue
        met.add(place)
        yield _Pair(other, first, row, place)
    if first.drafter is None and other.drafter is None:
        yield from (_Pair(other, first, None, row) for row in first.rows if row not in met)


def _nearest(places: Mapping[Key, int], wanted: Key) -> int | None:
    """The one work of a drafter on a suite that has most in common with what is wanted."""
    shares = {row: sum(map(str.__eq__, key, wanted)) for key, row in places.items() if key[:2] == wanted[:2]}
    best = [row for row, share in shares.items() if share == max(shares.values())]
    return best[0] if len(best) == 1 else None


def _by_default(pairs: Sequence[_Pair]) -> tuple[list[Metric], dict[str, str]]:
    """The default metrics that can be compared, and why the others cannot."""
    chosen, left_out = [], {}
    # Another machine alone leaves the times out; what makes all metrics unlike is refused as a whole.
    are_alike = not any(pair.differences(METRICS["acceptance_length"]) for pair in pairs)
    for metric in map(METRICS.__getitem__, DEFAULT_METRICS):
        found = next(filter(None, (pair.differences(metric) for pair in pairs)), None)
        if all(value is None for pair in pairs for value in pair.values(metric)):
            left_out[metric.name] = "not measured"
        elif found and are_alike:
            left_out[metric.name] = "; ".join(found)
        else:
            chosen.append(metric)
    return chosen, left_out


def _rows(pairs: Sequence[_Pair], metric: Metric) -> Iterator[dict[str, Any]]:
    ratios = [pair.ratio(metric) for pair in pairs]
    corrected = holm([ratio.p_value for ratio in ratios])
    for pair, ratio, p_holm, verdict in zip(pairs, ratios, corrected, verdicts(ratios), strict=True):
        value, reference_value = pair.values(metric)
        yield {
            "metric": metric.name,
            **_named(pair),
            "value": value,
            "reference_value": reference_value,
            "ratio": ratio.value,
            "ratio_low": ratio.low,
            "ratio_high": ratio.high,
            "interval_method": ratio.method,
            "p_value": ratio.p_value,
            "p_holm": p_holm,
            "verdict": verdict,
            "num_conversations": ratio.num_conversations,
            "num_in_run": 0 if pair.row is None else pair.ours.groups.num_measured(metric, pair.row),
            "num_in_reference": 0
            if pair.other_row is None
            else pair.theirs.groups.num_measured(metric, pair.other_row),
            "reason": ratio.reason,
            "differences": "; ".join(pair.differences(metric)) or None,
        }


def _named(pair: _Pair) -> dict[str, Any]:
    """Who is compared with whom, on which work."""
    ours, theirs = (
        None if row is None else side.groups.table.iloc[row]
        for side, row in ((pair.ours, pair.row), (pair.theirs, pair.other_row))
    )
    named = theirs if ours is None else ours
    assert named is not None
    return {
        "run": pair.ours.run.run_id,
        **{name: named[name] for name in GROUP},
        "status": "not run" if ours is None else ours["status"],
        "reference_run": pair.theirs.run.run_id,
        "reference": (pair.theirs.drafter or named["drafter"]) if theirs is None else theirs["drafter"],
    }


def _value(groups: Groups, metric: Metric, row: int | None) -> float | None:
    import pandas as pd

    value = None if row is None else groups.values(metric).iloc[row]
    return None if pd.isna(value) else float(value)


_DTYPES: Final = {
    **dict.fromkeys(("metric", "run", "drafter"), TEXT),
    **identity_dtypes(WORK),
    **dict.fromkeys(("status", "reference_run", "reference"), TEXT),
    **dict.fromkeys(("value", "reference_value", "ratio", "ratio_low", "ratio_high"), FLOAT),
    "interval_method": TEXT,
    **dict.fromkeys(("p_value", "p_holm"), FLOAT),
    "verdict": TEXT,
    **dict.fromkeys(("num_conversations", "num_in_run", "num_in_reference"), COUNT),
    **dict.fromkeys(("reason", "differences"), TEXT),
}
