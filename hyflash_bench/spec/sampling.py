"""How the target's next token is chosen."""

from __future__ import annotations

from pydantic import Field

from hyflash_bench.spec.base import MAX_COUNT, Spec

__all__ = ["GREEDY", "Sampling"]


class Sampling(Spec):
    """Temperature 0 is greedy; otherwise top-k, then top-p, then renormalise."""

    temperature: float = Field(0.0, ge=0.0, le=10.0, description="0 is greedy.")
    top_k: int | None = Field(
        None, ge=1, le=MAX_COUNT, description="Keep the k likeliest tokens; null keeps all."
    )
    top_p: float | None = Field(
        None, gt=0.0, le=1.0, description="Keep the smallest set of tokens with this mass; null keeps all."
    )

    @property
    def is_greedy(self) -> bool:
        """Whether every token is the likeliest one."""
        return self.temperature == 0.0

    @property
    def label(self) -> str:
        """Short name for tables: ``greedy`` or ``T=0.7 top_p=0.95``."""
        if self.is_greedy:
            return "greedy"
        parts = [f"T={self.temperature:g}"]
        if self.top_k is not None:
            parts.append(f"top_k={self.top_k}")
        if self.top_p is not None:
            parts.append(f"top_p={self.top_p:g}")
        return " ".join(parts)


GREEDY = Sampling()
