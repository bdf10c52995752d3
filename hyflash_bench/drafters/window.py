"""A block drafter with a window of attention and nothing else: the control without memory."""

from __future__ import annotations

from hyflash_bench.drafters.networks.block import BlockConfig
from hyflash_bench.drafters.networks.block_drafting import BlockDrafter

__all__ = ["Window"]


class Window(BlockDrafter):
    """HyFlash without its memory: attends to the last rows only, and forgets what is older."""

    name = "window"
    wanted = "windowed attention without a memory"

    @classmethod
    def accepts(cls, config: BlockConfig) -> bool:
        """See :meth:`BlockDrafter.accepts`."""
        return config.attention == "window" and config.memory == "none"
