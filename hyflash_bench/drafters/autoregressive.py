"""Plain decoding, one token a step: the reference of every speedup."""

from __future__ import annotations

from torch import Tensor

from hyflash_bench.drafters.base import Draft, Drafter, Features, Held, MemoryKind
from hyflash_bench.drafters.sampler import Sampler

__all__ = ["Autoregressive"]


class Autoregressive(Drafter):
    """Proposes nothing, so every step commits the target's own token and no other."""

    name = "autoregressive"
    is_reference = True

    def reset(self) -> None:
        """See :meth:`Drafter.reset`."""

    def observe(self, tokens: Tensor, features: Features) -> None:
        """See :meth:`Drafter.observe`."""

    def draft(self, last_token: int, budget: int, sampler: Sampler, along: Tensor | None = None) -> Draft:
        """See :meth:`Drafter.draft`."""
        return Draft.empty()

    def memory(self) -> list[Held]:
        """See :meth:`Drafter.memory`."""
        return []

    def memory_formula(self, context_length: int) -> dict[MemoryKind, int]:
        """Nothing is held, whatever the length."""
        return {}
