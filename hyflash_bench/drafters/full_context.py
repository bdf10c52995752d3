"""A block drafter that attends to the whole text, as DFlash does (2602.06036)."""

from __future__ import annotations

from pydantic import Field

from hyflash_bench.drafters.networks.block import BlockConfig
from hyflash_bench.drafters.networks.block_drafting import BlockDrafter
from hyflash_bench.drafters.networks.context_state import ContextState, GrowingState
from hyflash_bench.drafters.trained import TrainedOptions
from hyflash_bench.spec.base import MAX_ROWS

__all__ = ["FullContext"]


class FullContext(BlockDrafter):
    """Block drafter with attention over the whole verified text: its keys and values grow with it."""

    name = "full-context"
    wanted = "full attention without a memory"

    class Options(TrainedOptions):
        """What may be set."""

        window: int = Field(
            0, ge=0, le=MAX_ROWS, description="Attend to so many of the last rows only; 0 for all."
        )

    options: Options

    @classmethod
    def accepts(cls, config: BlockConfig) -> bool:
        """See :meth:`BlockDrafter.accepts`."""
        return config.attention == "full"

    def within(self, num_bytes: int) -> FullContext:
        """See :meth:`Drafter.within`."""
        return self._shrunk(num_bytes)

    def _new_state(self) -> ContextState:
        return GrowingState(self.network, self.options.window, kv_dtype=self.options.kv_dtype)
