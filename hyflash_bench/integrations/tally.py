"""What a drafter achieved on a task."""

from __future__ import annotations

from dataclasses import dataclass

from hyflash_bench.engine.steps import TurnResult

__all__ = ["Tally"]


@dataclass(slots=True)
class Tally:
    """Pooled over the task's prompts; steps cut by the limit are left out of the acceptance length."""

    num_steps: int = 0
    num_committed: int = 0
    num_decoded: int = 0
    decode_s: float = 0.0

    def add(self, result: TurnResult) -> None:
        """Count a reply."""
        steps = result.steps
        uncut = [tokens for tokens, cut in zip(steps.committed, steps.limit_cut, strict=True) if not cut]
        self.num_steps += len(uncut)
        self.num_committed += sum(uncut)
        self.num_decoded += sum(steps.committed)
        self.decode_s += result.decode_s or 0.0

    def __str__(self) -> str:
        """As a line of a log."""
        if not self.num_steps or not self.decode_s:
            return "no steps"
        return (
            f"acceptance length {self.num_committed / self.num_steps:.3f}, "
            f"{self.num_decoded / self.decode_s:.1f} tok/s"
        )
