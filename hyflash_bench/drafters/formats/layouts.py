"""How public checkpoints name the tensors that our networks hold."""

from __future__ import annotations

from torch import nn

from hyflash_bench.drafters.formats.files import Layout, Part, whole_part
from hyflash_bench.spec.formats.layer import LayerSizes
from hyflash_bench.spec.formats.medusa import PublicMedusaConfig

__all__ = ["dflash_layout", "eagle_layout", "head_parts"]


def eagle_layout(network: nn.Module, sizes: LayerSizes, layer: str) -> dict[str, list[Part]]:
    """EAGLE of any generation, ours included: parameters that a network has not are left out.

    Args:
        network: Has the parameters.
        sizes: Of its layer.
        layer: What names of the layer begin with: ``midlayer`` or ``layers.0``.
    """
    single = {
        "embedding": "embed_tokens.weight",
        "fusion.weight": "fc.weight",
        "fusion.bias": "fc.bias",
        "fusion_norm.weight": "input_norm.weight",
        "token_norm.weight": f"{layer}.input_layernorm.weight",
        "feature_norm.weight": f"{layer}.hidden_norm.weight",
        "output_norm.weight": "norm.weight",
        "head.norm.weight": "norm.weight",
        "head.rows": "lm_head.weight",
    }
    names = dict(network.named_parameters())
    tap_norms = [name for name in names if name.startswith("tap_norms.")]
    single |= {name: f"fc_norm.{index}.weight" for index, name in enumerate(tap_norms)}
    layout = {name: whole_part(network, name, file) for name, file in single.items() if name in names}
    return layout | _layer(network, sizes, "", layer)


def dflash_layout(network: nn.Module, sizes: LayerSizes, num_layers: int) -> Layout:
    """DFlash, of z-lab and of speculators."""
    single = {
        "embedding": "embed_tokens.weight",
        "fusion.weight": "fc.weight",
        "fused_norm.weight": "hidden_norm.weight",
        "head.norm.weight": "norm.weight",
        "head.rows": "lm_head.weight",
    }
    names = dict(network.named_parameters())
    layout = {name: whole_part(network, name, file) for name, file in single.items() if name in names}
    for index in range(num_layers):
        ours, theirs = f"layers.{index}.", f"layers.{index}"
        layout[f"{ours}input_norm.weight"] = whole_part(
            network, f"{ours}input_norm.weight", f"{theirs}.input_layernorm.weight"
        )
        layout |= _layer(network, sizes, ours, theirs)
    return layout


def head_parts(config: PublicMedusaConfig) -> dict[str, list[str]]:
    """Medusa heads: each parameter by the tensors that are stacked to it, layer by layer."""
    heads, layers = range(config.num_slots), range(config.hidden_layers)
    return {
        "weight": [f"{head}.{layer}.linear.weight" for layer in layers for head in heads],
        "bias": [f"{head}.{layer}.linear.bias" for layer in layers for head in heads],
        "matrices": [f"{head}.{config.hidden_layers}.weight" for head in heads],
    }


def _layer(network: nn.Module, sizes: LayerSizes, ours: str, theirs: str) -> dict[str, list[Part]]:
    """Attention and MLP of one layer."""
    queries, sides = sizes.num_heads * sizes.head_dim, sizes.num_kv_heads * sizes.head_dim
    # Networks trained here have the projections beside the norms, without a part of their own.
    names = dict(network.named_parameters())
    inner = f"{ours}attention." if f"{ours}attention.query.weight" in names else ours
    layout: dict[str, list[Part]] = {}
    for kind in ("weight", "bias"):
        attention = f"{theirs}.self_attn"
        layout[f"{inner}query.{kind}"] = [(f"{attention}.q_proj.{kind}", queries)]
        layout[f"{inner}key_value.{kind}"] = [(f"{attention}.{name}_proj.{kind}", sides) for name in "kv"]
        layout[f"{inner}output.{kind}"] = [(f"{attention}.o_proj.{kind}", sizes.hidden_size)]
    layout[f"{inner}query_norm.weight"] = [(f"{theirs}.self_attn.q_norm.weight", sizes.head_dim)]
    layout[f"{inner}key_norm.weight"] = [(f"{theirs}.self_attn.k_norm.weight", sizes.head_dim)]
    layout[f"{ours}mlp_norm.weight"] = [(f"{theirs}.post_attention_layernorm.weight", sizes.hidden_size)]
    width = sizes.intermediate_size
    layout[f"{ours}mlp.gate_up.weight"] = [
        (f"{theirs}.mlp.{name}_proj.weight", width) for name in ("gate", "up")
    ]
    layout[f"{ours}mlp.down.weight"] = [(f"{theirs}.mlp.down_proj.weight", sizes.hidden_size)]
    return {name: parts for name, parts in layout.items() if name in names}
