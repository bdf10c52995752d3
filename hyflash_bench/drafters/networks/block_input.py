"""The rows that a block starts from: what the last token and the last features say of each slot."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from hyflash_bench.drafters.networks.fit import SlotMaps, shared_basis
from hyflash_bench.drafters.networks.products import Linear

__all__ = ["BlockInput"]


class BlockInput(nn.Module):
    """A map that all slots share, a correction of low rank and an offset for each slot.

    Args:
        size: Hidden size, d.
        num_slots: B.
        rank: Of the corrections; 0 for none.
        eps: Of the norms of both inputs, which have no gain.
    """

    def __init__(self, size: int, num_slots: int, rank: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.shared = Linear(2 * size, size, bias=False)
        with torch.no_grad():  # as the embedding, until something better is known
            self.shared.weight.copy_(torch.eye(size, 2 * size))
        self.codes = nn.Parameter(torch.randn(num_slots, size) * 0.02)
        self.narrow: Linear | None = None
        if rank:
            self.narrow = Linear(2 * size, rank, bias=False)
            self.widen = nn.Parameter(torch.zeros(num_slots, size, rank))

    def inputs(self, embedded: Tensor, last_rows: Tensor) -> Tensor:
        """``[N, d]`` embeddings of the anchors and fused rows before them: ``[N, 2d]``, normalised."""
        sides = [
            functional.rms_norm(row.float(), row.shape[-1:], eps=self.eps) for row in (embedded, last_rows)
        ]
        return torch.cat(sides, dim=-1).to(embedded.dtype)

    def forward(self, embedded: Tensor, last_rows: Tensor) -> Tensor:
        """``[N, d]`` of each to ``[N, B, d]``."""
        inputs = self.inputs(embedded, last_rows)
        rows: Tensor = self.shared(inputs)[:, None] + self.codes
        if self.narrow is not None:
            rows = rows + torch.einsum("nr,bdr->nbd", self.narrow(inputs), self.widen.to(inputs.dtype))
        return rows

    @torch.no_grad()
    def take(self, maps: SlotMaps) -> None:
        """Start from maps that were fitted to :meth:`inputs`."""
        self.shared.weight.copy_(maps.weights[0])
        self.codes.copy_(maps.biases)
        if self.narrow is not None:
            widen, narrow = shared_basis(maps, self.narrow.weight.shape[0])
            # Both factors of about the same size, so that one learning rate suits both.
            scale = (narrow.norm() / widen.norm().clamp(min=1e-12)).sqrt().clamp(1e-6, 1e6)
            self.narrow.weight.zero_()
            self.widen.zero_()
            self.narrow.weight[: len(narrow)] = narrow / scale
            self.widen[..., : len(narrow)] = widen * scale
