"""EAGLE as its authors and speculators publish it: one decoder layer that drafts token by token.

As in :mod:`~hyflash_bench.drafters.networks.eagle`, the pair of row t is the token at row ``t + 1``
and the features ``g`` of row t, and has the rotary position t. EAGLE-1 and EAGLE-2 (2401.15077,
2406.16858) map both to one row, norm neither, and draft with the target's head on the output as it
is. EAGLE-3 (2503.01840) norms both, projects them side by side, and norms before a head of its own.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import cast

import torch
from torch import Tensor, nn

from hyflash_bench.drafters.base import Features, Requires
from hyflash_bench.drafters.networks.layers import RMSNorm, SwiGLU
from hyflash_bench.drafters.networks.products import Linear
from hyflash_bench.drafters.networks.public import Projections, PublicHead, PublicNetwork, Tables
from hyflash_bench.spec.formats.eagle import PublicEagleConfig

__all__ = ["FirstEagle", "PublicEagle", "ThirdEagle"]


class PublicEagle(PublicNetwork):
    """What both generations share: attention, a gated MLP, and the way they are run."""

    kind = "eagle"
    config: PublicEagleConfig

    def __init__(self, config: PublicEagleConfig, num_inputs: int, head_norm: RMSNorm | None) -> None:
        super().__init__(config)
        sizes = config.target
        self.embedding = nn.Parameter(torch.empty(config.vocab_size, sizes.hidden_size))
        self.attention = Projections(sizes, num_inputs)
        self.mlp_norm = RMSNorm(sizes.hidden_size, sizes.norm_eps)
        self.mlp = SwiGLU(sizes.hidden_size, sizes.intermediate_size)
        self.head = PublicHead(config, head_norm)

    @property
    def requires(self) -> Requires:
        """See :attr:`PublicNetwork.requires`."""
        return Requires(taps=tuple(sorted(self.config.taps)), last_hidden=self.config.last_hidden)

    @abstractmethod
    def fuse(self, features: Features) -> Tensor:
        """``g [T, d]`` of T rows."""

    @abstractmethod
    def pair(self, tokens: Tensor, g: Tensor) -> Tensor:
        """``[R]`` ids and ``[R, d]`` features of the rows before them: what attention reads."""

    def queries(self, pairs: Tensor, tables: Tables) -> Tensor:
        """``[R, heads, head_dim]`` of R pairs."""
        return self.attention.queries(pairs, tables)

    def keys_values(self, pairs: Tensor, tables: Tables) -> tuple[Tensor, Tensor]:
        """Two ``[R, kv_heads, head_dim]`` of R pairs."""
        return self.attention.keys_values(pairs, tables)

    def settle(self, g: Tensor, pairs: Tensor, attended: Tensor) -> Tensor:
        """The hidden states of R pairs, which are the next ``g``; see :meth:`EagleNetwork.settle`."""
        hidden = self._stream(g, pairs) + self.attention.output(attended)
        settled: Tensor = hidden + self.mlp(self.mlp_norm(hidden))
        return settled

    @abstractmethod
    def _stream(self, g: Tensor, pairs: Tensor) -> Tensor:
        """``[R, d]`` that the residual stream starts from."""


class FirstEagle(PublicEagle):
    """EAGLE-1, and EAGLE-2, which differs in the tree alone."""

    def __init__(self, config: PublicEagleConfig) -> None:
        size = config.target.hidden_size
        super().__init__(config, size, None)
        self.fusion = Linear(2 * size, size, bias=config.fusion_bias)

    def fuse(self, features: Features) -> Tensor:
        """See :meth:`PublicEagle.fuse`: the target's last hidden state as it is."""
        assert features.last_hidden is not None
        return features.last_hidden.to(self.dtype)

    def pair(self, tokens: Tensor, g: Tensor) -> Tensor:
        """See :meth:`PublicEagle.pair`: ``[R, d]``."""
        mapped: Tensor = self.fusion(torch.cat([self.embed(tokens), g], dim=-1))
        return mapped

    def _stream(self, g: Tensor, pairs: Tensor) -> Tensor:
        return pairs


class ThirdEagle(PublicEagle):
    """EAGLE-3, with the norms that later versions add."""

    def __init__(self, config: PublicEagleConfig) -> None:
        sizes = config.target
        size, eps, width = sizes.hidden_size, sizes.norm_eps, config.target_hidden_size
        super().__init__(config, 2 * size, None if config.norm_output else RMSNorm(size, eps))
        num_features = len(config.taps) * width
        self.fusion = Linear(num_features, size, bias=False)
        self.token_norm = RMSNorm(size, eps)
        self.feature_norm = RMSNorm(size, eps)
        self.fusion_norm = RMSNorm(num_features, eps) if config.norm_before_fc else None
        self.tap_norms = cast("list[RMSNorm]", nn.ModuleList())
        if config.fc_norm:
            self.tap_norms.extend(RMSNorm(width, eps) for _ in config.taps)
        self.output_norm = RMSNorm(size, eps) if config.norm_output else None

    def fuse(self, features: Features) -> Tensor:
        """See :meth:`PublicEagle.fuse`."""
        rows = [features.taps[layer].to(self.dtype) for layer in self.config.taps]
        if self.tap_norms:
            rows = [norm(row) for norm, row in zip(self.tap_norms, rows, strict=True)]
        joined = torch.cat(rows, dim=-1)
        fused: Tensor = self.fusion(joined if self.fusion_norm is None else self.fusion_norm(joined))
        return fused

    def pair(self, tokens: Tensor, g: Tensor) -> Tensor:
        """See :meth:`PublicEagle.pair`: ``[R, 2d]``."""
        return torch.cat([self.token_norm(self.embed(tokens)), self.feature_norm(g)], dim=-1)

    def settle(self, g: Tensor, pairs: Tensor, attended: Tensor) -> Tensor:
        """See :meth:`PublicEagle.settle`."""
        settled = super().settle(g, pairs, attended)
        return settled if self.output_norm is None else self.output_norm(settled)

    def _stream(self, g: Tensor, pairs: Tensor) -> Tensor:
        return pairs.chunk(2, dim=-1)[1] if self.config.norm_before_residual else g
