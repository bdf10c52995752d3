"""What networks of other people's checkpoints share: their own sizes, rotation, embedding and head.

They are run, not trained, so they have no training form. Their layers have sizes of their own where
networks trained here take the target's; their embedding and head may be their own or the target's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from hyflash_bench.drafters.base import Requires
from hyflash_bench.drafters.networks.layers import RMSNorm, rotate
from hyflash_bench.drafters.networks.products import Linear, product
from hyflash_bench.precision import in_float64
from hyflash_bench.spec.formats.layer import LayerSizes, PublicConfig

__all__ = ["Projections", "PublicHead", "PublicNetwork", "rotary_tables_of"]

Tables = tuple[Tensor, Tensor]


class PublicHead(nn.Module):
    """From hidden states to logits over the draft vocabulary.

    Attributes:
        norm: Before the product; None where there is none.
        rows: ``[V_d, d]``, or None to use the target's own head.
        draft_ids: ``[V_d]`` int64, the target's id of each draft token.
    """

    draft_ids: Tensor

    def __init__(
        self,
        config: PublicConfig,
        norm: RMSNorm | None,
        *,
        scale: float = 1.0,
        softcap: float | None = None,
    ) -> None:
        super().__init__()
        self.norm = norm
        self.vocab_size = config.vocab_size
        self.rows: nn.Parameter | None = nn.Parameter(
            torch.empty(config.draft_vocab_size, config.target.hidden_size)
        )
        self.register_buffer("draft_ids", torch.arange(config.draft_vocab_size))
        self.lent: list[Tensor] = []  # a list, so that the target's tensor is not registered here
        self._scale, self._softcap = scale, softcap

    def forward(self, hidden: Tensor) -> Tensor:
        """``[..., d]`` to ``[..., V_d]`` logits."""
        normed = hidden if self.norm is None else self.norm(hidden)
        matrix = self.lent[0] if self.rows is None else self.rows
        logits = product(normed, matrix.to(hidden.dtype))
        if self._scale != 1.0:
            logits = logits * self._scale
        if self._softcap is not None:
            logits = torch.tanh(logits / self._softcap) * self._softcap
        return logits

    def spread(self, probabilities: Tensor) -> Tensor:
        """``[..., V_d]`` over the draft vocabulary to ``[..., V]`` over the target's."""
        wide = probabilities.new_zeros(*probabilities.shape[:-1], self.vocab_size)
        return wide.index_copy_(-1, self.draft_ids, probabilities)


class PublicNetwork(nn.Module, ABC):
    """A drafter's weights as others trained them.

    Attributes:
        config: Sizes.
        head: To the draft vocabulary.
        embedding: ``[V, d]``, or None to use the target's.
    """

    kind: ClassVar[str]
    config: PublicConfig
    head: PublicHead
    embedding: nn.Parameter | None

    def __init__(self, config: PublicConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = None
        self._embedding: list[Tensor] = []  # what the target lends; a list, so that it is not registered

    @property
    @abstractmethod
    def requires(self) -> Requires:
        """Features it reads."""

    def attach(self, model: Any) -> None:
        """Borrow of the target (a transformers model) what the checkpoint leaves to it or repeats.

        A matrix that equals the target's in the checkpoint's precision is the target's: it is held
        once, as servers do.
        """
        embedding = model.get_input_embeddings().weight.detach()
        head = model.get_output_embeddings().weight.detach()
        lent = []
        if self._has_embedding and (self.embedding is None or _is_same(self.embedding, embedding)):
            self.embedding = None
            lent.append(embedding)
        if self.head.rows is None or _is_same(self.head.rows, head):
            self.head.rows = None
            self.head.lent = [head]
            lent.append(head)
        self._embedding = lent

    @property
    def _has_embedding(self) -> bool:
        """Whether the network looks at tokens at all."""
        return True

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the weights."""
        return next(self.parameters()).dtype

    def embed(self, tokens: Tensor) -> Tensor:
        """``[...]`` ids to ``[..., d]``, in the network's precision."""
        matrix = self._embedding[0] if self.embedding is None else self.embedding
        return functional.embedding(tokens.to(matrix.device), matrix).to(self.dtype)

    def rotary(self, positions: Tensor) -> Tables:
        """Rotary tables at ``[...]`` positions."""
        return rotary_tables_of(self.config.target, positions.to(self.head.draft_ids.device))


class Projections(nn.Module):
    """Queries, keys and values of one layer, normed by head where Qwen3 does, and rotated.

    Args:
        sizes: Of the layer.
        num_inputs: Width of what is projected.
    """

    def __init__(self, sizes: LayerSizes, num_inputs: int) -> None:
        super().__init__()
        self._head_dim = sizes.head_dim
        self.query = Linear(num_inputs, sizes.num_heads * sizes.head_dim, bias=sizes.qkv_bias)
        self.key_value = Linear(num_inputs, 2 * sizes.num_kv_heads * sizes.head_dim, bias=sizes.qkv_bias)
        self.output = Linear(sizes.num_heads * sizes.head_dim, sizes.hidden_size, bias=sizes.output_bias)
        self.query_norm = RMSNorm(sizes.head_dim, sizes.norm_eps) if sizes.qk_norm else None
        self.key_norm = RMSNorm(sizes.head_dim, sizes.norm_eps) if sizes.qk_norm else None

    def queries(self, rows: Tensor, tables: Tables) -> Tensor:
        """``[R, num_inputs]`` to ``[R, heads, head_dim]``."""
        queries = self.query(rows).unflatten(-1, (-1, self._head_dim))
        return rotate(queries if self.query_norm is None else self.query_norm(queries), tables)

    def keys_values(self, rows: Tensor, tables: Tables) -> tuple[Tensor, Tensor]:
        """``[R, num_inputs]`` to two ``[R, kv_heads, head_dim]``."""
        both = self.key_value(rows).unflatten(-1, (2, -1, self._head_dim))
        keys, values = both.unbind(-3)
        return rotate(keys if self.key_norm is None else self.key_norm(keys), tables), values


def rotary_tables_of(sizes: LayerSizes, positions: Tensor) -> Tables:
    """Cosines and sines ``[..., head_dim // 2]`` float32, scaled as the layer's configuration says."""
    rope = tuple(sorted((key, _hashable(value)) for key, value in sizes.rope.items()))
    frequencies, factor = _frequencies(rope, sizes.head_dim, sizes.max_positions)
    exact = in_float64(positions)[..., None]
    angles = exact * frequencies.to(exact.device)
    cosine, sine = ((side * factor).float().to(positions.device) for side in (angles.cos(), angles.sin()))
    return cosine, sine


@lru_cache(maxsize=16)
def _frequencies(
    rope: tuple[tuple[str, Any], ...], head_dim: int, max_positions: int
) -> tuple[Tensor, float]:
    """``[head_dim // 2]`` float64 and the factor of YaRN, by transformers' own rules."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    parameters: dict[str, Any] = {
        key: list(value) if isinstance(value, tuple) else value for key, value in rope
    }
    if parameters["rope_type"] == "default":  # exact, where the library's are rounded to float32
        steps = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
        return float(parameters["rope_theta"]) ** -steps, 1.0
    config = LlamaConfig(
        hidden_size=head_dim,
        num_attention_heads=1,
        head_dim=head_dim,
        max_position_embeddings=max_positions,
        rope_parameters=parameters,
    )
    rotary = LlamaRotaryEmbedding(config)
    return rotary.inv_freq.double(), float(rotary.attention_scaling)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _is_same(own: Tensor, lent: Tensor) -> bool:
    return own.shape == lent.shape and torch.equal(own, lent.to(own.device, own.dtype))
