"""DFlash as its authors and speculators publish it (Chen et al., 2602.06036): a whole block in one pass.

Features of K layers are fused to one row per verified token, and every layer writes that same row to
its cache by its own projections, without another norm. A block is the last token's embedding and
those of mask tokens; its rows see verified rows, and each other. Row j of a block whose last token
stands at position a has the rotary position ``a + j`` and says what stands there, so the first row's
answer is not used, unless the checkpoint was trained to say what comes next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from hyflash_bench.drafters.base import Features, Requires
from hyflash_bench.drafters.networks.layers import RMSNorm, SwiGLU
from hyflash_bench.drafters.networks.products import Linear
from hyflash_bench.drafters.networks.public import Projections, PublicHead, PublicNetwork, Tables
from hyflash_bench.spec.formats.dflash import DFlashConfig
from hyflash_bench.spec.formats.layer import LayerSizes

__all__ = ["DFlashLayer", "DFlashNetwork"]

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Queries, keys and values of the block to what attention mixes for it, ``[B, heads * head_dim]``."""


class DFlashLayer(nn.Module):
    """A decoder layer of Qwen3's form."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.input_norm = RMSNorm(sizes.hidden_size, sizes.norm_eps)
        self.attention = Projections(sizes, sizes.hidden_size)
        self.mlp_norm = RMSNorm(sizes.hidden_size, sizes.norm_eps)
        self.mlp = SwiGLU(sizes.hidden_size, sizes.intermediate_size)

    def forward(self, hidden: Tensor, tables: Tables, attend: Attend) -> Tensor:
        """Pass a block ``[B, d]`` through."""
        rows = self.input_norm(hidden)
        queries = self.attention.queries(rows, tables)
        mixed = attend(queries, *self.attention.keys_values(rows, tables))
        hidden = hidden + self.attention.output(mixed)
        out: Tensor = hidden + self.mlp(self.mlp_norm(hidden))
        return out


class DFlashNetwork(PublicNetwork):
    """The layers, the map that fuses features, and the head."""

    kind = "dflash"
    config: DFlashConfig

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__(config)
        sizes = config.target
        size = sizes.hidden_size
        self.embedding = nn.Parameter(torch.empty(config.vocab_size, size))
        self.fusion = Linear(len(config.taps) * config.target_hidden_size, size, bias=False)
        self.fused_norm = RMSNorm(size, sizes.norm_eps)
        layers = nn.ModuleList(DFlashLayer(sizes) for _ in range(config.num_layers))
        self.layers = cast("Sequence[DFlashLayer]", layers)
        self.head = PublicHead(
            config, RMSNorm(size, sizes.norm_eps), scale=config.logit_scale, softcap=config.logit_softcap
        )

    @property
    def requires(self) -> Requires:
        """See :attr:`PublicNetwork.requires`."""
        return Requires(taps=tuple(sorted(self.config.taps)))

    def fuse(self, features: Features) -> Tensor:
        """``[T, d]`` of T rows, once for all layers."""
        rows = [features.taps[layer].to(self.dtype) for layer in self.config.taps]
        fused: Tensor = self.fused_norm(self.fusion(torch.cat(rows, dim=-1)))
        return fused

    def block_rows(self, last_token: int) -> Tensor:
        """``[B, d]`` that a block starts from."""
        masks = [self.config.mask_token_id] * (self.config.block_size - 1)
        return self.embed(torch.tensor([last_token, *masks])) * self.config.embedding_scale

    def block_logits(self, hidden: Tensor, num_tokens: int) -> Tensor:
        """``[num_tokens, V_d]`` of a block's hidden states ``[B, d]``."""
        first = 0 if self.config.from_anchor else 1
        logits: Tensor = self.head(hidden[first : first + num_tokens])
        return logits
