"""How sure a number is: bootstrap over conversations.

Turns and steps of one conversation resemble each other, so conversations are resampled, and a
number from few of them gets no interval at all rather than a narrow one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

__all__ = [
    "CONFIDENCE",
    "MIN_CONVERSATIONS",
    "Interval",
    "Verdict",
    "paired_ratio_interval",
    "ratio_interval",
]

CONFIDENCE: Final = 0.95
MIN_CONVERSATIONS: Final = 5
NUM_RESAMPLES: Final = 4999
MAX_RESAMPLED: Final = 1_000_000  # numbers held at once, so that many conversations stay in memory
SEED: Final = 0

Verdict = Literal["higher", "lower", "no clear difference"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A number with its 95 % interval.

    Attributes:
        value: NaN if there is nothing to divide.
        low: Lower end, NaN without an interval.
        high: Upper end, NaN without an interval.
        num_conversations: Conversations it rests on.
        reason: Why there is no interval, or None.
    """

    value: float
    low: float
    high: float
    num_conversations: int
    reason: str | None = None

    def verdict(self, same: float = 1.0) -> Verdict | None:
        """Where the whole interval lies, seen from ``same``; None without an interval."""
        if self.reason is not None:
            return None
        if self.low > same:
            return "higher"
        return "lower" if self.high < same else "no clear difference"


def ratio_interval(
    above: ArrayLike, below: ArrayLike, *, num_resamples: int = NUM_RESAMPLES, seed: int = SEED
) -> Interval:
    """Interval of sum(above) / sum(below).

    Args:
        above: One number a conversation.
        below: One number a conversation; those at zero say nothing and are left out.
        num_resamples: Bootstrap samples.
        seed: The same seed gives the same interval.
    """
    return _bootstrap([above, below], _ratio, [1], num_resamples, seed)


def paired_ratio_interval(
    above: ArrayLike,
    below: ArrayLike,
    reference_above: ArrayLike,
    reference_below: ArrayLike,
    *,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = SEED,
) -> Interval:
    """Interval of one ratio of sums over another's, on the same conversations in the same order.

    Args:
        above: One number a conversation.
        below: One number a conversation.
        reference_above: The reference's.
        reference_below: The reference's.
        num_resamples: Bootstrap samples.
        seed: The same seed gives the same interval.
    """
    samples = [above, below, reference_above, reference_below]
    return _bootstrap(samples, _ratio_of_ratios, [1, 3], num_resamples, seed)


def _ratio(above: Floats, below: Floats, axis: int = -1) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(above.sum(axis=axis) / below.sum(axis=axis))


def _ratio_of_ratios(
    above: Floats, below: Floats, reference_above: Floats, reference_below: Floats, axis: int = -1
) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(_ratio(above, below, axis) / _ratio(reference_above, reference_below, axis))


def _bootstrap(
    samples: Sequence[ArrayLike],
    statistic: Callable[..., Floats],
    divisors: Sequence[int],
    num_resamples: int,
    seed: int,
) -> Interval:
    columns = np.array([np.asarray(sample, dtype=np.float64) for sample in samples])
    columns = columns[:, (columns[divisors] > 0).all(axis=0)]
    num_conversations = columns.shape[1]
    if num_conversations == 0:
        return Interval(math.nan, math.nan, math.nan, 0, "not measured")
    value = float(statistic(*columns))
    if not math.isfinite(value):
        return Interval(math.nan, math.nan, math.nan, num_conversations, "nothing to divide by")
    if num_conversations < MIN_CONVERSATIONS:
        reason = f"{num_conversations} conversations; an interval needs {MIN_CONVERSATIONS}"
        return Interval(value, math.nan, math.nan, num_conversations, reason)
    low, high = _ends(columns, statistic, num_resamples, seed)
    if not (math.isfinite(low) and math.isfinite(high)):
        reason = "too few conversations with something to divide by"
        return Interval(value, math.nan, math.nan, num_conversations, reason)
    return Interval(value, low, high, num_conversations)


def _ends(
    columns: Floats, statistic: Callable[..., Floats], num_resamples: int, seed: int
) -> tuple[float, float]:
    """BCa where it can be had; it cannot when resamples do not vary, and percentiles then can."""
    from scipy import stats

    def ends(method: str) -> tuple[float, float]:
        done: Any = stats.bootstrap(
            tuple(columns),
            statistic,
            paired=True,
            vectorized=True,
            confidence_level=CONFIDENCE,
            n_resamples=num_resamples,
            batch=max(1, MAX_RESAMPLED // columns.shape[1]),
            method=method,
            rng=np.random.default_rng(seed),
        )
        interval = done.confidence_interval
        return float(interval.low), float(interval.high)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it warns of is seen in the result and handled below
        low, high = ends("BCa")
        if math.isfinite(low) and math.isfinite(high):
            return low, high
        return ends("percentile")
