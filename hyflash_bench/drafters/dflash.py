"""DFlash checkpoints as their authors run them (Chen et al., 2602.06036)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from hyflash_bench.drafters.base import Draft, Features, Held, MemoryKind
from hyflash_bench.drafters.networks.dflash import DFlashNetwork
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.drafters.trained import TrainedDrafter
from hyflash_bench.footprint import KVChoice, dflash_held, kv_row_bytes, slots_for
from hyflash_bench.kv import KVRows
from hyflash_bench.targets.attention import sdpa_attention

__all__ = ["DFlash"]


class DFlash(TrainedDrafter):
    """Public DFlash checkpoints (z-lab, speculators): a block of tokens in one pass over features.

    Layers with full attention keep keys and values of the whole context, those with a window only of
    its last rows. Rows of a block do not know each other's tokens, so a chain is drawn slot by slot
    from one pass when the target samples.
    """

    name = "dflash"
    network_kind = "dflash"

    network: DFlashNetwork

    def reset(self) -> None:
        """See :meth:`Drafter.reset`."""
        self._position = 0
        self._caches = [
            _LayerRows(self.network, layers, window, self.options.kv_dtype)
            for window, layers in self._groups()
        ]

    @torch.inference_mode()
    def observe(self, tokens: Tensor, features: Features) -> None:
        """See :meth:`Drafter.observe`."""
        if len(tokens) == 0:
            return
        rows = self.network.fuse(features)
        for cache in self._caches:
            cache.extend(rows, self._position)
        self._position += len(rows)

    @torch.inference_mode()
    def draft(self, last_token: int, budget: int, sampler: Sampler, along: Tensor | None = None) -> Draft:
        """See :meth:`Drafter.draft`."""
        length = self._limit(budget) if along is None else min(self._limit(budget), len(along))
        if length == 0:
            return Draft.empty()
        return self._from_slots(self.block_logits(last_token, length), sampler, along)

    def block_logits(self, last_token: int, length: int) -> Tensor:
        """``[length, V_d]`` of the first proposals; the block is computed whole, as it was trained."""
        network = self.network
        hidden = network.block_rows(last_token)
        positions = self._position + torch.arange(len(hidden))
        tables = network.rotary(positions)
        attend = {
            layer: partial(cache.attend, place, self._position)
            for cache in self._caches
            for place, layer in enumerate(cache.layers)
        }
        for index, layer in enumerate(network.layers):
            hidden = layer(hidden, tables, attend[index])
        return network.block_logits(hidden, length)

    def memory(self) -> list[Held]:
        """See :meth:`Drafter.memory`."""
        kv = [Held("kv", tensor) for cache in self._caches for tensor in cache.kv.tensors()]
        return [*self._weights(), *kv]

    def memory_formula(self, context_length: int) -> dict[MemoryKind, int]:
        """Rows of the whole context for layers with full attention, of the window for the others."""
        sizes, kv = self.network.config.target, self._caches[0].kv
        row_bytes = kv_row_bytes(sizes.num_kv_heads, sizes.head_dim, kv.kv_dtype)
        held = dflash_held(self.network.config, context_length, kv_row_bytes=row_bytes)
        return super().memory_formula(context_length) | held

    def _groups(self) -> Iterator[tuple[int | None, list[int]]]:
        """Layers that see the same rows."""
        windows = self.network.config.windows
        for window in dict.fromkeys(windows):
            yield window, [index for index, own in enumerate(windows) if own == window]


class _LayerRows:
    """Keys and values of the layers that share a window, with room behind them for a block.

    Args:
        network: Whose layers make them.
        layers: Which of its layers.
        window: Positions that a row sees, its own included; None for all.
        kv_dtype: Precision that they are kept in.
    """

    def __init__(
        self, network: DFlashNetwork, layers: list[int], window: int | None, kv_dtype: KVChoice
    ) -> None:
        self.layers = layers
        self._network, self._window = network, window
        self._num_held = 0
        sizes = network.config.target
        self.kv = KVRows(
            num_layers=len(layers),
            num_kv_heads=sizes.num_kv_heads,
            head_dim=sizes.head_dim,
            num_slots=self._capacity(0),
            dtype=network.dtype,
            device=network.head.draft_ids.device,
            kv_dtype=kv_dtype,
        )

    def extend(self, rows: Tensor, position: int) -> None:
        """Take in fused rows ``[T, d]``, the first of which stands at a position."""
        if self._limit is not None:  # what no later row will see is not kept
            position += max(0, len(rows) - self._limit)
            rows = rows[max(0, len(rows) - self._limit) :]
        self._make_room(len(rows))
        tables = self._network.rotary(position + torch.arange(len(rows)))
        for place, layer in enumerate(self.layers):
            attention = self._network.layers[layer].attention
            self.kv.write(place, self._num_held, *attention.keys_values(rows, tables))
        self._num_held += len(rows)

    def attend(self, place: int, position: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attention of a block whose first row stands at a position, over what is kept and itself."""
        first = 0 if self._limit is None else max(0, self._num_held - self._limit)
        self.kv.write(place, self._num_held, keys, values)
        seen = self.kv.read(place, slice(first, self._num_held + len(keys)))
        mask = self._mask(place, position - (self._num_held - first), position, len(keys))
        size = queries.shape[1] // keys.shape[1]
        mask = None if mask is None else mask.to(queries.device).repeat(size, 1)
        mixed = sdpa_attention(queries.to(self.kv.dtype), *seen, mask, queries.shape[-1] ** -0.5)
        return mixed.to(queries.dtype)

    def _mask(self, place: int, first: int, position: int, size: int) -> Tensor | None:
        """``[size, keys]``, or None where every row sees all."""
        is_causal = self._network.config.causal[self.layers[place]]
        if self._window is None and not is_causal:
            return None
        queries = position + torch.arange(size)[:, None]
        gap = queries - torch.arange(first, position + size)[None, :]
        reach = gap.abs().max() + 1 if self._window is None else self._window
        return (gap < reach) & (gap >= 0 if is_causal else -gap < reach)

    @property
    def _limit(self) -> int | None:
        """Rows before a block that its first row sees."""
        return None if self._window is None else self._window - 1

    def _capacity(self, context_length: int) -> int:
        return slots_for(context_length, self._network.config.block_size, self._limit)

    def _make_room(self, num_rows: int) -> None:
        if self._num_held + num_rows + self._network.config.block_size <= self.kv.num_slots:
            return
        kept = self._num_held if self._limit is None else min(self._num_held, self._limit - num_rows)
        kept = max(0, kept)
        self.kv.resize(self._capacity(kept + num_rows), slice(self._num_held - kept, self._num_held))
        self._num_held = kept
