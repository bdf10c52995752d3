"""A low-rank correction of a slot's logits by the token just before it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from hyflash_bench.drafters.networks.products import Linear

__all__ = ["MarkovHead"]


class MarkovHead(nn.Module):
    """A bigram table of rank r over the draft vocabulary, after DSpark's sequential head.

    Slots of a block do not see each other's tokens, so two of them may each propose half of two
    different continuations. This lets a slot know the token drafted before it, at the cost of one
    small product a token. It starts at zero. Tokens outside the draft vocabulary share one row.
    """

    def __init__(self, draft_vocab_size: int, rank: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(draft_vocab_size + 1, rank))
        self.out = Linear(rank, draft_vocab_size, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start without an effect."""
        nn.init.normal_(self.table, std=0.1)
        nn.init.zeros_(self.out.weight)

    def forward(self, places: Tensor) -> Tensor:
        """``[...]`` places in the draft vocabulary to ``[..., V_d]`` to add to the logits."""
        out: Tensor = self.out(functional.embedding(places, self.table))
        return out
