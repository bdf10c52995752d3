"""The rows that a block starts from: what the last token and the last features say of each slot."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hyflash_bench.drafters.networks.fit import SlotMaps, shared_basis
from hyflash_bench.drafters.networks.products import Linear, product

__all__ = ["BlockInput"]


class BlockInput(nn.Module):
    """A map that all slots share, a correction of low rank and an offset for each slot.

    Args:
        size: Hidden size, d.
        num_slots: B.
        rank: Of the corrections; 0 for none.
    """

    def __init__(self, size: int, num_slots: int, rank: int) -> None:
        super().__init__()
        self.shared = Linear(2 * size, size, bias=False)
        self.codes = nn.Parameter(torch.empty(num_slots, size))
        self.narrow: Linear | None = None
        if rank:
            self.narrow = Linear(2 * size, rank, bias=False)
            self.widen = nn.Parameter(torch.empty(num_slots, size, rank))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Start as the embedding, until something better is known."""
        nn.init.eye_(self.shared.weight)
        nn.init.normal_(self.codes, std=0.02)
        if self.narrow is not None:
            nn.init.zeros_(self.widen)

    def forward(self, inputs: Tensor) -> Tensor:
        """``[N, 2d]``, see :meth:`DraftNetwork.known_of`, to ``[N, B, d]``."""
        rows: Tensor = self.shared(inputs)[:, None] + self.codes
        if self.narrow is not None:
            corrections = product(self.narrow(inputs), self.widen.to(inputs.dtype).flatten(0, 1))
            rows = rows + corrections.view(rows.shape)
        return rows

    @torch.no_grad()
    def take(self, maps: SlotMaps) -> None:
        """Start from maps that were fitted to such inputs."""
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
