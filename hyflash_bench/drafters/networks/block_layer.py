"""One decoder layer over the rows of blocks; what they look at is handed in."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from hyflash_bench.drafters.networks.layers import RMSNorm, SwiGLU, rotate
from hyflash_bench.drafters.networks.memory import MemoryReader
from hyflash_bench.drafters.networks.network import TargetShape
from hyflash_bench.drafters.networks.products import Linear, product

__all__ = ["Attend", "BlockLayer"]

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Queries, keys and values of the blocks, rotated, to what attention mixes for their queries."""


class BlockLayer(nn.Module):
    """Attention, memory and a gated MLP, with the target's own head sizes.

    Keys and values of verified rows come from the fused features through the same norm and the same
    projections as those of the block.
    """

    def __init__(self, target: TargetShape, intermediate_size: int, reader: MemoryReader | None) -> None:
        super().__init__()
        size = target.hidden_size
        self.head_dim = target.head_dim
        self.heads = [target.num_heads, target.num_kv_heads]
        queries, keys = (heads * target.head_dim for heads in self.heads)
        self.input_norm = RMSNorm(size, target.norm_eps)
        self.qkv = Linear(size, queries + 2 * keys, bias=False)
        self.out = Linear(queries, size, bias=False)
        self.mlp_norm = RMSNorm(size, target.norm_eps)
        self.mlp = SwiGLU(size, intermediate_size)
        self.reader = reader

    def sides(self, rows: Tensor, tables: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Keys, rotated, and values of normalised verified rows ``[T, d]``: ``[T, kv_heads, hd]``."""
        weight = self.qkv.weight[self.out.in_features :]
        keys, values = (self._heads(side) for side in product(rows, weight).chunk(2, dim=-1))
        return rotate(keys, tables), values

    def forward(
        self, hidden: Tensor, tables: tuple[Tensor, Tensor], attend: Attend, states: Tensor | None
    ) -> Tensor:
        """Pass N blocks through.

        Args:
            hidden: ``[N, B, d]``.
            tables: Rotations of the block's positions, ``[N, B, hd / 2]``.
            attend: Mixes for the blocks what they see.
            states: ``[N, H, dk, dv]`` of the memory, None without one.

        Returns:
            ``[N, B, d]``.
        """
        rows, queries, keys, values = self.look(hidden, tables)
        return self.settle(hidden, rows, attend(queries, keys, values), states)

    def look(self, hidden: Tensor, tables: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What goes into attention: normalised rows, and their queries, keys and values, rotated."""
        rows = self.input_norm(hidden)
        turned, values = torch.split(self._heads(self.qkv(rows)), [sum(self.heads), self.heads[1]], dim=-2)
        queries, keys = torch.split(rotate(turned, tables), self.heads, dim=-2)
        return rows, queries, keys, values

    def settle(self, hidden: Tensor, rows: Tensor, attended: Tensor, states: Tensor | None) -> Tensor:
        """What comes of the blocks ``[N, B, d]``, given what attention mixed for them."""
        mixed = self.out(attended)
        if self.reader is not None and states is not None:
            mixed = mixed + self.reader(rows, states)
        hidden = hidden + mixed
        out: Tensor = hidden + self.mlp(self.mlp_norm(hidden))
        return out

    def _heads(self, side: Tensor) -> Tensor:
        return side.view(*side.shape[:-1], side.shape[-1] // self.head_dim, self.head_dim)
