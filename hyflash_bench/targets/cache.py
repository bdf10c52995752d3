"""The target's KV cache: allocated once, written in place, cut back by moving a length."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from hyflash_bench.footprint import KVChoice, rounded_up
from hyflash_bench.kv import KVRows

__all__ = ["KVCache", "SavedRows"]

_SLOT_MULTIPLE = 4
"""The compiled attention reads keys four at a time."""


@dataclass(frozen=True, slots=True)
class SavedRows:
    """A copy of some slots of a cache, as they are kept; slots are dimension 3 of each part."""

    start: int
    parts: tuple[Tensor, ...]


class KVCache(KVRows):
    """Keys and values of up to ``capacity`` tokens, for all layers.

    Slot ``i`` holds position ``i``, except between a tree pass and the :meth:`keep` that follows
    it. Slots from ``length`` on are free and may hold anything. There are a few slots more than
    ``capacity``.

    Attributes:
        length: Tokens held.
        capacity: Tokens that fit.
    """

    def __init__(
        self,
        *,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
        kv_dtype: KVChoice = "auto",
    ) -> None:
        if capacity < 1:
            raise ValueError(f"a cache needs room for at least 1 token, not {capacity}")
        super().__init__(
            num_layers=num_layers,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            num_slots=rounded_up(capacity, _SLOT_MULTIPLE),
            dtype=dtype,
            device=device,
            kv_dtype=kv_dtype,
        )
        self.length = 0
        self.capacity = capacity

    @property
    def free(self) -> int:
        """Tokens that still fit."""
        return self.capacity - self.length

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one slot over all layers."""
        return self.bytes() // self.num_slots

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` tokens in all, at least as many as before."""
        self.resize(rounded_up(capacity, _SLOT_MULTIPLE), slice(0, self.length))
        self.capacity = capacity

    def reserve(self, count: int) -> int:
        """Check that ``count`` more tokens fit.

        Returns:
            The slot of the first of them.

        Raises:
            ValueError: They do not.
        """
        if count > self.free:
            raise ValueError(f"{count} tokens do not fit behind {self.length} in a cache of {self.capacity}")
        return self.length

    def truncate(self, length: int) -> None:
        """Forget everything from position ``length`` on; nothing is copied or freed."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot cut a cache of {self.length} tokens to {length}")
        self.length = length

    def keep(self, start: int, rows: Tensor) -> None:
        """Keep one path of a tree pass.

        Args:
            start: The slot of the pass's first row.
            rows: ``[n]`` int64, the rows to keep, counted from ``start`` and increasing. They
                move to the slots ``start``, ``start + 1``, ...; the rest is forgotten.
        """
        count = int(rows.shape[0])
        path = rows.tolist()
        if any(low >= high for low, high in pairwise(path)) or (
            path and (path[0] < 0 or start + path[-1] >= self.length)
        ):
            raise ValueError(f"rows {path} are not an increasing path behind slot {start}")
        if count and path[-1] != count - 1:
            path_slots = rows.to(self.numbers.device) + start
            for part in self.tensors():
                part[:, :, :, start : start + count] = part.index_select(3, path_slots)
        self.length = start + count

    def save(self, start: int, stop: int) -> SavedRows:
        """Copy the slots ``start`` to ``stop`` (exclusive), to be put back later."""
        if not 0 <= start <= stop <= self.capacity:
            raise ValueError(f"slots {start}:{stop} are not within a cache of {self.capacity}")
        return SavedRows(start, tuple(part[:, :, :, start:stop].clone() for part in self.tensors()))

    def restore(self, saved: SavedRows) -> None:
        """Put saved slots back where they were; ``length`` stays as it is."""
        for part, rows in zip(self.tensors(), saved.parts, strict=True):
            part[:, :, :, saved.start : saved.start + rows.shape[3]] = rows
