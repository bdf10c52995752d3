"""Whether a live output is the target's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

__all__ = ["GAP_TOLERANCE", "Judgement", "judge"]

GAP_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.25, torch.float16: 0.05}
"""Logit gap under which rounding alone may swap the two likeliest tokens, by the target's dtype.

Passes over one and over several rows sum in different orders; measured differences of logits stay
an order of magnitude below these figures.
"""


@dataclass(frozen=True, slots=True)
class Judgement:
    """How live output compares with the trace, and where they part."""

    verdict: Literal["identical", "near_tie", "mismatch"]
    position: int | None = None
    gap: float | None = None


def judge(live: Sequence[int], traced: Sequence[int], gaps: Sequence[float], dtype: torch.dtype) -> Judgement:
    """Compare a greedy live reply with the trace token by token.

    Args:
        live: Reply of the live loop.
        traced: Reply of the trace.
        gaps: Top-two logit gap at each token of the trace.
        dtype: Precision of the target.
    """
    shared = min(len(live), len(traced))
    position = next((i for i in range(shared) if live[i] != traced[i]), None)
    if position is None:
        if len(live) == len(traced):
            return Judgement("identical")
        return Judgement("mismatch", shared, None)
    gap = float(gaps[position])
    near = gap < GAP_TOLERANCE[dtype]
    return Judgement("near_tie" if near else "mismatch", position, gap)
