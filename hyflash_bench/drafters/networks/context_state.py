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
from hyflash_bench.footprint import BLOCK_ROWS, block_held, rounded_up, window_rows

__all__ = ["ContextState", "GrowingState", "WindowState", "document_state", "state_shape"]


class ContextState(ABC):
    """Keys and values of verified rows, with room behind them for the block being drafted.

    Attributes:
        position: Where the next anchor stands in the rotation of the keys.
        last_row: ``[d]``, the fused features of the last verified token, zeros before the first.
        keys: ``[L, kv_heads, capacity, hd]``, rotated.
        values: Likewise.
    """

    position: int
    keys: Tensor
    values: Tensor

    def __init__(self, network: BlockNetwork) -> None:
        self.network = network
        self.config = network.config
        weight = network.fuse.weight
        self.last_row = weight.new_zeros(self.config.target.hidden_size)
        self._allocate(0)

    def extend(self, rows: Tensor) -> None:
        """Take in fused features ``[T, d]`` of the next T verified tokens, T at least 1."""
        self._append(rows)
        self.last_row.copy_(rows[-1])

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attention of the block ``[1, B, heads, hd]`` over what is held and itself: ``[1, B, ...]``."""
        first, last = self._held_rows()
        end = last + keys.shape[1]
        self.keys[layer, :, last:end] = keys[0].transpose(0, 1)
        self.values[layer, :, last:end] = values[0].transpose(0, 1)
        return attend_all(queries[0], self.keys[layer, :, first:end], self.values[layer, :, first:end])[None]

    def memory(self, layer: int) -> Tensor | None:
        """``[1, H, dk, dv]`` that a layer reads, None without a memory."""
        return None

    def held(self) -> list[Held]:
        """All tensors kept alive."""
        return [Held("kv", self.keys), Held("kv", self.values), Held("buffer", self.last_row)]

    def formula(self, context_length: int) -> dict[MemoryKind, int]:
        """Bytes by kind after so many rows."""
        return block_held(self.config, context_length, self.last_row.element_size())

    @abstractmethod
    def _append(self, rows: Tensor) -> None: ...

    @abstractmethod
    def _held_rows(self) -> tuple[int, int]:
        """First and one past the last row that a block attends to."""

    @abstractmethod
    def _capacity(self, context_length: int) -> int: ...

    def _allocate(self, context_length: int) -> None:
        target = self.config.target
        rows = self._capacity(context_length)
        shape = (self.config.num_layers, target.num_kv_heads, rows, target.head_dim)
        self.keys = self.last_row.new_zeros(shape)
        self.values = self.last_row.new_zeros(shape)

    def _write(self, rows: Tensor, place: int, position: int) -> None:
        """Keys and values of rows, from a place on, rotated from a position on."""
        end = place + len(rows)
        tables = self.network.rotations(torch.arange(position, position + len(rows), device=rows.device))
        for index, layer in enumerate(self.network.layers):
            keys, values = layer.sides(layer.input_norm(rows), tables)
            self.keys[index, :, place:end] = keys.transpose(0, 1)
            self.values[index, :, place:end] = values.transpose(0, 1)


class WindowState(ContextState):
    """The last W to W + C - 1 rows, and all older ones in memories: bytes are constant.

    Whenever W + C rows wait, the oldest C are written to the memories and leave. Rows are rotated by
    their place in the window, so they are turned back by C when they move: no position grows with
    the text.

    Args:
        network: Whose layers and memories are used.
        fixed: Read these states instead of the text's own, ``[num_states, H, dk, dv]``: a control.

    Attributes:
        states: ``[num_states, H, dk, dv]`` float32, empty without a memory.
    """

    def __init__(self, network: BlockNetwork, fixed: Tensor | None = None) -> None:
        super().__init__(network)
        config = self.config
        self.position = 0
        self._is_fixed = fixed is not None
        self.states = self.last_row.new_zeros(state_shape(config), dtype=torch.float32)
        if fixed is not None:
            self.states.copy_(fixed)
        num_pending = self._most_rows if config.num_states else 0
        self._pending = self.last_row.new_zeros(num_pending, len(self.last_row))

    def memory(self, layer: int) -> Tensor | None:
        """See :meth:`ContextState.memory`."""
        if not self.config.num_states:
            return None
        return self.states[min(layer, self.config.num_states - 1)][None]

    def held(self) -> list[Held]:
        """See :meth:`ContextState.held`."""
        return [*super().held(), Held("state", self.states), Held("buffer", self._pending)]

    @property
    def _most_rows(self) -> int:
        return window_rows(self.config)

    def _capacity(self, context_length: int) -> int:
        return self._most_rows + self.config.num_slots

    def _held_rows(self) -> tuple[int, int]:
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
                writes = self.network.writes(index, oldest)
                state.copy_(chunk_states(writes, self.config.chunk, self.config.rule, state.clone())[-1])
        kept = max(0, self.position - num_folded)
        if kept:
            moved = slice(num_folded, self.position)
            target = self.config.target
            back = rotary_tables(torch.tensor(-num_folded), target.head_dim, target.rope_theta)
            device = self.keys.device
            turned = rotate(self.keys[:, :, moved], (back[0].to(device), back[1].to(device)))
            self.keys[:, :, :kept] = turned
            self.values[:, :, :kept] = self.values[:, :, moved].clone()
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
    """

    def __init__(self, network: BlockNetwork, limit: int = 0) -> None:
        self._limit = limit
        self.position = 0
        self._num_held = 0
        super().__init__(network)

    def formula(self, context_length: int) -> dict[MemoryKind, int]:
        """See :meth:`ContextState.formula`."""
        size = self.last_row.element_size()
        return block_held(self.config, context_length, size, limit=self._limit)

    def _held_rows(self) -> tuple[int, int]:
        first = max(0, self._num_held - self._limit) if self._limit else 0
        return first, self._num_held

    def _capacity(self, context_length: int) -> int:
        # With a limit, there is room for as many rows again, so that rows move now and then only.
        rows = 2 * self._limit or context_length
        return rounded_up(rows + self.config.num_slots, BLOCK_ROWS)

    def _append(self, rows: Tensor) -> None:
        arriving = rows[-self._limit :] if self._limit else rows
        self.position += len(rows) - len(arriving)
        self._make_room(len(arriving))
        self._write(arriving, self._num_held, self.position)
        self._num_held += len(arriving)
        self.position += len(arriving)

    def _make_room(self, num_rows: int) -> None:
        room = self.keys.shape[2] - self.config.num_slots
        if self._num_held + num_rows <= room:
            return
        held_keys, held_values = self.keys, self.values
        first, last = self._held_rows()
        first = max(first, last - (self._limit - num_rows)) if self._limit else 0
        self._allocate(self._num_held + num_rows)
        self._num_held = last - first
        self.keys[:, :, : self._num_held] = held_keys[:, :, first:last]
        self.values[:, :, : self._num_held] = held_values[:, :, first:last]
