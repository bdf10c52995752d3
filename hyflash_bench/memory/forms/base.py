"""What a drafter on paper says of itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, NamedTuple

from hyflash_bench.memory.shapes import KVDtype, PassCost

if TYPE_CHECKING:
    from hyflash_bench.memory.shapes import Amount

__all__ = ["NOTHING", "DrafterForm", "Kind", "Precision", "at_most", "is_exact"]

Kind = Literal["weights", "kv", "state", "buffer"]

NOTHING = PassCost(0.0, 0.0, 0.0)
"""The cost of what is not done."""


class Precision(NamedTuple):
    """Of a drafter's network: bytes of a number, and how keys and values are kept."""

    element_bytes: int
    kv_dtype: KVDtype


class DrafterForm(ABC):
    """A drafter on paper.

    Attributes:
        most_drafted: Most tokens that it proposes in one step, if it may.
        num_features: Rows of the target's hidden size that it reads of each token.
        note: What the numbers rest on where that is not a checkpoint; empty otherwise.
    """

    def __init__(self, most_drafted: int, note: str = "", num_features: int = 0) -> None:
        self.most_drafted = most_drafted
        self.note = note
        self.num_features = num_features

    @abstractmethod
    def held(self, context_length: int) -> dict[Kind, int]:
        """Bytes by kind after so many tokens; what is not held may be left out."""

    @abstractmethod
    def draft_cost(self, num_drafted: Amount, context_length: Amount) -> PassCost:
        """To propose so many tokens."""

    @abstractmethod
    def observe_cost(self, num_tokens: Amount, context_length: Amount) -> PassCost:
        """To take in so many verified tokens."""


def is_exact(form: DrafterForm) -> bool:
    """Whether what is held follows from a checkpoint, or is nothing; no estimate and no plan."""
    return not form.note


def at_most(value: Amount, limit: float) -> Amount:
    """The value, or the limit where it is beyond."""
    if isinstance(value, int | float):
        return min(value, limit)
    return value.clip(max=limit)
