"""Conditions on a comparison, for continuous integration: ``acceptance_length<0.97``.

    condition  = comparison, { "and", comparison }
    comparison = METRIC, [ ".", PART ], OPERATOR, NUMBER
    PART       = "ratio" | "low" | "high" | "value"
    OPERATOR   = "<" | "<=" | ">" | ">="

Without a part, the ratio to the reference is meant; ``low`` and ``high`` are the ends of its interval,
``value`` is the metric itself, in its own unit. Every comparison of a condition has to hold for the
same drafter on the same work.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from hyflash_bench.analysis.compare import comparable
from hyflash_bench.analysis.frames import TEXT, frame_of, identity_dtypes
from hyflash_bench.analysis.groups import WORK
from hyflash_bench.analysis.metrics import Metric
from hyflash_bench.errors import UnknownName, UsageError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Condition", "judge", "parse_condition"]

_COLUMNS: Final = MappingProxyType(
    {"ratio": "ratio", "low": "ratio_low", "high": "ratio_high", "value": "value"}
)
_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = MappingProxyType(
    {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
)
_COMPARISON: Final = re.compile(
    r"\s*(?P<metric>[a-z_]\w*)(?:\.(?P<part>\w+))?\s*(?P<sign><=|>=|<|>)\s*(?P<number>[^\s<>=]+)\s*"
)
_KEYS: Final = ("run", "drafter", *WORK, "reference_run", "reference")


@dataclass(frozen=True, slots=True)
class Comparison:
    """One number against another.

    Attributes:
        metric: Of the compared drafter.
        part: ``ratio``, ``low``, ``high`` or ``value``.
        sign: One of the operators.
        threshold: What it is held against.
    """

    metric: Metric
    part: str
    sign: str
    threshold: float

    def holds(self, row: Mapping[str, Any]) -> bool | None:
        """Whether it holds for a row of the comparison; None where there is no number."""
        number = float(row[_COLUMNS[self.part]])
        return None if math.isnan(number) else _OPERATORS[self.sign](number, self.threshold)


@dataclass(frozen=True, slots=True)
class Condition:
    """What must not hold.

    Attributes:
        text: As it was written.
        comparisons: All of which have to hold.
    """

    text: str
    comparisons: tuple[Comparison, ...]

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that it speaks about."""
        return tuple(dict.fromkeys(each.metric.name for each in self.comparisons))


def parse_condition(text: str) -> Condition:
    """Read a condition.

    Raises:
        UsageError: It is no condition, or of a metric that drafters are not compared by.
        UnknownName: No such metric or part.
    """
    parts = re.split(r"\s+and\s+", text.strip())
    return Condition(text, tuple(_comparison(part, text) for part in parts))


def judge(conditions: Sequence[Condition], frame: pd.DataFrame) -> pd.DataFrame:
    """Hold conditions against what :func:`hyflash_bench.analysis.compare.compare` found.

    Args:
        conditions: Any of them may hold.
        frame: The comparison, with all of their metrics.

    Returns:
        One row per condition, drafter and work: ``condition``, who is compared with whom on what,
        ``outcome`` (``holds``, ``does not hold``, ``lost``, ``not judged``) and ``numbers``, or why there
        are none. ``lost``: the reference has a number, and what is compared with it has none.
        ``not judged``: neither has.
    """
    by_name: dict[tuple[str, ...], dict[str, dict[str, Any]]] = {}
    for row in frame.to_dict("records"):
        key = tuple(str(row[name]) for name in _KEYS)
        by_name.setdefault(key, {})[row["metric"]] = {str(name): value for name, value in row.items()}
    rows = (_judged(condition, rows) for condition in conditions for rows in by_name.values())
    return frame_of(rows, _DTYPES)


def _comparison(part: str, text: str) -> Comparison:
    match = _COMPARISON.fullmatch(part)
    if match is None:
        raise UsageError(
            f"Condition {text!r}: {part.strip()!r} is no comparison. Write METRIC<NUMBER, for example "
            "'acceptance_length<0.97' or 'decode_tok_per_s<0.95 and acceptance_length.high<1'; "
            f"signs are {', '.join(_OPERATORS)}, parts of a metric .{', .'.join(_COLUMNS)}."
        )
    which = match["part"] or "ratio"
    if which not in _COLUMNS:
        raise UnknownName("part of a metric", which, _COLUMNS, f"In condition {text!r}.")
    try:
        threshold = float(match["number"])
    except ValueError:
        threshold = math.nan
    if not math.isfinite(threshold):
        raise UsageError(f"Condition {text!r}: {match['number']!r} is no number. Write for example 0.97.")
    return Comparison(comparable(match["metric"]), which, match["sign"], threshold)


def _judged(condition: Condition, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    found = [(each, rows[each.metric.name]) for each in condition.comparisons]
    held = [each.holds(row) for each, row in found]
    any_row = found[0][1]
    told = {"condition": condition.text, **{name: any_row[name] for name in _KEYS}}
    if False in held:
        return {**told, "outcome": "does not hold", "numbers": _numbers(found)}
    if None not in held:
        return {**told, "outcome": "holds", "numbers": _numbers(found)}
    missing = [row for (_, row), answer in zip(found, held, strict=True) if answer is None]
    is_lost = any(not math.isnan(row["reference_value"]) for row in missing)
    why = ", ".join(dict.fromkeys(f"{row['metric']}: {row['reason']}" for row in missing))
    return {**told, "outcome": "lost" if is_lost else "not judged", "numbers": why}


def _numbers(found: Sequence[tuple[Comparison, Mapping[str, Any]]]) -> str:
    named = [(f"{each.metric.name}.{each.part}", row[_COLUMNS[each.part]]) for each, row in found]
    return ", ".join(f"{name} {number:.4g}" for name, number in named)


_DTYPES: Final = {
    **dict.fromkeys(("condition", "run", "drafter"), TEXT),
    **identity_dtypes(WORK),
    **dict.fromkeys(("reference_run", "reference", "outcome", "numbers"), TEXT),
}
