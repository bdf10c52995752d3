"""A block drafter that attends to the whole text, as DFlash does (2602.06036)."""

from __future__ import annotations

from copy import copy

from pydantic import Field

from hyflash_bench.drafters.networks.block import BlockConfig
from hyflash_bench.drafters.networks.block_drafting import BlockDrafter
from hyflash_bench.drafters.networks.context_state import ContextState, GrowingState
from hyflash_bench.drafters.trained import TrainedOptions
from hyflash_bench.footprint import BLOCK_ROWS, rounded_up

__all__ = ["FullContext"]


class FullContext(BlockDrafter):
    """Block drafter with attention over the whole verified text: its keys and values grow with it."""

    name = "full-context"
    wanted = "full attention without a memory"

    class Options(TrainedOptions):
        """What may be set."""

        window: int = Field(0, ge=0, description="Attend to so many of the last rows only; 0 for all.")

    options: Options

    @classmethod
    def accepts(cls, config: BlockConfig) -> bool:
        """See :meth:`BlockDrafter.accepts`."""
        return config.attention == "full"

    def within(self, num_bytes: int) -> FullContext:
        """See :meth:`Drafter.within`; bytes come in blocks of rows, and a window fills its blocks."""

        def with_window(num_blocks: int) -> FullContext:
            # There is room for as many rows again as the window has, and for the slots of a draft.
            rows = (num_blocks * BLOCK_ROWS - self.network.config.num_slots) // 2
            window = min(rows, self.options.window or rows)
            shrunk = copy(self)
            shrunk.options = self.options.model_copy(update={"window": window})
            shrunk.reset()
            return shrunk

        def total(num_blocks: int) -> int:
            return sum(with_window(num_blocks).memory_formula(0).values())

        first = rounded_up(self.network.config.num_slots + 2, BLOCK_ROWS) // BLOCK_ROWS
        a_block = total(first + 1) - total(first)
        more = max(0, num_bytes - total(first)) // a_block if a_block else 0
        return with_window(first + more)

    def _new_state(self) -> ContextState:
        return GrowingState(self.network, self.options.window, kv_dtype=self.options.kv_dtype)
