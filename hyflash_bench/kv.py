"""Keys and values of verified tokens, kept in the precision asked for: of the target and of drafters.

A row is put into its precision when it is written, by itself, so what is kept does not depend on
which rows were written with it. It is read back in the precision of the attention's arithmetic, one
layer at a time: where that is how it is kept a read is a view, otherwise it takes
``2 * kv_heads * rows * head_dim`` numbers for as long as a layer's attention lasts.

``int8`` is the symmetric vector-wise quantisation of Dettmers et al. (2208.07339): each vector of a
key or a value, one position and head, has a float16 scale of its own, its largest number is 127 of
them, and there is no offset. KIVI (2402.02750) finds keys easier to quantise by channel; that needs
groups of rows that are complete, which a cache that is cut back at any row does not have.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from hyflash_bench.footprint import KVChoice, KVDtype

__all__ = ["KVRows", "kv_dtype_of", "same_step"]

_STORED: Mapping[str, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int8": torch.int8,
}
_LEVELS = 127
_LEAST_SCALE, _MOST_SCALE = 2.0**-24, 65504.0
"""Least and largest positive float16: no scale is zero or infinite."""


def kv_dtype_of(chosen: KVChoice, dtype: torch.dtype) -> KVDtype:
    """The precision that a choice means beside weights of some dtype.

    Raises:
        KeyError: Weights of a dtype that no cache is kept in.
    """
    name = str(dtype).removeprefix("torch.") if chosen == "auto" else chosen
    names: dict[str, KVDtype] = {
        "float32": "float32",
        "bfloat16": "bfloat16",
        "float16": "float16",
        "int8": "int8",
    }
    return names[name]


def same_step(kv_dtype: KVDtype) -> torch.dtype:
    """The floating dtype whose rounding is as coarse.

    A step of int8 is 1/127 of a vector's largest number, one of bfloat16 up to 1/128 of the number.
    """
    return torch.bfloat16 if kv_dtype == "int8" else _STORED[kv_dtype]


class KVRows:
    """Keys and values of some layers, with a slot for each row.

    Attributes:
        kv_dtype: Precision they are kept in.
        dtype: Precision they are read in, the wider of the kept one and the weights'.
        numbers: ``[layers, 2, kv_heads, slots, head_dim]``, keys before values.
        scales: ``[layers, 2, kv_heads, slots]`` float16 with int8, else None.

    Args:
        num_layers: Layers with a cache.
        num_kv_heads: Heads of keys and values.
        head_dim: Size of a head.
        num_slots: Rows that fit.
        kv_dtype: See above; ``auto`` is the weights' precision.
        dtype: Of the weights that make the rows.
        device: Where they are kept.
    """

    def __init__(
        self,
        *,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        num_slots: int,
        dtype: torch.dtype,
        device: torch.device,
        kv_dtype: KVChoice = "auto",
    ) -> None:
        self.kv_dtype = kv_dtype_of(kv_dtype, dtype)
        stored = _STORED[self.kv_dtype]
        self.dtype = torch.promote_types(dtype, stored) if stored.is_floating_point else dtype
        shape = (num_layers, 2, num_kv_heads, num_slots)
        self.numbers = torch.empty((*shape, head_dim), dtype=stored, device=device)
        self.scales: Tensor | None = None
        if self.kv_dtype == "int8":
            self.scales = torch.empty(shape, dtype=torch.float16, device=device)

    @property
    def num_slots(self) -> int:
        """Rows that fit."""
        return self.numbers.shape[3]

    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor kept alive; slots are dimension 3 of each."""
        return (self.numbers,) if self.scales is None else (self.numbers, self.scales)

    def bytes(self) -> int:
        """Bytes allocated, used or not."""
        return sum(tensor.nbytes for tensor in self.tensors())

    def write(self, layer: int, start: int, keys: Tensor, values: Tensor) -> None:
        """Keep rows of one layer.

        Args:
            layer: Which.
            start: Slot of the first row.
            keys: ``[T, kv_heads, head_dim]``.
            values: Likewise.
        """
        slots = slice(start, start + len(keys))
        for side, rows in enumerate((keys.transpose(0, 1), values.transpose(0, 1))):
            if self.scales is not None:
                wide = rows.float()
                scales = (wide.abs().amax(-1) / _LEVELS).clamp_(_LEAST_SCALE, _MOST_SCALE).half()
                self.scales[layer, side, :, slots] = scales
                rows = (wide / scales[..., None].float()).round_().clamp_(-_LEVELS, _LEVELS)  # noqa: PLW2901
            elif self.kv_dtype == "float16":
                rows = rows.clamp(-_MOST_SCALE, _MOST_SCALE)  # noqa: PLW2901 - infinity would spoil all that sees it
            self.numbers[layer, side, :, slots] = rows

    def read(self, layer: int, slots: slice) -> tuple[Tensor, Tensor]:
        """Keys and values ``[kv_heads, n, head_dim]`` of one layer, in :attr:`dtype`."""
        both = self.numbers[layer, :, :, slots].to(self.dtype)
        if self.scales is not None:
            both *= self.scales[layer, :, :, slots, None].to(self.dtype)
        return both[0], both[1]

    def resize(self, num_slots: int, kept: slice = slice(0, 0)) -> None:
        """Have so many slots; rows in ``kept`` move to the front, the rest is forgotten."""
        self.numbers = _moved(self.numbers, num_slots, kept)
        if self.scales is not None:
            self.scales = _moved(self.scales, num_slots, kept)


def _moved(tensor: Tensor, num_slots: int, kept: slice) -> Tensor:
    rows = tensor[:, :, :, kept]
    if num_slots == tensor.shape[3]:
        for layer, moved in zip(tensor, rows, strict=True):  # one at a time: so little is held twice
            layer[:, :, : rows.shape[3]] = moved.clone()
        return tensor
    new = tensor.new_empty((*tensor.shape[:3], num_slots, *tensor.shape[4:]))
    new[:, :, :, : rows.shape[3]] = rows
    return new
