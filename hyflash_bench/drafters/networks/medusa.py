"""Medusa-style heads (Cai et al., 2401.10774): every slot guessed from one hidden state of the target.

Head j is a stack of residual blocks ``x + silu(W x + b)`` on the target's last hidden state after its
final norm, at the row before the anchor; so the anchor's token, though known, is not looked at. The
blocks start as the identity. Where the original gives each head a matrix over the vocabulary, all
heads here share the target's own rows, which keeps the drafter small. Those rows expect the normed
state that the heads are given, so nothing is normalised again: of the shared head's norm only the
gain is used, starting at one.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from hyflash_bench.drafters.base import Features, LoadContext, Requires
from hyflash_bench.drafters.networks.batch import Batch
from hyflash_bench.drafters.networks.network import DraftNetwork, NetworkConfig
from hyflash_bench.drafters.networks.products import product

__all__ = ["MedusaConfig", "MedusaNetwork"]


class MedusaConfig(NetworkConfig):
    """Sizes of the heads."""

    hidden_layers: int = Field(1, ge=1, le=8, description="Residual blocks in each head.")


class MedusaNetwork(DraftNetwork):
    """B heads side by side.

    Attributes:
        weight: ``[layers, B, d, d]``.
        bias: ``[layers, B, d]``.
    """

    Config = MedusaConfig
    kind = "medusa"
    config: MedusaConfig

    def __init__(self, config: MedusaConfig) -> None:
        super().__init__(config)
        size = config.target.hidden_size
        shape = (config.hidden_layers, config.num_slots, size)
        self.weight = nn.Parameter(torch.zeros(*shape, size))
        self.bias = nn.Parameter(torch.zeros(shape))

    @property
    def requires(self) -> Requires:
        """See :attr:`DraftNetwork.requires`."""
        return Requires(last_hidden=True)

    def initialise(self, context: LoadContext) -> None:
        """Nothing to take over: the identity makes every head the target's own."""

    def forward(self, batch: Batch) -> Tensor:
        """See :meth:`DraftNetwork.forward`."""
        rows = self.context_rows(batch.features)
        logits = self.logits(rows[batch.anchors - 1], self.config.num_slots)
        return self.with_copies(logits, batch, rows)

    def context_rows(self, features: Features) -> Tensor:
        """See :meth:`DraftNetwork.context_rows`: the target's last hidden state as it is."""
        assert features.last_hidden is not None
        return features.last_hidden.to(self.head.norm.weight.dtype)

    @torch.no_grad()
    def warm_start(self, batches: Iterable[Batch]) -> None:
        """See :meth:`DraftNetwork.warm_start`: heads start as the target's own, copying is fitted."""
        if self.copying is None:
            return
        known = []
        for batch in batches:
            rows = self.context_rows(batch.features.rows(batch.anchors - 1))
            known.append(self.known_of(batch.tokens[batch.anchors], rows))
        if known:
            self.copying.fit(torch.cat(known))

    def drafting_passes(self) -> list[tuple[nn.Module, str]]:
        """See :meth:`DraftNetwork.drafting_passes`."""
        return [(self, "logits")]

    def logits(self, hidden: Tensor, num_slots: int) -> Tensor:
        """What the first heads say after each of N rows.

        Args:
            hidden: ``[N, d]`` last hidden states of the target.
            num_slots: Heads to ask.

        Returns:
            ``[N, num_slots, V_d]``.
        """
        gain = self.head.norm.weight
        # Rows stand as columns: few of them times a weight is fastest with the weight first.
        x = hidden.to(gain.dtype).t().expand(num_slots, -1, -1)
        for weight, bias in zip(self.weight, self.bias, strict=True):
            x = x + functional.silu(torch.bmm(weight[:num_slots], x) + bias[:num_slots, :, None])
        x = x.permute(2, 0, 1) * gain
        # A transposed input would take a path of torch that is slow beyond measure.
        return product(x.contiguous(), self.head.rows.to(x.dtype))
