"""What drafters with trained weights have in common: a checkpoint, and its bytes."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from hyflash_bench.drafters.base import Drafter, DrafterOptions, Held, LoadContext, MemoryKind, Requires
from hyflash_bench.drafters.networks.checkpoint import find_checkpoint, load_network
from hyflash_bench.drafters.networks.network import DraftNetwork
from hyflash_bench.errors import DrafterError

__all__ = ["TrainedDrafter", "TrainedOptions"]


class TrainedOptions(DrafterOptions):
    """Options of every trained drafter."""

    checkpoint: str = Field(
        "", description="Baseline by name, or folder of a checkpoint; empty for the shipped default."
    )
    num_draft_tokens: int = Field(
        0, ge=0, description="Most tokens to propose in a step; 0 for as many as it was trained for."
    )


class TrainedDrafter(Drafter):
    """A drafter whose network is read from a checkpoint."""

    Options = TrainedOptions
    network_kind: ClassVar[str]

    options: TrainedOptions
    network: DraftNetwork

    def load(self, context: LoadContext) -> None:
        """See :meth:`Drafter.load`."""
        folder = find_checkpoint(self.name, self.options.checkpoint, context)
        network = load_network(folder, context)
        if network.kind != self.network_kind:
            raise DrafterError(
                f"{folder} holds a network of kind {network.kind}; {self.name} needs {self.network_kind}."
            )
        self._adopt(network, folder)
        self.network = network
        self.reset()

    def _adopt(self, network: DraftNetwork, folder: Path) -> None:
        """Refuse a network that is not this drafter's, read what else it needs from its folder."""

    @property
    def requires(self) -> Requires:
        """See :attr:`Drafter.requires`."""
        return self.network.requires

    def _limit(self, budget: int) -> int:
        """Tokens to propose now."""
        slots = self.network.config.num_slots
        return min(budget, self.options.num_draft_tokens or slots, slots)

    def _weights(self) -> list[Held]:
        """Parameters, the rows of the head and the ids; the target's embedding is the target's."""
        network = self.network
        held = [*network.parameters(), *network.buffers()]
        return [*(Held("weights", tensor) for tensor in held), *self._lent()]

    def _lent(self) -> list[Held]:
        return [Held("weights", tensor, shared=True) for tensor in self.network._embedding]

    def _weight_bytes(self) -> int:
        tensors = [*self.network.parameters(), *self.network.buffers()]
        return sum(tensor.nbytes for tensor in tensors)

    def memory_formula(self, context_length: int) -> dict[MemoryKind, int]:
        """Weights, whatever the context; a subclass adds what it holds of the text."""
        return {"weights": self._weight_bytes()}
