"""How sure a number is: bootstrap over documents.

Turns and steps of one conversation resemble each other, and so do prompts cut from one document at
several lengths. So documents are resampled, each with all of its conversations (a conversation of its
own text is a document of its own), and a number from few of them gets no interval at all rather than
a narrow one. All numbers are ratios of sums, so resampling documents is resampling their sums.
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
    "paired_gain_interval",
    "paired_ratio_interval",
    "ratio_interval",
]

CONFIDENCE: Final = 0.95
MIN_CONVERSATIONS: Final = 5
NUM_RESAMPLES: Final = 4999
MAX_RESAMPLED: Final = 1_000_000  # numbers held at once, so that many documents stay in memory
SEED: Final = 0

Verdict = Literal["higher", "lower", "no clear difference"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A number with its 95 % interval.

    Attributes:
        value: NaN if there is nothing to divide.
        low: Lower end, NaN without an interval.
        high: Upper end, NaN without an interval.
        num_conversations: Conversations it rests on; of one document there may be several.
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
    above: ArrayLike,
    below: ArrayLike,
    documents: Sequence[str] | None = None,
    *,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = SEED,
) -> Interval:
    """Interval of sum(above) / sum(below), documents resampled with all of their conversations.

    Args:
        above: One number a conversation.
        below: One number a conversation; those at zero say nothing and are left out.
        documents: Which document each conversation was cut from; None for one of its own each.
        num_resamples: Bootstrap samples.
        seed: The same seed gives the same interval.
    """
    return _bootstrap([above, below], documents, _ratio, [1], num_resamples, seed)


def paired_ratio_interval(
    above: ArrayLike,
    below: ArrayLike,
    reference_above: ArrayLike,
    reference_below: ArrayLike,
    documents: Sequence[str] | None = None,
    *,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = SEED,
) -> Interval:
    """Interval of one ratio of sums over another's, on the same conversations in the same order.

    Paired: each resampled document brings the sums of both sides along.

    Args:
        above: One number a conversation.
        below: One number a conversation.
        reference_above: The reference's.
        reference_below: The reference's.
        documents: Which document each conversation was cut from; None for one of its own each.
        num_resamples: Bootstrap samples.
        seed: The same seed gives the same interval.
    """
    samples = [above, below, reference_above, reference_below]
    return _bootstrap(samples, documents, _ratio_of_ratios, [1, 3], num_resamples, seed)


def paired_gain_interval(
    gain: Sequence[ArrayLike],
    than: Sequence[ArrayLike],
    documents: Sequence[str] | None = None,
    *,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = SEED,
) -> Interval:
    """Interval of one gain over another, a gain being one ratio of sums over another's.

    Args:
        gain: The four arguments of :func:`paired_ratio_interval`.
        than: Those of the other gain, in the same order of conversations.
        documents: Which document each conversation was cut from; None for one of its own each.
        num_resamples: Bootstrap samples.
        seed: The same seed gives the same interval.
    """
    return _bootstrap([*gain, *than], documents, _gain_of_gains, [1, 3, 5, 7], num_resamples, seed)


def _ratio(above: Floats, below: Floats, axis: int = -1) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(above.sum(axis=axis) / below.sum(axis=axis))


def _ratio_of_ratios(
    above: Floats, below: Floats, reference_above: Floats, reference_below: Floats, axis: int = -1
) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(_ratio(above, below, axis) / _ratio(reference_above, reference_below, axis))


def _gain_of_gains(*columns: Floats, axis: int = -1) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        a, b, c, d = (
            _ratio(above, below, axis) for above, below in zip(columns[::2], columns[1::2], strict=True)
        )
        return np.asarray((a / b) / (c / d))


def _bootstrap(
    samples: Sequence[ArrayLike],
    documents: Sequence[str] | None,
    statistic: Callable[..., Floats],
    divisors: Sequence[int],
    num_resamples: int,
    seed: int,
) -> Interval:
    columns = np.array([np.asarray(sample, dtype=np.float64) for sample in samples])
    counted = (columns[divisors] > 0).all(axis=0)
    columns = columns[:, counted]
    num_conversations = columns.shape[1]
    if num_conversations == 0:
        return Interval(math.nan, math.nan, math.nan, 0, "not measured")
    value = float(statistic(*columns))
    if not math.isfinite(value):
        return Interval(math.nan, math.nan, math.nan, num_conversations, "nothing to divide by")
    unit = "conversations"
    if documents is not None:
        columns = _summed(columns, np.asarray(documents, dtype=np.str_)[counted])
        unit = "conversations" if columns.shape[1] == num_conversations else "documents"
    if columns.shape[1] < MIN_CONVERSATIONS:
        reason = f"{columns.shape[1]} {unit}; an interval needs {MIN_CONVERSATIONS}"
        return Interval(value, math.nan, math.nan, num_conversations, reason)
    low, high = _ends(columns, statistic, num_resamples, seed)
    if not (math.isfinite(low) and math.isfinite(high)):
        reason = f"too few {unit} with something to divide by"
        return Interval(value, math.nan, math.nan, num_conversations, reason)
    return Interval(value, low, high, num_conversations)


def _summed(columns: Floats, documents: NDArray[np.str_]) -> Floats:
    """Sums of each document's conversations, documents in the order in which they first come."""
    _, first, place = np.unique(documents, return_index=True, return_inverse=True)
    sums = np.zeros((len(columns), len(first)))
    for row, column in zip(sums, columns, strict=True):
        np.add.at(row, place, column)
    return sums[:, np.argsort(first)]


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
