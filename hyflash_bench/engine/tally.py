"""What a drafter achieved: the sums behind acceptance length and speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Tally"]


class _Steps(Protocol):
    """Of a turn, live or stored."""

    @property
    def committed(self) -> Sequence[int]:
        """Tokens of each step."""

    @property
    def limit_cut(self) -> Sequence[bool]:
        """Whether the token limit cut it short."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Pooled over turns; steps cut by the limit are left out of the acceptance length.

    Attributes:
        num_steps: Those that the token limit did not cut short.
        num_committed: Tokens committed in these.
        num_decoded: Tokens committed in all steps.
        decode_s: Seconds that all steps took, where they were timed.
    """

    num_steps: int = 0
    num_committed: int = 0
    num_decoded: int = 0
    decode_s: float = 0.0

    @classmethod
    def of(cls, steps: _Steps, decode_s: float | None) -> Tally:
        """Of one turn."""
        uncut = [tokens for tokens, cut in zip(steps.committed, steps.limit_cut, strict=True) if not cut]
        return cls(len(uncut), sum(uncut), sum(steps.committed), decode_s or 0.0)

    @property
    def acceptance_length(self) -> float | None:
        """Tokens per step; None without one."""
        return self.num_committed / self.num_steps if self.num_steps else None

    @property
    def tok_per_s(self) -> float | None:
        """Tokens per second; None where nothing was timed."""
        return self.num_decoded / self.decode_s if self.num_decoded and self.decode_s else None

    def __add__(self, other: Tally) -> Tally:
        """Of the turns of both."""
        return Tally(
            self.num_steps + other.num_steps,
            self.num_committed + other.num_committed,
            self.num_decoded + other.num_decoded,
            self.decode_s + other.decode_s,
        )

    def __str__(self) -> str:
        """As a line of a log."""
        if self.acceptance_length is None or self.tok_per_s is None:
            return "no steps"
        return f"acceptance length {self.acceptance_length:.3f}, {self.tok_per_s:.1f} tok/s"
