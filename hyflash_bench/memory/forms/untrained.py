"""Drafters that are not trained for a target: copying from the text, and a smaller model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hyflash_bench import footprint
from hyflash_bench.memory.forms.base import NOTHING, DrafterForm, Kind, at_most
from hyflash_bench.memory.shapes import KVDtype, ModelShape, PassCost, WeightBits

if TYPE_CHECKING:
    from hyflash_bench.memory.shapes import Amount

__all__ = ["PlainForm", "RecentForm", "SmallModelForm"]

_SMALL_MODEL_ROWS = 512
"""Tokens by which a small model's cache grows."""
_RECENT_OBSERVE = 6
"""Operators of torch in one call, as its dispatcher counts them."""


class PlainForm(DrafterForm):
    """No network: what it does on the processor is known where a device's profile says it.

    Args:
        name: Of the routine in profiles; empty where there is nothing to do.
    """

    def __init__(self, most_drafted: int, bytes_per_token: int, note: str = "", name: str = "") -> None:
        super().__init__(most_drafted, note)
        self._bytes_per_token, self._name = bytes_per_token, name

    def held(self, context_length: int) -> dict[Kind, int]:
        """See :meth:`DrafterForm.held`."""
        return {"buffer": self._bytes_per_token * context_length}

    def draft_cost(self, num_drafted: Amount, context_length: Amount) -> PassCost:
        """See :meth:`DrafterForm.draft_cost`."""
        return PassCost(0.0, 0.0, routine=f"{self._name}.draft") if self._name else NOTHING

    def observe_cost(self, num_tokens: Amount, context_length: Amount) -> PassCost:
        """See :meth:`DrafterForm.observe_cost`."""
        return PassCost(0.0, 0.0, num_tokens, routine=f"{self._name}.observe") if self._name else NOTHING


class RecentForm(DrafterForm):
    """The last tokens of the text, looked through in each draft.

    Args:
        window: Most tokens held.
        num_operators: Of one draft, and of each token drafted.
    """

    def __init__(self, most_drafted: int, window: int, num_operators: tuple[int, int]) -> None:
        super().__init__(most_drafted)
        self._window, (self._once, self._each) = window, num_operators

    def held(self, context_length: int) -> dict[Kind, int]:
        """See :meth:`DrafterForm.held`."""
        return {**footprint.recent_held(context_length, self._window)}

    def draft_cost(self, num_drafted: Amount, context_length: Amount) -> PassCost:
        """See :meth:`DrafterForm.draft_cost`."""
        operators = self._once + self._each * num_drafted
        looked_at = footprint.TOKEN_BYTES * at_most(context_length, self._window)
        return PassCost(0.0, operators * looked_at, num_operators=operators)

    def observe_cost(self, num_tokens: Amount, context_length: Amount) -> PassCost:
        """See :meth:`DrafterForm.observe_cost`."""
        return PassCost(0.0, footprint.TOKEN_BYTES * num_tokens, num_operators=_RECENT_OBSERVE)


class SmallModelForm(DrafterForm):
    """Another model with a cache of its own."""

    def __init__(self, most_drafted: int, shape: ModelShape, bits: WeightBits, kv: KVDtype) -> None:
        super().__init__(most_drafted, "sizes of its configuration; a loaded one holds a few tables besides")
        self._shape, self._bits, self._kv = shape, bits, kv

    def held(self, context_length: int) -> dict[Kind, int]:
        """See :meth:`DrafterForm.held`."""
        rows = footprint.rounded_up(context_length + self.most_drafted, _SMALL_MODEL_ROWS)
        return {
            "weights": self._shape.weight_bytes(self._bits),
            "kv": rows * self._shape.kv_bytes_per_token(self._kv),
        }

    def draft_cost(self, num_drafted: Amount, context_length: Amount) -> PassCost:
        """See :meth:`DrafterForm.draft_cost`."""
        cost = self._shape.pass_cost(1, context_length, bits=self._bits, kv_dtype=self._kv)
        return replace(cost, num_passes=num_drafted)

    def observe_cost(self, num_tokens: Amount, context_length: Amount) -> PassCost:
        """See :meth:`DrafterForm.observe_cost`."""
        # Verified tokens that it drafted itself are in its cache already.
        return NOTHING
