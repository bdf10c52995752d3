"""HyFlash: a block drafter with a window and a recurrent memory (2611.07263)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
from pydantic import Field
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from hyflash_bench.drafters.formats.load import Network
from hyflash_bench.drafters.networks.block import BlockConfig, BlockNetwork
from hyflash_bench.drafters.networks.block_drafting import BlockDrafter
from hyflash_bench.drafters.networks.context_state import ContextState, WindowState, state_shape
from hyflash_bench.drafters.trained import TrainedOptions
from hyflash_bench.errors import DrafterError

__all__ = ["FOREIGN_FILE", "HyFlash"]

FOREIGN_FILE = "foreign.safetensors"
"""Beside a checkpoint: tensor ``state`` of another document, for ``memory=foreign``."""


class HyFlash(BlockDrafter):
    """Block drafter with a short window of attention and a memory of fixed size for all before it.

    A re-implementation from the abstract of arXiv 2611.07263; its authors have published no code.
    All tokens of a draft come from one pass. Its bytes do not depend on the length of the context.
    """

    name = "hyflash"
    wanted = "windowed attention with a memory"

    class Options(TrainedOptions):
        """What may be set."""

        memory: Literal["own", "zero", "foreign"] = Field(
            "own", description="What slots read: the text's own memory, or for control nothing or another's."
        )

    options: Options

    @classmethod
    def accepts(cls, config: BlockConfig) -> bool:
        """See :meth:`BlockDrafter.accepts`."""
        return config.attention == "window" and config.memory != "none"

    def _adopt(self, network: Network, folder: Path) -> None:
        super()._adopt(network, folder)
        assert isinstance(network, BlockNetwork)
        self._fixed: Tensor | None = None
        if self.options.memory == "zero":
            self._fixed = torch.zeros(state_shape(network.config))
        elif self.options.memory == "foreign":
            self._fixed = _read_foreign(folder / FOREIGN_FILE, network.config)

    def _new_state(self) -> ContextState:
        return WindowState(self.network, self._fixed, kv_dtype=self.options.kv_dtype)


def _read_foreign(path: Path, config: BlockConfig) -> Tensor:
    try:
        state = load_file(path)["state"]
    except (OSError, SafetensorError, KeyError) as error:
        raise DrafterError(
            f"memory=foreign needs another document's state, tensor 'state' in {path}, which cannot be "
            f"read: {error}. Take a checkpoint that has one, or memory=own or memory=zero."
        ) from None
    if state.shape != state_shape(config):
        raise DrafterError(
            f"{path}: state is {list(state.shape)}, this network's is {list(state_shape(config))}. "
            "Use the file that was written with the checkpoint."
        )
    return state
