"""Drafters trained here, written in the layout of vllm-project/speculators, which servers load.

That layout knows EAGLE-3 and DFlash. Our ``eagle`` is EAGLE-3 when it reads layers of the target only
and its residual stream starts from their features; its other forms, block drafters, the memory and
heads that share the target's matrix have no place in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from hyflash_bench.atomic import replacing, write_text
from hyflash_bench.drafters.base import LoadContext
from hyflash_bench.drafters.formats.files import Layout
from hyflash_bench.drafters.formats.layouts import eagle_layout
from hyflash_bench.drafters.networks.eagle import EagleNetwork
from hyflash_bench.drafters.networks.network import DraftNetwork, TargetShape
from hyflash_bench.errors import DrafterError
from hyflash_bench.spec.formats.layer import LayerSizes
from hyflash_bench.spec.formats.recognise import CONFIG_FILE

__all__ = ["export_speculators", "why_not_speculators"]

_LAYER = "layers.0"
_NO_PLACE = {
    "block": "its block starts from a map of the last features and slot codes, where DFlash has mask tokens, "
    "and its layers norm those features",
    "medusa": "its heads share the target's own matrix, and the layout has no Medusa",
}


def why_not_speculators(network: DraftNetwork) -> str | None:
    """What of a network the layout cannot say; None if it can say all."""
    if not isinstance(network, EagleNetwork):
        return _NO_PLACE.get(network.kind, f"the layout has no {network.kind}")
    config = network.config
    reasons = {
        "it reads the target's last hidden state (train it with last_hidden=false)": config.last_hidden,
        "its residual stream starts from the token too (train it with token_residual=false)": (
            config.token_residual
        ),
        "it copies tokens (train it with copy_window=0)": config.copy_window > 0,
        "it reads the output of the target's last layer, which servers give after the norm": (
            config.taps[-1] >= config.target.num_layers - 1
        ),
    }
    found = [reason for reason, holds in reasons.items() if holds]
    return " and ".join(found) or None


def export_speculators(network: DraftNetwork, folder: Path, context: LoadContext) -> None:
    """Write a network as an EAGLE-3 of speculators; old files stay until the new ones are whole.

    Args:
        network: Attached to the target, whose rows of the head are written with it.
        folder: Made if missing.
        context: The loaded target.

    Raises:
        DrafterError: The layout cannot express it, with the reason.
        DataError: The disk is full or the folder cannot be written.
    """
    reason = why_not_speculators(network)
    if reason is not None:
        raise DrafterError(
            f"The speculators layout cannot express this drafter: {reason}. "
            "It can be run from its own folder as it is."
        )
    assert isinstance(network, EagleNetwork)
    sizes = _sizes(network, context)
    tensors = _split(network, eagle_layout(network, sizes, _LAYER))
    ids = network.head.draft_ids.cpu()
    chosen = torch.zeros(network.config.target.vocab_size, dtype=torch.bool)
    chosen[ids] = True
    tensors |= {
        "lm_head.weight": network.head.rows.cpu().clone(),
        "d2t": ids - torch.arange(len(ids)),
        "t2d": chosen,
    }
    with replacing(folder / "model.safetensors") as temporary:
        save_file(tensors, temporary)
        temporary.chmod(0o644)  # safetensors writes for its owner alone
    write_text(folder / CONFIG_FILE, json.dumps(_config(network, sizes), indent=2) + "\n")


def _split(network: EagleNetwork, layout: Layout) -> dict[str, Tensor]:
    """The file's tensors, from the parameters that they make up.

    Raises:
        DrafterError: A parameter that the layout has no name for.
    """
    if left := sorted({name for name, _ in network.named_parameters()} - layout.keys()):
        raise DrafterError(f"The speculators layout has no place for {', '.join(left)}.")
    tensors = {}
    for parameter, parts in layout.items():
        value = network.get_parameter(parameter).detach().to("cpu")
        pieces = torch.split(value, [rows for _, rows in parts])
        for (name, _), piece in zip(parts, pieces, strict=True):
            tensors[name] = piece.contiguous().clone()
    return tensors


def _sizes(network: EagleNetwork, context: LoadContext) -> LayerSizes:
    target: TargetShape = network.config.target
    return LayerSizes(
        hidden_size=target.hidden_size,
        intermediate_size=network.config.intermediate_size,
        num_heads=target.num_heads,
        num_kv_heads=target.num_kv_heads,
        head_dim=target.head_dim,
        norm_eps=target.norm_eps,
        rope={"rope_type": "default", "rope_theta": target.rope_theta},
        max_positions=context.info.max_positions,
    )


def _config(network: EagleNetwork, sizes: LayerSizes) -> Mapping[str, Any]:
    config = network.config
    return {
        "architectures": ["Eagle3Speculator"],
        "model_type": "speculators",
        "speculators_model_type": "eagle3",
        "draft_vocab_size": config.draft_vocab_size,
        # Hidden states are counted, the embedding first, so each id is one above the layer read.
        "eagle_aux_hidden_state_layer_ids": [layer + 1 for layer in config.taps],
        "norm_before_residual": False,
        "norm_before_fc": False,
        "embed_requires_grad": False,
        "target_hidden_size": sizes.hidden_size,
        "tie_word_embeddings": False,
        "transformer_layer_config": {
            "model_type": "llama",
            "hidden_act": "silu",
            "hidden_size": sizes.hidden_size,
            "intermediate_size": sizes.intermediate_size,
            "num_hidden_layers": 1,
            "num_attention_heads": sizes.num_heads,
            "num_key_value_heads": sizes.num_kv_heads,
            "head_dim": sizes.head_dim,
            "rms_norm_eps": sizes.norm_eps,
            "rope_theta": sizes.rope["rope_theta"],
            "rope_parameters": sizes.rope,
            "max_position_embeddings": sizes.max_positions,
            "vocab_size": config.target.vocab_size,
            "attention_bias": False,
            "mlp_bias": False,
        },
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [
                {
                    "proposal_type": "greedy",
                    "speculative_tokens": config.num_slots,
                    "verifier_accept_k": 1,
                    "accept_tolerance": 0.0,
                }
            ],
            "verifier": {"name_or_path": config.target.name, "architectures": []},
        },
    }
