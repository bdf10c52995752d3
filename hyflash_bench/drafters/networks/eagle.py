"""An EAGLE-3-style network (Li et al., 2503.01840): one decoder layer that drafts token by token.

The pair of row t is the token at row ``t + 1`` and the fused features ``g`` of row t; it says what
stands at row ``t + 2``. Keys and values come from verified pairs as long as there are any. Beyond
them the layer goes on with its own output in place of ``g``, in training as in drafting, so that it
learns to live with its own errors. The pair of row t has the rotary position t in its document.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from hyflash_bench.drafters.base import Features, LoadContext, Requires
from hyflash_bench.drafters.networks.batch import Batch
from hyflash_bench.drafters.networks.fit import LeastSquares, wanted_rows
from hyflash_bench.drafters.networks.layers import RMSNorm, SwiGLU, rotary_tables, rotate
from hyflash_bench.drafters.networks.network import DraftNetwork, NetworkConfig
from hyflash_bench.drafters.networks.products import Linear
from hyflash_bench.spec.base import MAX_SIZE

__all__ = ["EagleConfig", "EagleNetwork"]

Tables = tuple[Tensor, Tensor]

_BLIND_STD = 0.01
"""Of the weights that look at tokens, when the rest comes from a layer that never saw any."""


class EagleConfig(NetworkConfig):
    """Sizes and features of the layer; its heads are as many and as large as the target's."""

    taps: tuple[int, ...] = Field(min_length=1, description="Layers of the target that are read, ascending.")
    last_hidden: bool = Field(True, description="Whether its last hidden state is read too.")
    intermediate_size: int = Field(ge=1, le=MAX_SIZE, description="Width of the feed-forward part.")
    token_residual: bool = Field(
        True, description="Whether the residual stream starts from token and features, as in the first EAGLE."
    )

    @model_validator(mode="after")
    def _check_taps(self) -> EagleConfig:
        ascending = all(low < high for low, high in pairwise(self.taps))
        if not ascending or self.taps[0] < 0 or self.taps[-1] >= self.target.num_layers:
            raise ValueError(
                f"taps must ascend and lie within 0..{self.target.num_layers - 1}, not {list(self.taps)}"
            )
        return self


class EagleNetwork(DraftNetwork):
    """The layer, and the projection that fuses the target's features."""

    Config = EagleConfig
    kind = "eagle"
    config: EagleConfig

    def __init__(self, config: EagleConfig) -> None:
        super().__init__(config)
        target = config.target
        size, eps = target.hidden_size, target.norm_eps
        num_inputs = len(config.taps) + config.last_hidden
        self.fusion = Linear(num_inputs * size, size, bias=False)
        self.token_norm = RMSNorm(size, eps)
        self.feature_norm = RMSNorm(size, eps)
        self.query = Linear(2 * size, target.num_heads * target.head_dim, bias=False)
        self.key_value = Linear(2 * size, 2 * target.num_kv_heads * target.head_dim, bias=False)
        self.output = Linear(target.num_heads * target.head_dim, size, bias=False)
        self.residual: Linear | None = None
        if config.token_residual:
            self.residual = Linear(2 * size, size, bias=False)
        self.mlp_norm = RMSNorm(size, eps)
        self.mlp = SwiGLU(size, config.intermediate_size)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Start the residual stream as the features."""
        if self.residual is not None:
            size = self.config.target.hidden_size
            self.residual.weight[:, :size].zero_()
            self.residual.weight[:, size:] = torch.eye(size)

    @property
    def requires(self) -> Requires:
        """See :attr:`DraftNetwork.requires`."""
        return Requires(taps=self.config.taps, last_hidden=self.config.last_hidden)

    # The layer in parts, for training and for drafting

    def fuse(self, features: Features) -> Tensor:
        """``g [T, d]`` of T rows."""
        parts = [features.taps[layer] for layer in self.config.taps]
        if self.config.last_hidden:
            assert features.last_hidden is not None
            parts.append(features.last_hidden)
        fused: Tensor = self.fusion(torch.cat(parts, dim=-1).to(self.fusion.weight.dtype))
        return fused

    def context_rows(self, features: Features) -> Tensor:
        """See :meth:`DraftNetwork.context_rows`."""
        return self.fuse(features)

    def pair(self, tokens: Tensor, g: Tensor) -> Tensor:
        """``[R]`` ids and ``[R, d]`` features of the rows before them: ``[R, 2d]``."""
        return torch.cat([self.token_norm(self.embed(tokens)), self.feature_norm(g)], dim=-1)

    def rotary(self, positions: Tensor) -> Tables:
        """Rotary tables of the pairs at these positions."""
        target = self.config.target
        return rotary_tables(positions.to(self.fusion.weight.device), target.head_dim, target.rope_theta)

    def queries(self, pairs: Tensor, tables: Tables) -> Tensor:
        """``[R, heads, head_dim]`` of R pairs."""
        return rotate(self.query(pairs).unflatten(-1, (-1, self.config.target.head_dim)), tables)

    def keys_values(self, pairs: Tensor, tables: Tables) -> tuple[Tensor, Tensor]:
        """Two ``[R, kv_heads, head_dim]`` of R pairs."""
        both = self.key_value(pairs).unflatten(-1, (2, -1, self.config.target.head_dim))
        keys, values = both.unbind(-3)
        return rotate(keys, tables), values

    def settle(self, g: Tensor, pairs: Tensor, attended: Tensor) -> Tensor:
        """The hidden states of R pairs, which are the next ``g``.

        Args:
            g: ``[R, d]``, what the pairs were made from.
            pairs: ``[R, 2d]``.
            attended: ``[R, heads * head_dim]`` of their attention.

        Returns:
            ``[R, d]``.
        """
        start = g if self.residual is None else self.residual(pairs)
        hidden = start + self.output(attended)
        settled: Tensor = hidden + self.mlp(self.mlp_norm(hidden))
        return settled

    def drafting_passes(self) -> list[tuple[nn.Module, str]]:
        """See :meth:`DraftNetwork.drafting_passes`."""
        return [*super().drafting_passes(), (self, "settle")]

    # Training

    @torch.no_grad()
    def warm_start(self, batches: Iterable[Batch]) -> None:
        """See :meth:`DraftNetwork.warm_start`.

        Features start as the target's last hidden state, and the residual stream as what a linear
        map makes of token and features: the next last hidden state, which is the next ``g``.
        """
        if self.residual is None or not self.config.last_hidden:
            return
        size = self.config.target.hidden_size
        self.fusion.weight.zero_()
        self.fusion.weight[:, -size:] = torch.diag(1 / self.head.norm.weight)
        self.feature_norm.weight.fill_(1.0)
        fit, known = LeastSquares(2 * size, 1, size, intercept=False), []
        for batch, wanted in wanted_rows(batches, 1):
            g = self.fuse(batch.features.rows((batch.anchors - 1).to(wanted.device)))
            fit.add(self.pair(batch.tokens[batch.anchors], g), wanted / self.head.norm.weight)
            known.append(self.known_of(batch.tokens[batch.anchors], g))
        if self.copying is not None and fit.num_rows > 2 * size:
            self.copying.fit(torch.cat(known))
        if fit.num_rows > 2 * size:
            self.residual.weight.copy_(fit.solve().weights[0])
            nn.init.zeros_(self.output.weight)  # what they add is learnt from nothing
            nn.init.zeros_(self.mlp.down.weight)

    def forward(self, batch: Batch) -> Tensor:
        """See :meth:`DraftNetwork.forward`."""
        hidden = [
            self._unroll(
                batch.tokens[span],
                batch.features.rows(span),
                batch.anchors[batch.anchors_within(span)] - span.start,
            )
            for span in batch.spans()
        ]
        logits: Tensor = self.head(torch.cat(hidden))
        return self.with_copies(logits, batch, self.fuse(batch.features))

    def _unroll(self, tokens: Tensor, features: Features, anchors: Tensor) -> Tensor:
        """Hidden states ``[n, B, d]`` of the anchors of one document."""
        config = self.config
        if len(anchors) == 0:
            return self.fusion.weight.new_empty(0, config.num_slots, config.target.hidden_size)
        num_pairs = int(anchors[-1])  # the last anchor's first pair is the last one of use
        g = self.fuse(features.rows(slice(0, num_pairs)))
        pairs = self.pair(tokens[1 : num_pairs + 1], g)
        keys, values = self.keys_values(pairs, self.rotary(torch.arange(num_pairs)))
        first = (anchors - 1).to(g.device)
        unseen = torch.arange(num_pairs, device=g.device) > first[:, None]

        own = _OwnRows()
        pairs, g = pairs[first], g[first]
        hidden: list[Tensor] = []
        for step in range(config.num_slots):
            tables = self.rotary(anchors - 1 + step)
            if step > 0:  # the first pair is a verified one
                pairs = self.pair(tokens[(anchors + step).clamp(max=len(tokens) - 1)], g)
                own.add(*self.keys_values(pairs, tables))
            attended = _attend(self.queries(pairs, tables), keys, values, unseen, own)
            g = self.settle(g, pairs, attended)
            hidden.append(g)
        return torch.stack(hidden, dim=1)

    # The start

    @torch.no_grad()
    def initialise(self, context: LoadContext) -> None:
        """Start as the target's last layer on the highest tap, nearly blind to the tokens.

        What the target has under other names, or in other shapes, keeps its random start.
        """
        size = self.config.target.hidden_size
        highest = (len(self.config.taps) - 1) * size
        self.fusion.weight.zero_()
        self.fusion.weight[:, highest : highest + size] = torch.eye(size)
        decoder = getattr(context.model, "model", None)
        _take_gain(self.head.norm, getattr(decoder, "norm", None))
        layers = getattr(decoder, "layers", None)
        if not layers:
            return
        layer = layers[-1]
        _take_gain(self.feature_norm, getattr(layer, "input_layernorm", None))
        _take_gain(self.mlp_norm, getattr(layer, "post_attention_layernorm", None))
        self._take_attention(getattr(layer, "self_attn", None))
        self._take_mlp(getattr(layer, "mlp", None))

    def _take_attention(self, attention: object) -> None:
        size = self.config.target.hidden_size
        query, key, value, output = (_weight(attention, f"{name}_proj") for name in "qkvo")
        if query is None or key is None or value is None or output is None:
            return
        for linear, taken in ((self.query, query), (self.key_value, torch.cat([key, value]))):
            if taken.shape == (linear.weight.shape[0], size):
                linear.weight[:, :size].normal_(std=_BLIND_STD)
                linear.weight[:, size:] = taken
        if output.shape == self.output.weight.shape:
            self.output.weight.copy_(output)

    def _take_mlp(self, mlp: object) -> None:
        """The neurons with the largest output weights, as many as fit."""
        gate, up, down = (_weight(mlp, f"{name}_proj") for name in ("gate", "up", "down"))
        wanted = self.config.intermediate_size
        if gate is None or up is None or down is None or len(gate) < wanted:
            return
        kept = (down.norm(dim=0) * gate.norm(dim=1) * up.norm(dim=1)).topk(wanted).indices.sort().values
        self.mlp.gate_up.weight.copy_(torch.cat([gate[kept], up[kept]]))
        self.mlp.down.weight.copy_(down[:, kept])


class _OwnRows:
    """Keys and values of each anchor's own earlier steps, ``[n, steps, kv_heads, head_dim]``."""

    def __init__(self) -> None:
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    def add(self, keys: Tensor, values: Tensor) -> None:
        self._keys.append(keys)
        self._values.append(values)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def stacked(self) -> tuple[Tensor, Tensor]:
        return torch.stack(self._keys, dim=1), torch.stack(self._values, dim=1)


def _attend(queries: Tensor, keys: Tensor, values: Tensor, unseen: Tensor, own: _OwnRows) -> Tensor:
    """One query an anchor over the document's pairs and the anchor's own.

    Args:
        queries: ``[n, heads, head_dim]``.
        keys: ``[T, kv_heads, head_dim]`` of the document's verified pairs.
        values: As keys.
        unseen: ``[n, T]``, pairs that an anchor must not see.
        own: Of the steps so far.

    Returns:
        ``[n, heads * head_dim]``.
    """
    num_pairs, num_kv_heads, head_dim = keys.shape
    grouped = queries.view(len(queries), num_kv_heads, -1, head_dim) * head_dim**-0.5
    scores = torch.einsum("nkrd,tkd->nkrt", grouped, keys).float()
    scores = scores.masked_fill(unseen[:, None, None, :], -torch.inf)
    if not own:
        weights = scores.softmax(-1).to(values.dtype)
        return torch.einsum("nkrt,tkd->nkrd", weights, values).flatten(1)
    own_keys, own_values = own.stacked()
    own_scores = torch.einsum("nkrd,nikd->nkri", grouped, own_keys).float()
    weights = torch.cat([scores, own_scores], dim=-1).softmax(-1).to(values.dtype)
    far, near = weights[..., :num_pairs], weights[..., num_pairs:]
    attended = torch.einsum("nkrt,tkd->nkrd", far, values) + torch.einsum("nkri,nikd->nkrd", near, own_values)
    return attended.flatten(1)


def _take_gain(norm: RMSNorm, module: object) -> None:
    """The gain of a norm of the target, whatever form it is stored in: ones have unit size."""
    weight = getattr(module, "weight", None)
    if not callable(module) or weight is None or weight.shape != norm.weight.shape:
        return
    norm.weight.copy_(module(torch.ones_like(weight)))


def _weight(module: object, name: str) -> Tensor | None:
    found = getattr(getattr(module, name, None), "weight", None)
    return found if isinstance(found, Tensor) else None
