"""Reads a transformers model into the few tensors and numbers that a decoder pass needs.

The families below share one shape: RMS norm, grouped-query attention with rotary positions, a
gated MLP. They differ in where norms stand, how they are scaled and which layers slide a window.
Reading them into one record lets one short forward serve all of them. The model's own parameters
become views of the fused weights, so nothing is held twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from hyflash_bench.errors import UnsupportedTarget
from hyflash_bench.spec.target import FAMILIES, WRAPPERS

__all__ = [
    "UNROTATED",
    "Activation",
    "Architecture",
    "Layer",
    "Linear",
    "Norm",
    "check_supported",
    "read",
    "text_config",
]

Activation = Literal["silu", "gelu_tanh", "gelu"]


UNROTATED = "unrotated"
"""Kind of the layers that know nothing of positions."""

_ZERO_CENTRED = ("gemma", "gemma2", "gemma3_text")
"""Families whose norm weights are stored as distance from 1."""

_ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
}
_LAYER_TYPES = {"full_attention", "sliding_attention"}
_ROPE_TYPES = ("default", "dynamic", "linear", "llama3", "longrope", "yarn")
_GROWING_ROPE = "dynamic"
"""Plain rotation up to the model's own limit, and other rotations at every length beyond."""


@dataclass(frozen=True, slots=True)
class Norm:
    """RMS norm: ``x / rms(x) * weight``.

    Attributes:
        weight: ``[d]``; float32 where the family scales before rounding to its dtype.
        eps: Added to the mean square.
    """

    weight: Tensor
    eps: float


@dataclass(frozen=True, slots=True)
class Linear:
    """``x @ weight.T + bias``; weight is ``[out, in]`` and contiguous."""

    weight: Tensor
    bias: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer.

    Attributes:
        input_norm: Before attention.
        qkv: Queries, keys and values in one product.
        query_norm: Per head, before rotation; None in most families.
        key_norm: Likewise.
        output: Attention's output projection.
        attention_norm: On attention's output, before it joins the residual; Gemma 2 and 3 only.
        mlp_norm: Before the MLP.
        gate_up: Gate and up in one product.
        down: Back to the hidden size.
        down_norm: On the MLP's output; Gemma 2 and 3 only.
        window: Positions that a row sees, itself included; None for all.
        kind: Key of the rotary table; :data:`UNROTATED` without one.
    """

    input_norm: Norm
    qkv: Linear
    query_norm: Norm | None
    key_norm: Norm | None
    output: Linear
    attention_norm: Norm | None
    mlp_norm: Norm
    gate_up: Linear
    down: Linear
    down_norm: Norm | None
    window: int | None
    kind: str


@dataclass(frozen=True, slots=True)
class Architecture:
    """A decoder-only model, ready to run.

    Attributes:
        layers: From the bottom up.
        final_norm: After the last layer.
        head: To the vocabulary; shares the embedding's weight where tied.
        num_heads: Query heads.
        num_kv_heads: Key and value heads.
        head_dim: Size of a head.
        attention_scale: Factor of attention scores.
        attention_softcap: Scores go through ``tanh(s / c) * c``; None where they do not.
        logit_softcap: Likewise for logits.
        activation: Of the gate.
    """

    layers: tuple[Layer, ...]
    final_norm: Norm
    head: Linear
    num_heads: int
    num_kv_heads: int
    head_dim: int
    attention_scale: float
    attention_softcap: float | None
    logit_softcap: float | None
    activation: Activation

    @property
    def linears(self) -> tuple[Linear, ...]:
        """Every matrix that a pass multiplies with."""
        inner = [
            linear for layer in self.layers for linear in (layer.qkv, layer.output, layer.gate_up, layer.down)
        ]
        return (*inner, self.head)


def text_config(config: Any) -> Any:
    """The part of a transformers configuration that is about text, for types in :data:`WRAPPERS`."""
    return config.text_config if getattr(config, "model_type", None) in WRAPPERS else config


def check_supported(config: Any, *, extrapolate: bool = False) -> None:
    """Refuse a configuration that the engine cannot verify losslessly.

    Args:
        config: A transformers configuration, before any weight is read.
        extrapolate: Contexts beyond the model's own limit are wanted.

    Raises:
        UnsupportedTarget: With the reason and what is supported.
    """
    config = text_config(config)
    reason = _refusal(config)
    if reason is not None:
        raise UnsupportedTarget(
            f"{reason}. Supported: decoder-only models of type {', '.join(FAMILIES)}, whose layers "
            f"all attend fully or through a sliding window, and the text part of {', '.join(WRAPPERS)}."
        )
    if extrapolate and _GROWING_ROPE in _rope_types(config):
        raise UnsupportedTarget(
            f"Rotary scaling {_GROWING_ROPE!r} turns all positions anew with every token past the model's "
            f"own limit of {config.max_position_embeddings}, which a cache cannot follow. Drop extrapolate."
        )


def _refusal(config: Any) -> str | None:
    kind = str(getattr(config, "model_type", "unknown"))
    foreign = sorted(
        set(getattr(config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    )
    if getattr(config, "is_encoder_decoder", False):
        return f"Model type {kind!r} is an encoder-decoder"
    if foreign:
        layers = ", ".join(foreign)
        return f"Model type {kind!r} has layers of type {layers}, whose state cannot be cut back"
    if kind not in FAMILIES:
        return f"Model type {kind!r} is not known to the engine"
    activation = getattr(config, "hidden_activation", None) or config.hidden_act
    scaling = [kind for kind in _rope_types(config) if kind not in _ROPE_TYPES]
    reason = None
    if activation not in _ACTIVATIONS:
        reason = f"Activation {activation!r} is not one of {', '.join(sorted(_ACTIVATIONS))}"
    elif scaling:
        reason = f"Rotary scaling {scaling[0]!r} is not one of {', '.join(_ROPE_TYPES)}"
    elif getattr(config, "use_bidirectional_attention", False):
        reason = f"This {kind!r} model attends in both directions"
    return reason


def _rope_types(config: Any) -> list[str]:
    parameters = dict(getattr(config, "rope_parameters", None) or {})
    nested = [value for value in parameters.values() if isinstance(value, dict) and "rope_type" in value]
    return [str(entry.get("rope_type", "default")) for entry in (nested or [parameters])]


def read(model: nn.Module) -> Architecture:
    """Read a loaded model; its parameters become views of the fused weights.

    Raises:
        UnsupportedTarget: See :func:`check_supported`.
    """
    config: Any = model.config
    check_supported(config)
    body: Any = model.get_submodule("model")
    layers = tuple(_read_layer(layer, index, config) for index, layer in enumerate(body.layers))
    head: Any = model.get_submodule("lm_head")
    attention = body.layers[0].self_attn
    return Architecture(
        layers=layers,
        final_norm=_read_norm(body.norm, config),
        head=Linear(head.weight.data, None if head.bias is None else head.bias.data),
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=attention.head_dim,
        attention_scale=float(attention.scaling),
        attention_softcap=config.attn_logit_softcapping if config.model_type == "gemma2" else None,
        logit_softcap=getattr(config, "final_logit_softcapping", None),
        activation=_ACTIVATIONS[getattr(config, "hidden_activation", None) or config.hidden_act],
    )


def _read_layer(layer: Any, index: int, config: Any) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    has_sandwich = hasattr(layer, "pre_feedforward_layernorm")
    if config.model_type == "phi3":
        qkv, gate_up = _fuse([attention.qkv_proj]), _fuse([mlp.gate_up_proj])
    else:
        qkv = _fuse([attention.q_proj, attention.k_proj, attention.v_proj])
        gate_up = _fuse([mlp.gate_proj, mlp.up_proj])

    def norm(name: str, holder: Any = layer) -> Norm | None:
        module = getattr(holder, name, None)
        return None if module is None else _read_norm(module, config)

    mlp_norm = norm("pre_feedforward_layernorm" if has_sandwich else "post_attention_layernorm")
    assert mlp_norm is not None
    layer_types = getattr(config, "layer_types", None)
    kind = layer_types[index] if layer_types is not None else "full_attention"
    window = getattr(config, "sliding_window", None)
    if layer_types is not None and kind != "sliding_attention":
        window = None
    if not getattr(attention, "use_rope", True):
        kind = UNROTATED
    return Layer(
        input_norm=_read_norm(layer.input_layernorm, config),
        qkv=qkv,
        query_norm=norm("q_norm", attention),
        key_norm=norm("k_norm", attention),
        output=_fuse([attention.o_proj]),
        attention_norm=norm("post_attention_layernorm") if has_sandwich else None,
        mlp_norm=mlp_norm,
        gate_up=gate_up,
        down=_fuse([mlp.down_proj]),
        down_norm=norm("post_feedforward_layernorm") if has_sandwich else None,
        window=window,
        kind=kind,
    )


def _read_norm(module: Any, config: Any) -> Norm:
    weight = module.weight.data
    if config.model_type in _ZERO_CENTRED:
        weight = 1.0 + weight.float()
    eps = getattr(module, "variance_epsilon", None)
    return Norm(weight, float(module.eps if eps is None else eps))


def _fuse(modules: list[Any]) -> Linear:
    """Lay projections that read the same input one below the other in memory."""
    if len(modules) == 1:
        module = modules[0]
        module.weight.data = module.weight.data.contiguous()
        return Linear(module.weight.data, None if module.bias is None else module.bias.data)
    weight = torch.cat([module.weight.data for module in modules])
    for module, part in zip(
        modules, torch.split(weight, [module.out_features for module in modules]), strict=True
    ):
        module.weight.data = part
    if modules[0].bias is None:
        return Linear(weight)
    return Linear(weight, torch.cat([module.bias.data for module in modules]))
