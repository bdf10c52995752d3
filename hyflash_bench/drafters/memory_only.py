"""A block drafter with a memory and no window of attention: the control for what the window adds."""

from __future__ import annotations

from hyflash_bench.drafters.networks.block import BlockConfig
from hyflash_bench.drafters.networks.block_drafting import BlockDrafter

__all__ = ["MemoryOnly"]


class MemoryOnly(BlockDrafter):
    """HyFlash without its window: all whole chunks of the text are in the memory.

    Rows enter the memory a chunk at a time. The fewer than C rows that still wait for their chunk
    to fill are attended to, since they would be lost otherwise.
    """

    name = "memory-only"
    wanted = "a memory without windowed attention (attention=none)"

    @classmethod
    def accepts(cls, config: BlockConfig) -> bool:
        """See :meth:`BlockDrafter.accepts`."""
        return config.attention == "none"
