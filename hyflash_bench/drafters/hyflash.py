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
from hyflash_bench.drafters.networks.copy_state import CopyState
from hyflash_bench.drafters.networks.recall import Recall
from hyflash_bench.drafters.trained import TrainedOptions
from hyflash_bench.errors import DrafterError

__all__ = ["FOREIGN_FILE", "HyFlash"]

FOREIGN_FILE = "foreign.safetensors"
"""Beside a checkpoint: what other documents left in the memory, ``state``, and in the recall,
``recall.keys`` and ``recall.named``; for ``memory=foreign``."""


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
        self._fixed_recall: Recall | None = None
        if self.options.memory == "own":
            return
        self._fixed = torch.zeros(state_shape(network.config))
        if network.copying is not None and network.copying.num_recalled:
            self._fixed_recall = Recall.of(network.copying)
        if self.options.memory == "foreign":
            size = network.config.draft_vocab_size
            _read_foreign(folder / FOREIGN_FILE, self._fixed, self._fixed_recall, size)

    def _new_state(self) -> ContextState:
        return WindowState(self.network, self._fixed, kv_dtype=self.options.kv_dtype)

    def _new_copies(self) -> CopyState | None:
        if self._fixed_recall is None:
            return super()._new_copies()
        return CopyState(self.network, self._fixed_recall, is_fixed=True)


def _read_foreign(path: Path, state: Tensor, recall: Recall | None, num_tokens: int) -> None:
    """Fill a state, and what is recalled if anything is, with what other documents left."""
    wanted = {"state": state}
    if recall is not None:
        wanted |= {"recall.keys": recall.keys, "recall.named": recall.named}
    try:
        stored = load_file(path)
        found = {name: stored[name] for name in wanted}
    except (OSError, SafetensorError, KeyError) as error:
        raise DrafterError(
            f"memory=foreign needs what another document left, tensors {', '.join(wanted)} in {path}, which "
            f"cannot be read: {error}. Take a checkpoint that has them, or memory=own or memory=zero."
        ) from None
    for name, own in wanted.items():
        if found[name].shape != own.shape:
            raise DrafterError(
                f"{path}: {name} is {list(found[name].shape)}, this network's is {list(own.shape)}. "
                "Use the file that was written with the checkpoint."
            )
        own.copy_(found[name])
        if not own.isfinite().all():
            raise DrafterError(
                f"{path}: {name} holds NaN or infinity. Use the file that was written with the checkpoint."
            )
    if recall is not None and not recall.is_of(num_tokens):
        raise DrafterError(
            f"{path}: recall.named leads out of the draft vocabulary of {num_tokens} tokens. "
            "Use the file that was written with the checkpoint."
        )
