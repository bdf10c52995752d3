"""Where a drafter stops paying: its simulated speedup at any context, from acceptance measured at some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hyflash_bench.memory.forms import DrafterForm
    from hyflash_bench.memory.simulate import Scene

    Numbers = NDArray[np.float64]

__all__ = ["StepGroup", "last_paying"]

_CONTEXTS = (16.0, 2.0**24)
"""Between these, contexts are searched for the one where a drafter stops paying."""
_POINTS = 129
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class StepGroup:
    """Steps of one group as numbers.

    Attributes:
        drafted: Tokens proposed by each.
        committed: Tokens that entered the text.
        context: Tokens before each.
        is_whole: Whether the token limit did not cut it short.
    """

    drafted: Numbers
    committed: Numbers
    context: Numbers
    is_whole: NDArray[np.bool_]

    def facts(self) -> dict[str, Any]:
        """What was measured of them, as columns."""
        length = self.acceptance_length
        return {"num_steps": len(self.drafted), "measured_acceptance_length": length}

    @property
    def acceptance_length(self) -> float | None:
        """Committed tokens a step; those that the token limit cut short are left out."""
        return float(self.committed[self.is_whole].mean()) if self.is_whole.any() else None


def last_paying(scene: Scene, form: DrafterForm, groups: Sequence[StepGroup]) -> int | None:
    """The context from which on plain decoding is faster, by the acceptance measured at some.

    Solved by refining the last interval in which paying ends.

    Args:
        scene: Target and device.
        form: Of the drafter.
        groups: Its steps, by context.

    Returns:
        None if that never comes or nothing was measured, 0 if the drafter pays nowhere.
    """
    gain = _Gain(scene, form, groups)
    if not gain.is_known:
        return None
    low, high = _CONTEXTS
    for _ in range(_ROUNDS):
        contexts = np.geomspace(low, high, _POINTS)
        pays = gain(contexts) > 1.0
        if pays[-1] or not pays.any():
            return None if pays[-1] else 0
        last = int(np.flatnonzero(pays)[-1])
        low, high = float(contexts[last]), float(contexts[last + 1])
    return int(low)


class _Gain:
    """Speedup of a drafter at any context, by what was measured at some."""

    def __init__(self, scene: Scene, form: DrafterForm, groups: Sequence[StepGroup]) -> None:
        self._scene, self._form = scene, form
        drafted = np.concatenate([group.drafted for group in groups])
        self._drafted, counts = np.unique(drafted, return_counts=True)
        self._weights = counts / len(drafted)
        known = sorted(
            (max(float(group.context.mean()), 1.0), group.acceptance_length)
            for group in groups
            if group.acceptance_length is not None
        )
        self.is_known = bool(known) and bool(drafted.any())
        self._at = [np.log(context) for context, _ in known]
        self._lengths = [length for _, length in known]

    def __call__(self, contexts: Numbers) -> Numbers:
        """Between two rungs acceptance goes with the logarithm of the context; beyond, it stays."""
        accepted = np.interp(np.log(contexts), self._at, self._lengths)
        needed = self._scene.break_even(
            self._form, self._drafted[:, None], contexts[None, :], accepted[None, :]
        )
        return np.asarray(accepted / (self._weights[:, None] * needed).sum(axis=0))
