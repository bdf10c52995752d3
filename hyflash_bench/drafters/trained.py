"""What drafters with trained weights have in common: a checkpoint, and its bytes."""

from __future__ import annotations

import math
from copy import copy
from pathlib import Path
from typing import ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor

from hyflash_bench.drafters.base import (
    Draft,
    Drafter,
    DrafterOptions,
    Features,
    Held,
    LoadContext,
    MemoryKind,
    Requires,
)
from hyflash_bench.drafters.formats.load import Network, read_network
from hyflash_bench.drafters.networks.checkpoint import find_checkpoint
from hyflash_bench.drafters.networks.compiled import compile_passes
from hyflash_bench.drafters.networks.copy_state import CopyState
from hyflash_bench.drafters.networks.native import load_kernels
from hyflash_bench.drafters.networks.network import Anchor, DraftNetwork
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.errors import DrafterError
from hyflash_bench.footprint import KVChoice, widest_window
from hyflash_bench.spec.base import MAX_COUNT, MAX_ROWS
from hyflash_bench.spec.sampling import GREEDY

__all__ = ["TrainedDrafter", "TrainedOptions"]


class TrainedOptions(DrafterOptions):
    """Options of every trained drafter."""

    checkpoint: str = Field(
        "",
        description="Baseline by name, folder of a checkpoint in any layout that is read, or hub id "
        "(org/name or org/name@revision); empty for the shipped default.",
    )
    num_draft_tokens: int = Field(
        0,
        ge=0,
        le=MAX_COUNT,
        description="Most tokens to propose in a step; 0 for as many as it was trained for.",
    )
    copying: bool = Field(
        True, description="Copy from the last tokens, if the checkpoint learnt to; false for control."
    )
    recall_rows: int | None = Field(
        None,
        ge=0,
        le=MAX_ROWS,
        description="Rows before the last ones that it remembers to copy from, one of each pair of tokens; "
        "0 for none, empty for as many as its checkpoint says.",
    )
    min_confidence: float = Field(
        0.0,
        ge=0.0,
        lt=1.0,
        description="End a greedy chain before the token with which its chance of being right as a whole, "
        "by the drafter's own view, falls below this; 0 for never.",
    )
    kv_dtype: KVChoice = Field(
        "auto",
        description="Precision of its keys and values, where it keeps any; auto is that of its weights.",
    )
    compile: bool = Field(
        False,
        description="Compile what keeps its shapes from draft to draft (torch.compile); takes a minute at "
        "loading, needs a compiler, and stands in for the package's own kernels on CPU.",
    )
    cuda_graphs: bool = Field(
        False, description="Compile, and replay what is compiled as CUDA graphs; needs a CUDA device."
    )


class TrainedDrafter(Drafter):
    """A drafter whose network is read from a checkpoint."""

    Options = TrainedOptions
    network_kind: ClassVar[str]

    options: TrainedOptions
    network: Network
    _copies: CopyState | None

    def load(self, context: LoadContext) -> None:
        """See :meth:`Drafter.load`."""
        if self.options.cuda_graphs and context.device.type != "cuda":
            raise DrafterError(
                f"{self.name}: cuda_graphs=true needs a CUDA device, and the target is on {context.device}. "
                "Leave it out, or take compile=true."
            )
        folder = find_checkpoint(self.name, self.options.checkpoint, context)
        network = read_network(folder, context)
        if network.kind != self.network_kind:
            raise DrafterError(
                f"{folder} holds a network of kind {network.kind}; {self.name} needs {self.network_kind}."
            )
        if self.options.recall_rows is not None:
            self._recall(network, self.options.recall_rows)
        self._adopt(network, folder)
        self.network = network
        load_kernels()  # compiled now, so that it is over before anything is timed
        if self.options.compile or self.options.cuda_graphs:
            compile_passes(network, cuda_graphs=self.options.cuda_graphs)
            self._try_out(context)
        self.reset()

    def _try_out(self, context: LoadContext) -> None:
        """Draft now, so that compiling is over before anything is timed."""
        row = torch.zeros(1, context.info.hidden_size, dtype=context.dtype, device=context.device)
        features = Features(
            taps=dict.fromkeys(self.requires.taps, row),
            last_hidden=row if self.requires.last_hidden else None,
        )
        try:
            self.reset()
            self.observe(torch.zeros(1, dtype=torch.int64), features)
            for budget in (self.network.config.num_slots, 1):
                self.draft(0, budget, Sampler(GREEDY, 0))
        except RuntimeError as error:  # what torch's compilers raise
            reason = " ".join(str(error).split("\n")[:2])
            raise DrafterError(
                f"{self.name}: compiling failed: {reason} Install a C++ compiler (on a GPU: triton), or "
                "leave compile and cuda_graphs out."
            ) from error

    def _recall(self, network: Network, num_rows: int) -> None:
        if not isinstance(network, DraftNetwork) or network.copying is None:
            if num_rows:
                raise DrafterError(
                    f"{self.name}: recall_rows={num_rows} asks for rows to copy from, but its checkpoint "
                    "does not copy. Leave it out, or take a checkpoint with a copy_window."
                )
            return
        slots, window = network.config.num_slots, network.copying.window
        if num_rows and window < slots:
            raise DrafterError(
                f"{self.name}: recall_rows={num_rows} needs a checkpoint that copies from at least as many "
                f"last rows as it has slots, {slots}; this one copies from {window}. Leave it out."
            )
        network.copying.num_recalled = num_rows
        network.config = network.config.model_copy(update={"recall_rows": num_rows})

    def _adopt(self, network: Network, folder: Path) -> None:
        """Refuse a network that is not this drafter's, read what else it needs from its folder."""

    @property
    def requires(self) -> Requires:
        """See :attr:`Drafter.requires`."""
        return self.network.requires

    def _limit(self, budget: int) -> int:
        """Tokens to propose now."""
        slots = self.network.config.num_slots
        return min(budget, self.options.num_draft_tokens or slots, slots)

    def _from_slots(self, logits: Tensor, sampler: Sampler, along: Tensor | None) -> Draft:
        """A chain whose tokens do not depend on each other.

        Args:
            logits: ``[N, V_d]`` of its slots.
            sampler: In force.
            along: As for :meth:`Drafter.draft`, at least N tokens where given.
        """
        head = self.network.head
        if sampler.is_greedy:
            return self._likeliest_slots(logits)
        rows = head.spread(sampler.probabilities(logits))
        if along is not None:
            return Draft(along[: len(logits)], None, rows)
        return Draft.chain([sampler.draw(row) for row in rows.cpu()], rows)

    def _likeliest_slots(self, logits: Tensor) -> Draft:
        (tops, places), confidence = logits.max(-1), 1.0
        self._require_numbers(tops)
        for slot, row in enumerate(logits):
            confidence = self._confidence(confidence, row, places[slot])
            if confidence < self.options.min_confidence:
                places = places[:slot]
                break
        return Draft(self.network.head.draft_ids[places].cpu())

    def _require_numbers(self, found: Tensor) -> None:
        """Refuse to draft from NaN, which would pass for a choice."""
        if math.isnan(float(found.sum())):  # few operators, since it is asked in every draft
            raise DrafterError(
                f"{self.name}: what it computes is NaN, though its weights are numbers. Train it again; in "
                "half precision, try --dtype float32."
            )

    def _new_copies(self) -> CopyState | None:
        """What is copied from, for a new text; None for a network that does not copy."""
        network = self.network
        if isinstance(network, DraftNetwork) and network.copying is not None:
            return CopyState(network)
        return None

    def _anchor(self, last_token: int) -> Anchor | None:
        """What copying starts from; None where nothing is copied."""
        if self._copies is None or not self.options.copying:
            return None
        return self._copies.anchor(last_token)

    def _votes(self, anchor: Anchor | None) -> Tensor | None:
        """What is copied to all slots, ``[B, V_d]``; None where nothing is."""
        if anchor is None or self._copies is None or not self.options.copying:
            return None
        return self._copies.votes(anchor)

    def _held_copies(self) -> list[Held]:
        return [] if self._copies is None else self._copies.held()

    def _confidence(self, so_far: float, logits: Tensor, place: Tensor) -> float:
        """The chance that a greedy chain is right up to this token, 1 where nobody asks.

        Args:
            so_far: Up to the token before.
            logits: ``[V_d]`` that the token was chosen by.
            place: Of the token in the draft vocabulary.
        """
        if not self.options.min_confidence:
            return 1.0
        return so_far * float(logits.float().softmax(-1)[place])

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

    def _shrunk(self, num_bytes: int) -> Self:
        """One with the widest window within some bytes, of a drafter that has the option ``window``.

        Args:
            num_bytes: Of all kinds.
        """

        def bytes_with(window: int) -> int:
            return sum(self._with_window(window).memory_formula(0).values())

        asked: int = self.options.window  # type: ignore[attr-defined]
        window = widest_window(num_bytes, bytes_with)
        return self._with_window(min(window, asked or window))

    def _with_window(self, window: int) -> Self:
        shrunk = copy(self)
        shrunk.options = self.options.model_copy(update={"window": window})
        shrunk.reset()
        return shrunk

    def memory_formula(self, context_length: int) -> dict[MemoryKind, int]:
        """Weights, whatever the context; a subclass adds what it holds of the text."""
        return {"weights": self._weight_bytes()}
