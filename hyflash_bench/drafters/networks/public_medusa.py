"""Medusa heads as their authors publish them (2401.10774): each with its own matrix over the vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from hyflash_bench.drafters.base import Requires
from hyflash_bench.drafters.networks.products import product
from hyflash_bench.drafters.networks.public import PublicHead, PublicNetwork
from hyflash_bench.spec.formats.medusa import PublicMedusaConfig

__all__ = ["PublicMedusa"]


class PublicMedusa(PublicNetwork):
    """B heads side by side: residual blocks ``x + silu(W x + b)``, then a matrix.

    Attributes:
        weight: ``[layers, B, d, d]``.
        bias: ``[layers, B, d]``.
        matrices: ``[B, V, d]``.
    """

    kind = "medusa"
    config: PublicMedusaConfig

    def __init__(self, config: PublicMedusaConfig) -> None:
        super().__init__(config)
        size, slots = config.target.hidden_size, config.num_slots
        self.weight = nn.Parameter(torch.empty(config.hidden_layers, slots, size, size))
        self.bias = nn.Parameter(torch.empty(config.hidden_layers, slots, size))
        self.matrices = nn.Parameter(torch.empty(slots, config.vocab_size, size))
        self.head = PublicHead(config, None)
        self.head.rows = None

    @property
    def requires(self) -> Requires:
        """See :attr:`PublicNetwork.requires`."""
        return Requires(last_hidden=True)

    def attach(self, model: object) -> None:
        """Nothing is borrowed: heads neither look at tokens nor use the target's matrix."""

    def logits(self, hidden: Tensor, num_slots: int) -> Tensor:
        """What the first heads say after each of N rows ``[N, d]``: ``[N, num_slots, V]``."""
        x = hidden.to(self.dtype).expand(num_slots, -1, -1)
        for weight, bias in zip(self.weight, self.bias, strict=True):
            mapped = torch.bmm(x, weight[:num_slots].transpose(1, 2)) + bias[:num_slots, None]
            x = x + functional.silu(mapped)
        return torch.stack([product(rows, self.matrices[slot]) for slot, rows in enumerate(x)], dim=1)
