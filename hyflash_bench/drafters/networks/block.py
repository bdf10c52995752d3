"""The block drafter's network: all slots of a block at once, from verified features.

Features of tapped layers are fused to one row ``c_t`` per verified token. A block of B rows is made
from the anchor's embedding, the last fused row and a code per slot. In each layer the rows attend to
verified rows and to each other, and may read a memory of fixed size that older rows were written to.

Which rows: with window W and chunks of C rows, an anchor ``a`` (counted from the start of its
document) has ``m(a) = C * max(0, floor((a - W) / C))``. Rows before ``m(a)`` are in the memory, rows
``m(a) .. a - 1`` are attended to: no gap, no overlap, W to W + C - 1 of them once the text is long
enough. Chunk by chunk, since a state is worth reading only at chunk boundaries.

After DFlash (2602.06036) for the block and its inputs, and the abstract of HyFlash (2611.07263) for
the hybrid of local attention and a recurrent memory that all slots read at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, Any, Literal, Self, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from hyflash_bench.drafters.base import Features, LoadContext, Requires
from hyflash_bench.drafters.networks.batch import Batch
from hyflash_bench.drafters.networks.block_input import BlockInput
from hyflash_bench.drafters.networks.block_layer import BlockLayer
from hyflash_bench.drafters.networks.delta import MemoryRule, Writes
from hyflash_bench.drafters.networks.fit import LeastSquares, wanted_rows
from hyflash_bench.drafters.networks.inherit import inherit
from hyflash_bench.drafters.networks.layers import rotary_tables
from hyflash_bench.drafters.networks.layout import Layout
from hyflash_bench.drafters.networks.markov import MarkovHead
from hyflash_bench.drafters.networks.memory import MemoryReader, MemoryWriter
from hyflash_bench.drafters.networks.network import DraftNetwork, NetworkConfig
from hyflash_bench.drafters.networks.places import draft_places
from hyflash_bench.drafters.networks.products import Linear
from hyflash_bench.spec.base import MAX_ROWS, MAX_SIZE

__all__ = ["BlockConfig", "BlockNetwork"]


class BlockConfig(NetworkConfig):
    """Shape of a block drafter; head sizes are the target's."""

    num_layers: int = Field(1, ge=1, le=64, description="Decoder layers, L.")
    taps: tuple[int, ...] = Field((), description="Layers of the target whose output is read.")
    last_hidden: bool = Field(True, description="Whether the target's last hidden state is read too.")
    attention: Literal["window", "full", "none"] = Field(
        "window", description="Verified rows attended to; none leaves only those not yet in the memory."
    )
    window: int = Field(64, ge=1, le=MAX_ROWS, description="Fewest rows attended to, W.")
    chunk: int = Field(32, ge=1, le=MAX_ROWS, description="Rows that enter the memory at once, C.")
    memory: Literal["none", "gated-delta", "gated-linear", "delta"] = Field(
        "gated-delta", description="Rule of the memory."
    )
    memory_heads: int = Field(3, ge=1, le=MAX_SIZE, description="Heads of the memory, H.")
    memory_key_dim: int = Field(64, ge=1, le=MAX_SIZE, description="Size of a key, dk.")
    memory_value_dim: int = Field(64, ge=1, le=MAX_SIZE, description="Size of a value, dv.")
    memory_shifts: tuple[Annotated[int, Field(ge=0, le=MAX_ROWS)], ...] = Field(
        (), description="Rows by which each head's keys lag behind its values; empty for none."
    )
    follow_heads: int = Field(
        0, ge=0, description="Key heads with which slot j weighs a row by the key j rows before it."
    )
    shared_memory: bool = Field(False, description="One state for all layers instead of one a layer.")
    half_lives: tuple[float, float] = Field(
        (64.0, 4096.0), description="Shortest and longest half-life of the heads at the start, in rows."
    )
    intermediate_size: int = Field(0, ge=0, le=MAX_SIZE, description="Width of the MLP; 0 for the target's.")
    slot_rank: int = Field(
        64,
        ge=0,
        le=MAX_SIZE,
        description="Rank of what sets each slot's input apart from the others'; 0 for an offset.",
    )
    markov_rank: int = Field(
        0, ge=0, le=MAX_SIZE, description="Rank of the correction by the token before a slot; 0 for none."
    )

    @model_validator(mode="after")
    def _check_shape(self) -> Self:
        if any(not 0 <= layer < self.target.num_layers for layer in self.taps):
            raise ValueError(f"taps {list(self.taps)} must lie in 0..{self.target.num_layers - 1}")
        if list(self.taps) != sorted(set(self.taps)):
            raise ValueError(f"taps {list(self.taps)} must ascend")
        if not self.taps and not self.last_hidden:
            raise ValueError("nothing is read of the target; name taps or set last_hidden")
        if self.attention == "full" and self.memory != "none":
            raise ValueError("full attention leaves nothing for a memory; set memory to none")
        if self.attention == "none" and self.memory == "none":
            raise ValueError("with neither attention nor memory no context is read; choose one")
        if self.memory_shifts and len(self.memory_shifts) != self.memory_heads:
            raise ValueError(
                f"memory_shifts {list(self.memory_shifts)} must be {self.memory_heads}, one a head"
            )
        if self.follow_heads > self.target.num_kv_heads:
            raise ValueError(f"follow_heads {self.follow_heads} exceeds {self.target.num_kv_heads} key heads")
        if not 1 <= self.half_lives[0] <= self.half_lives[1]:
            raise ValueError(f"half_lives {list(self.half_lives)} must ascend from 1 or more")
        return self

    @property
    def local_window(self) -> int:
        """Rows that stay out of the memory at least."""
        return 0 if self.attention == "none" else self.window

    @property
    def rule(self) -> MemoryRule:
        """Rule of the memory, where there is one."""
        assert self.memory != "none"
        return self.memory

    @property
    def num_states(self) -> int:
        """Memories held: one a layer, one in all, or none."""
        if self.memory == "none":
            return 0
        return 1 if self.shared_memory else self.num_layers


class BlockNetwork(DraftNetwork):
    """Fused features, block rows, layers, and optionally a memory and a correction by last token."""

    Config = BlockConfig
    kind = "block"

    config: BlockConfig

    def __init__(self, config: BlockConfig) -> None:
        super().__init__(config)
        target, size = config.target, config.target.hidden_size
        num_sources = len(config.taps) + config.last_hidden
        self.fuse = Linear(num_sources * size, size, bias=False)
        self.block_input = BlockInput(size, config.num_slots, config.slot_rank)
        width = config.intermediate_size or target.intermediate_size
        heads = (config.memory_heads, config.memory_key_dim, config.memory_value_dim)

        def reader() -> MemoryReader | None:
            if config.memory == "none":
                return None
            return MemoryReader(size, config.num_slots, *heads, target.norm_eps)

        layers = [BlockLayer(target, width, reader()) for _ in range(config.num_layers)]
        shifts = config.memory_shifts
        writers = [MemoryWriter(size, *heads, shifts) for _ in range(config.num_states)]
        self.layers = cast("Sequence[BlockLayer]", nn.ModuleList(layers))
        self.writers = cast("Sequence[MemoryWriter]", nn.ModuleList(writers))
        self.markov: MarkovHead | None = None
        if config.markov_rank:
            self.markov = MarkovHead(config.draft_vocab_size, config.markov_rank)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start memories with the half-lives asked for, and readers that ask as is written."""
        for writer in self.writers:
            writer.reset_gates(*self.config.half_lives)
        for index, layer in enumerate(self.layers):
            if layer.reader is not None:
                layer.reader.ask_like(self.writers[min(index, len(self.writers) - 1)])

    @property
    def requires(self) -> Requires:
        """See :attr:`DraftNetwork.requires`."""
        return Requires(taps=self.config.taps, last_hidden=self.config.last_hidden)

    def is_delicate(self, name: str) -> bool:
        """Gates are: one that forgets over thousands of rows lies closer to 1 than bfloat16 can tell."""
        return name.startswith("writers.") and (".gates." in name or name.endswith("log_rates"))

    def initialise(self, context: LoadContext) -> None:
        """See :meth:`DraftNetwork.initialise`."""
        inherit(self, context.model)

    @torch.no_grad()
    def warm_start(self, batches: Iterable[Batch]) -> None:
        """See :meth:`DraftNetwork.warm_start`."""
        size, num_slots = self.config.target.hidden_size, self.config.num_slots
        fit, known = LeastSquares(2 * size, num_slots, size), []
        for batch, wanted in wanted_rows(batches, num_slots):
            before = (batch.anchors - 1).to(wanted.device)
            last_rows = self.context_rows(batch.features.rows(before))
            inputs = self.known_of(batch.tokens[batch.anchors], last_rows)
            fit.add(inputs, wanted / self.head.norm.weight)
            known.append(inputs)
        if self.copying is not None and fit.num_rows > 2 * size:
            self.copying.fit(torch.cat(known))
        if fit.num_rows > 2 * size:
            self.block_input.take(fit.solve())
            for layer in self.layers:  # what they add is learnt from nothing
                nn.init.zeros_(layer.out.weight)
                nn.init.zeros_(layer.mlp.down.weight)

    def forward(self, batch: Batch) -> Tensor:
        """See :meth:`DraftNetwork.forward`."""
        config = self.config
        context = self.context_rows(batch.features)
        if not batch.num_anchors:
            return context.new_zeros(0, config.num_slots, config.draft_vocab_size)
        layout = Layout(batch, config.local_window, config.chunk, context.device)
        last_tokens = batch.tokens[batch.anchors]
        last_rows = context[(batch.anchors - 1).to(context.device)]
        hidden: Tensor = self.block_input(self.known_of(last_tokens, last_rows))
        row_tables = self.rotations(layout.positions.to(context.device))
        slots = torch.arange(config.num_slots)
        block_tables = self.rotations((layout.anchors[:, None] + slots).to(context.device))
        attention = layout.attend_full if config.attention == "full" else layout.attend_near
        states: Tensor | None = None
        for index, layer in enumerate(self.layers):
            if index < config.num_states:
                states = layout.states(partial(self.writes, index), context, config.rule)
            sides = layer.sides(layer.input_norm(context), row_tables)
            look = partial(_look, attention, sides, config.follow_heads)
            hidden = layer(hidden, block_tables, look, states)
        logits: Tensor = self.head(hidden)
        if self.markov is not None:
            logits = logits + self.markov(self._places_before(batch, last_tokens).to(context.device))
        return self.with_copies(logits, batch, context)

    def context_rows(self, features: Features) -> Tensor:
        """See :meth:`DraftNetwork.context_rows`: features are fused."""
        sources = [features.taps[layer] for layer in self.config.taps]
        if self.config.last_hidden:
            assert features.last_hidden is not None
            sources.append(features.last_hidden)
        fused: Tensor = self.fuse(torch.cat(sources, dim=-1).to(self.fuse.weight.dtype))
        return fused

    def writes(self, index: int, rows: Tensor, before: Tensor | None = None) -> Writes:
        """What fused rows ``[T, d]`` write to one of the memories.

        Args:
            index: Of the memory.
            rows: What is written.
            before: Rows just before them, as many as the largest shift; None at a document's start.
        """
        norm = self.layers[index].input_norm
        writes: Writes = self.writers[index](norm(rows), None if before is None else norm(before))
        return writes

    def rotations(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Rotary tables for ``[...]`` positions."""
        target = self.config.target
        return rotary_tables(positions, target.head_dim, target.rope_theta)

    def drafting_passes(self) -> list[tuple[nn.Module, str]]:
        """See :meth:`DraftNetwork.drafting_passes`."""
        layers = [(layer, name) for layer in self.layers for name in ("look", "settle")]
        return [*super().drafting_passes(), (self.block_input, "forward"), *layers]

    def _places_before(self, batch: Batch, last_tokens: Tensor) -> Tensor:
        """``[N, B]`` places in the draft vocabulary of the token before each slot."""
        labels, is_inside = batch.labels(self.config.num_slots)
        before = torch.cat([last_tokens[:, None], labels[:, :-1]], dim=1)
        places = draft_places(before, self.head.draft_ids.cpu())
        # Tokens of the next document are none of this one's business.
        places[:, 1:].masked_fill_(~is_inside[:, :-1], self.config.draft_vocab_size)
        return places


def _look(attention: Any, sides: tuple[Tensor, Tensor], follow: int, *own: Tensor) -> Tensor:
    mixed: Tensor = attention(own, sides, follow)
    return mixed
