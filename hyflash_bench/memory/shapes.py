"""A target's sizes from its configuration alone: bytes of weights and KV, cost of a pass. No torch.

Only what decides bytes and operations is read, so a model that would never fit here can be planned for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hyflash_bench.errors import TargetError, UnsupportedTarget
from hyflash_bench.footprint import KV_DTYPES, KVDtype, kv_row_bytes
from hyflash_bench.spec.target import FAMILIES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Amount = float | NDArray[np.float64]

__all__ = [
    "KV_DTYPES",
    "WEIGHT_BITS",
    "KVDtype",
    "ModelShape",
    "PassCost",
    "WeightBits",
    "known_shape",
    "kv_row_bytes",
    "matrix_bytes",
    "shape_of",
]

WeightBits = Literal[32, 16, 8, 4]

WEIGHT_BITS: tuple[WeightBits, ...] = (32, 16, 8, 4)

_GROUP = 32
_SCALE_BYTES = 2
"""Weights of 8 and 4 bits come in groups of 32 with one float16 scale, as GGUF's Q8_0 and Q4_0."""

_FOUR_NORMS = ("gemma2", "gemma3_text")
_HEAD_NORMS = ("gemma3_text", "qwen3")


@dataclass(frozen=True, slots=True)
class PassCost:
    """What passes of one kind take; numbers, or arrays of one length.

    Attributes:
        flops: Operations of one pass, an addition and a product being two.
        num_bytes: Read and written by one pass.
        num_passes: How many follow each other.
        num_layers: Layers of one pass.
        score_flops: Of the operations, those of attention.
        cache_bytes: Of the bytes, those of keys and values.
        num_operators: Operators that a torch module starts one by one; 0 for a compiled pass.
        routine: Instead of all this: a routine whose seconds a device's profile may know as a whole.
    """

    flops: Amount
    num_bytes: Amount
    num_passes: Amount = 1.0
    num_layers: int = 1
    score_flops: Amount = 0.0
    cache_bytes: Amount = 0.0
    num_operators: Amount = 0.0
    routine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Sizes of a Llama-type model.

    Attributes:
        name: Short, fit for tables.
        num_layers: Decoder layers.
        hidden_size: Width of the residual stream.
        intermediate_size: Width of the MLP.
        num_heads: Query heads.
        num_kv_heads: Key and value heads.
        head_dim: Size of a head.
        vocab_size: Rows of the head.
        tied: Embedding and head are one tensor.
        max_positions: Longest context it was made for; None if its configuration does not say.
        num_vector_parameters: Of norms and biases.
    """

    name: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    tied: bool
    max_positions: int | None
    num_vector_parameters: int

    @property
    def num_layer_parameters(self) -> int:
        """Of the matrices of all layers."""
        attention = 2 * (self.num_heads + self.num_kv_heads) * self.head_dim
        return self.num_layers * self.hidden_size * (attention + 3 * self.intermediate_size)

    @property
    def num_head_parameters(self) -> int:
        """Of the matrix over the vocabulary."""
        return self.vocab_size * self.hidden_size

    @property
    def num_parameters(self) -> int:
        """All of them; a tied embedding counts once."""
        tables = self.num_head_parameters * (1 if self.tied else 2)
        return self.num_layer_parameters + tables + self.num_vector_parameters

    def weight_bytes(self, bits: WeightBits) -> int:
        """Bytes of all weights; norms and biases stay at 16 bits or more."""
        matrices = self.num_parameters - self.num_vector_parameters
        return matrix_bytes(matrices, bits) + self.num_vector_parameters * max(bits, 16) // 8

    def kv_bytes_per_token(self, dtype: KVDtype) -> int:
        """Bytes that one token takes in the KV cache."""
        return self.num_layers * kv_row_bytes(self.num_kv_heads, self.head_dim, dtype)

    def pass_cost(
        self,
        rows: Amount,
        context_length: Amount,
        *,
        bits: WeightBits,
        kv_dtype: KVDtype,
        logit_rows: Amount | None = None,
    ) -> PassCost:
        """A pass of some rows behind a cached context.

        Every row is multiplied with every key, those after it included, as dense kernels do and as
        torch's counter counts. Of the embedding only the looked-up rows are read; the head is read
        whole. Norms, rotations and activations in between are left out.

        Args:
            rows: T tokens.
            context_length: Tokens in the cache before them.
            bits: Of the weights.
            kv_dtype: Of the cache.
            logit_rows: Rows that get logits; all by default.
        """
        scored = rows if logit_rows is None else logit_rows
        keys = context_length + rows
        products = rows * self.num_layer_parameters + scored * self.num_head_parameters
        scores = 2 * self.num_layers * self.num_heads * self.head_dim * rows * keys
        read = matrix_bytes(self.num_layer_parameters + self.num_head_parameters, bits)
        read += self.num_vector_parameters * max(bits, 16) // 8
        cached = self.kv_bytes_per_token(kv_dtype) * (keys + rows)
        return PassCost(
            2 * (products + scores),
            read + cached,
            num_layers=self.num_layers,
            score_flops=2 * scores,
            cache_bytes=cached,
        )


def matrix_bytes(num_parameters: int, bits: WeightBits) -> int:
    """Bytes of matrices at so many bits, scales of groups included."""
    if bits >= 16:
        return num_parameters * bits // 8
    return num_parameters * bits // 8 + -(-num_parameters // _GROUP) * _SCALE_BYTES


def shape_of(config: Mapping[str, Any], name: str) -> ModelShape:
    """Sizes that a transformers configuration says.

    Raises:
        UnsupportedTarget: Another family.
        TargetError: A size is missing or no positive number.
    """
    config = config.get("text_config") or config
    family = str(config.get("model_type"))
    if family not in FAMILIES:
        raise UnsupportedTarget(
            f"The target {name!r} is of type {family!r}, whose sizes are not known here. "
            f"Known are {', '.join(FAMILIES)}."
        )
    hidden = _count(config, "hidden_size", name)
    layers = _count(config, "num_hidden_layers", name)
    heads = _count(config, "num_attention_heads", name)
    sizes = {
        "hidden_size": hidden,
        "intermediate_size": _count(config, "intermediate_size", name),
        "num_heads": heads,
        "num_kv_heads": _count(config, "num_key_value_heads", name, heads),
        "head_dim": _count(config, "head_dim", name, max(1, hidden // heads)),
        "vocab_size": _count(config, "vocab_size", name),
    }
    limit = config.get("max_position_embeddings")
    return ModelShape(
        name=name,
        num_layers=layers,
        tied=bool(config.get("tie_word_embeddings", family.startswith("gemma"))),
        max_positions=None if limit is None else _count(config, "max_position_embeddings", name),
        num_vector_parameters=hidden + layers * _layer_vectors(config, family, sizes),
        **sizes,
    )


def known_shape(info: Mapping[str, Any]) -> ModelShape:
    """Sizes of a target that was run, from the facts that its run has kept.

    Earlier runs did not keep the width of the MLP; it follows from the number of parameters.

    Raises:
        TargetError: It does not.
    """
    name = str(info.get("name"))
    hidden, layers = _count(info, "hidden_size", name), _count(info, "num_layers", name)
    heads, kv_heads = _count(info, "num_attention_heads", name), _count(info, "num_kv_heads", name)
    head_dim, vocab = _count(info, "head_dim", name), _count(info, "vocab_size", name)
    rest = _count(info, "num_parameters", name) - layers * hidden * 2 * (heads + kv_heads) * head_dim
    table = vocab * hidden
    width = info.get("intermediate_size") or _width_within(
        rest - hidden * (2 * layers + 1), layers * hidden, table
    )
    if width is None:
        raise TargetError(
            f"The run does not say how wide the layers of {name!r} are, so its passes cannot be counted. "
            "Run it again with this version."
        )
    rest -= 3 * layers * hidden * int(width)
    tied = rest < 2 * table
    return ModelShape(
        name=name,
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=int(width),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=vocab,
        tied=tied,
        max_positions=info.get("max_positions"),
        num_vector_parameters=rest - table * (1 if tied else 2),
    )


def _width_within(num_parameters: int, rows: int, table: int) -> int | None:
    """Width of the MLPs that, with one or two tables, make up so many parameters; None if none does."""
    for rest in (num_parameters - table, num_parameters - 2 * table):
        if rest > 0 and rest % (3 * rows) == 0:
            return rest // (3 * rows)
    return None


def _layer_vectors(config: Mapping[str, Any], family: str, sizes: Mapping[str, int]) -> int:
    """Parameters of one layer's norms and biases."""
    hidden, head_dim = sizes["hidden_size"], sizes["head_dim"]
    total = hidden * (4 if family in _FOUR_NORMS else 2)
    total += 2 * head_dim if family in _HEAD_NORMS else 0
    outputs = (sizes["num_heads"] + 2 * sizes["num_kv_heads"]) * head_dim
    if family == "qwen2":
        total += outputs
    elif config.get("attention_bias"):
        total += outputs + hidden
    if config.get("mlp_bias"):
        total += 2 * sizes["intermediate_size"] + hidden
    return total


def _count(config: Mapping[str, Any], key: str, name: str, default: int | None = None) -> int:
    value = config.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TargetError(
            f"The configuration of {name!r} says {key}={value!r}; a positive whole number is needed there."
        )
    return value
