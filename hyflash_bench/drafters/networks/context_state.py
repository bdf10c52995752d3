"""What a block drafter keeps of the verified text while drafting."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from hyflash_bench.drafters.base import Features, Held, MemoryKind
from hyflash_bench.drafters.networks.attention import attend_all
from hyflash_bench.drafters.networks.block import BlockConfig, BlockNetwork
from hyflash_bench.drafters.networks.delta import chunk_states
from hyflash_bench.drafters.networks.layers import rotary_tables, rotate
from hyflash_bench.footprint import (
    KVChoice,
    block_held,
    kv_row_bytes,
    last_shift,
    slots_for,
    window_rows,
)
from hyflash_bench.kv import KVRows

__all__ = ["ContextState", "GrowingState", "WindowState", "document_state", "state_shape"]


class ContextState(ABC):
    """Keys and values of verified rows, with room behind them for the block being drafted.

    Attributes:
        position: Where the next anchor stands in the rotation of the keys.
        last_row: ``[d]``, the fused features of the last verified token, zeros before the first.
        kv: Keys, rotated, and values of every layer.

    Args:
        network: Whose layers make keys and values.
        kv_dtype: Precision that they are kept in.
    """

    position: int

    def __init__(self, network: BlockNetwork, kv_dtype: KVChoice = "auto") -> None:
        self.network = network
        self.config = network.config
        weight = network.fuse.weight
        target = self.config.target
        self.last_row = weight.new_zeros(target.hidden_size)
        self.kv = KVRows(
            num_layers=self.config.num_layers,
            num_kv_heads=target.num_kv_heads,
            head_dim=target.head_dim,
            num_slots=self._capacity(0),
            dtype=weight.dtype,
            device=weight.device,
            kv_dtype=kv_dtype,
        )

    def extend(self, rows: Tensor) -> None:
        """Take in fused features ``[T, d]`` of the next T verified tokens, T at least 1."""
        self._append(rows)
        self.last_row.copy_(rows[-1])

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attention of the block ``[1, B, heads, hd]`` over what is held and itself: ``[1, B, ...]``."""
        first, last = self.held_rows()
        self.kv.write(layer, last, keys[0], values[0])
        seen = self.kv.read(layer, slice(first, last + keys.shape[1]))
        mixed = attend_all(queries[0].to(self.kv.dtype), *seen, self.config.follow_heads)
        return mixed[None].to(queries.dtype)

    def memory(self, layer: int) -> Tensor | None:
        """``[1, H, dk, dv]`` that a layer reads, None without a memory."""
        return None

    def held(self) -> list[Held]:
        """All tensors kept alive."""
        return [*(Held("kv", tensor) for tensor in self.kv.tensors()), Held("buffer", self.last_row)]

    def formula(self, context_length: int) -> dict[MemoryKind, int]:
        """Bytes by kind after so many rows."""
        return self._formula(context_length)

    def _formula(self, context_length: int, limit: int = 0) -> dict[MemoryKind, int]:
        target = self.config.target
        row_bytes = kv_row_bytes(target.num_kv_heads, target.head_dim, self.kv.kv_dtype)
        size = self.last_row.element_size()
        return block_held(self.config, context_length, size, limit=limit, kv_row_bytes=row_bytes)

    @abstractmethod
    def _append(self, rows: Tensor) -> None: ...

    @abstractmethod
    def held_rows(self) -> tuple[int, int]:
        """First and one past the last row that a block attends to."""

    @abstractmethod
    def _capacity(self, context_length: int) -> int: ...

    def _write(self, rows: Tensor, place: int, position: int) -> None:
        """Keys and values of rows, from a place on, rotated from a position on."""
        tables = self.network.rotations(torch.arange(position, position + len(rows), device=rows.device))
        for index, layer in enumerate(self.network.layers):
            self.kv.write(index, place, *layer.sides(layer.input_norm(rows), tables))


class WindowState(ContextState):
    """The last W to W + C - 1 rows, and all older ones in memories: bytes are constant.

    Whenever W + C rows wait, the oldest C are written to the memories and leave. Rows are rotated by
    their place in the window, so they are turned back by C when they move: no position grows with
    the text.

    Args:
        network: Whose layers and memories are used.
        fixed: Read these states instead of the text's own, ``[num_states, H, dk, dv]``: a control.
        kv_dtype: Precision of the window's keys and values.

    Attributes:
        states: ``[num_states, H, dk, dv]`` float32 whatever else is kept in, empty without a memory.
    """

    def __init__(
        self, network: BlockNetwork, fixed: Tensor | None = None, *, kv_dtype: KVChoice = "auto"
    ) -> None:
        super().__init__(network, kv_dtype)
        config = self.config
        self.position = 0
        self._is_fixed = fixed is not None
        self.states = self.last_row.new_zeros(state_shape(config), dtype=torch.float32)
        if fixed is not None:
            self.states.copy_(fixed)
        num_pending = self._most_rows if config.num_states else 0
        self._pending = self.last_row.new_zeros(num_pending, len(self.last_row))
        self._folded = self.last_row.new_zeros(last_shift(config), len(self.last_row))

    def memory(self, layer: int) -> Tensor | None:
        """See :meth:`ContextState.memory`."""
        if not self.config.num_states:
            return None
        return self.states[min(layer, self.config.num_states - 1)][None]

    def held(self) -> list[Held]:
        """See :meth:`ContextState.held`."""
        waiting = [Held("buffer", self._pending), Held("buffer", self._folded)]
        return [*super().held(), Held("state", self.states), *waiting]

    @property
    def _most_rows(self) -> int:
        return window_rows(self.config)

    def _capacity(self, context_length: int) -> int:
        return self._most_rows + self.config.num_slots

    def held_rows(self) -> tuple[int, int]:
        """See :meth:`ContextState.held_rows`."""
        return 0, self.position

    def _append(self, rows: Tensor) -> None:
        total = self.position + len(rows)
        num_chunks = max(0, total - self.config.local_window) // self.config.chunk
        num_folded = num_chunks * self.config.chunk
        if num_folded:
            self._fold(rows, num_folded)
        arriving = rows[max(0, num_folded - (total - len(rows))) :]
        self._write(arriving, self.position, self.position)
        if self.config.num_states:
            self._pending[self.position : self.position + len(arriving)] = arriving
        self.position = total - num_folded

    def _fold(self, rows: Tensor, num_folded: int) -> None:
        """Write the oldest rows to the memories, and move the rest to the front."""
        if not self._is_fixed:
            oldest = torch.cat([self._pending[: self.position], rows])[:num_folded]
            for index, state in enumerate(self.states):
                writes = self.network.writes(index, oldest, self._folded)
                state.copy_(chunk_states(writes, self.config.chunk, self.config.rule, state.clone())[-1])
            if len(self._folded):
                self._folded.copy_(torch.cat([self._folded, oldest])[-len(self._folded) :])
        kept = max(0, self.position - num_folded)
        if kept:
            moved = slice(num_folded, self.position)
            target = self.config.target
            back = rotary_tables(torch.tensor(-num_folded), target.head_dim, target.rope_theta)
            tables = (back[0].to(self.last_row.device), back[1].to(self.last_row.device))
            for layer in range(self.config.num_layers):
                keys, values = self.kv.read(layer, moved)
                turned = rotate(keys, tables).transpose(0, 1)
                self.kv.write(layer, 0, turned, values.transpose(0, 1).clone())
            if self.config.num_states:
                self._pending[:kept] = self._pending[moved].clone()
        self.position = kept


def state_shape(config: BlockConfig) -> tuple[int, int, int, int]:
    """Of all memories: ``[num_states, H, dk, dv]``."""
    return config.num_states, config.memory_heads, config.memory_key_dim, config.memory_value_dim


@torch.no_grad()
def document_state(network: BlockNetwork, features: Features) -> Tensor:
    """What a document leaves in the memories, for the control that reads another's history.

    Args:
        network: With a memory.
        features: T rows of the document.

    Returns:
        ``[num_states, H, dk, dv]`` float32.
    """
    state = WindowState(network)
    state.extend(network.context_rows(features))
    return state.states


class GrowingState(ContextState):
    """Keys and values of the whole text, or of its last rows, at absolute positions.

    Args:
        network: Whose layers make keys and values.
        limit: Attend to so many of the last rows; 0 for all. With a limit, bytes are constant.
        kv_dtype: Precision of keys and values.
    """

    def __init__(self, network: BlockNetwork, limit: int = 0, *, kv_dtype: KVChoice = "auto") -> None:
        self._limit = limit
        self.position = 0
        self._num_held = 0
        super().__init__(network, kv_dtype)

    def formula(self, context_length: int) -> dict[MemoryKind, int]:
        """See :meth:`ContextState.formula`."""
        return self._formula(context_length, self._limit)

    def held_rows(self) -> tuple[int, int]:
        """See :meth:`ContextState.held_rows`."""
        first = max(0, self._num_held - self._limit) if self._limit else 0
        return first, self._num_held

    def _capacity(self, context_length: int) -> int:
        return slots_for(context_length, self.config.num_slots, self._limit or None)

    def _append(self, rows: Tensor) -> None:
        arriving = rows[-self._limit :] if self._limit else rows
        self.position += len(rows) - len(arriving)
        self._make_room(len(arriving))
        self._write(arriving, self._num_held, self.position)
        self._num_held += len(arriving)
        self.position += len(arriving)

    def _make_room(self, num_rows: int) -> None:
        room = self.kv.num_slots - self.config.num_slots
        if self._num_held + num_rows <= room:
            return
        first, last = self.held_rows()
        first = max(first, last - (self._limit - num_rows)) if self._limit else 0
        self.kv.resize(self._capacity(self._num_held + num_rows), slice(first, last))
        self._num_held = last - first
