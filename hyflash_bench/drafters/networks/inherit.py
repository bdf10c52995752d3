"""Starts a block drafter from the last layers of its target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hyflash_bench.drafters.networks.layers import SwiGLU

if TYPE_CHECKING:
    from hyflash_bench.drafters.networks.block import BlockNetwork
    from hyflash_bench.drafters.networks.block_layer import BlockLayer

__all__ = ["inherit"]

_FUSE_NOISE = 1e-3
_FOREIGN_NORMS = ("gemma", "gemma2", "gemma3_text")
"""Families whose norms are stored as distance from 1, or stand elsewhere in the layer."""


@torch.no_grad()
def inherit(network: BlockNetwork, model: Any) -> None:
    """Copy what fits: the last L layers, the final norm; fused features start as the highest tap.

    Args:
        network: A new network.
        model: The transformers model of its target. What has other names or shapes there is left as
            it was.
    """
    config = network.config
    size = config.target.hidden_size
    # The highest tap is what the target's last layers read, if it is tapped just below them.
    start = max(len(config.taps) - 1, 0) * size
    network.fuse.weight.normal_(std=_FUSE_NOISE * size**-0.5)
    network.fuse.weight[:, start : start + size] += torch.eye(size)
    if getattr(model.config, "model_type", "") in _FOREIGN_NORMS:
        return
    body = getattr(model, "model", None)
    _copy(network.head.norm.weight, _weight(body, "norm"))
    sources = list(getattr(body, "layers", []))[-config.num_layers :]
    for layer, source in zip(network.layers, sources, strict=False):
        _inherit_layer(layer, source)


def _inherit_layer(layer: BlockLayer, source: Any) -> None:
    _copy(layer.input_norm.weight, _weight(source, "input_layernorm"))
    _copy(layer.mlp_norm.weight, _weight(source, "post_attention_layernorm"))
    attention, mlp = getattr(source, "self_attn", None), getattr(source, "mlp", None)
    _copy(layer.qkv.weight, _joined(attention, "qkv_proj", ("q_proj", "k_proj", "v_proj")))
    _copy(layer.out.weight, _weight(attention, "o_proj"))
    gate_up = _joined(mlp, "gate_up_proj", ("gate_proj", "up_proj"))
    down = _weight(mlp, "down_proj")
    if gate_up is not None and down is not None:
        _inherit_mlp(layer.mlp, gate_up.float(), down.float())


def _inherit_mlp(mine: SwiGLU, gate_up: Tensor, down: Tensor) -> None:
    """The neurons with the largest weights; surplus ones of the drafter start without an effect."""
    size = mine.down.weight.shape[0]
    if gate_up.shape != (2 * down.shape[1], size) or down.shape[0] != size:
        return
    gate, up = gate_up.chunk(2)
    weights = gate.norm(dim=1) * up.norm(dim=1) * down.norm(dim=0)
    width = mine.down.weight.shape[1]
    kept = weights.topk(min(width, len(weights))).indices.sort().values
    my_gate, my_up = mine.gate_up.weight.chunk(2)
    my_gate[: len(kept)] = gate[kept]
    my_up[: len(kept)] = up[kept]
    mine.down.weight.zero_()
    mine.down.weight[:, : len(kept)] = down[:, kept]


def _joined(holder: Any, fused: str, parts: tuple[str, ...]) -> Tensor | None:
    whole = _weight(holder, fused)
    if whole is not None:
        return whole
    weights = [_weight(holder, name) for name in parts]
    present = [weight for weight in weights if weight is not None]
    return torch.cat(present) if len(present) == len(parts) else None


def _weight(holder: Any, name: str) -> Tensor | None:
    weight = getattr(getattr(holder, name, None), "weight", None)
    return weight.detach() if isinstance(weight, Tensor) else None


def _copy(mine: Tensor, theirs: Tensor | None) -> None:
    if theirs is not None and theirs.shape == mine.shape:
        mine.copy_(theirs)
