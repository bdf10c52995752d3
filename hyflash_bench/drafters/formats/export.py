"""Drafters trained here, written in the layout of vllm-project/speculators.

That layout knows EAGLE-3 and DFlash. Our ``eagle`` is EAGLE-3 when it reads layers of the target only
and its residual stream starts from their features; engines that load the layout can serve it. All else
has parts that the layout's types cannot say. It is written under a type of its own, with a notice that
only this package runs it: the same configuration around a description of the network.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hyflash_bench.atomic import write_text
from hyflash_bench.drafters.base import LoadContext
from hyflash_bench.drafters.formats.files import Layout
from hyflash_bench.drafters.formats.layouts import eagle_layout
from hyflash_bench.drafters.formats.vocabulary import vocabulary_tensors
from hyflash_bench.drafters.networks.block import BlockConfig, BlockNetwork
from hyflash_bench.drafters.networks.checkpoint import describe, write_tensors
from hyflash_bench.drafters.networks.eagle import EagleNetwork
from hyflash_bench.drafters.networks.network import DraftNetwork
from hyflash_bench.errors import DrafterError
from hyflash_bench.spec.formats.layer import LayerSizes
from hyflash_bench.spec.formats.recognise import CONFIG_FILE, EXPORTED_KEY, EXPORTED_TYPE
from hyflash_bench.targets.presets import hub_name

__all__ = ["export_speculators", "why_not_servable"]

_VERSION = "0.3.0"
"""Of speculators, whose layout this is."""
_LAYER = "layers.0"
_WEIGHTS_FILE = "model.safetensors"
_NO_PLACE = {
    "block": "its block starts from a map of the last features and slot codes, where DFlash has mask tokens, "
    "and its layers norm those features",
    "medusa": "its heads share the target's own matrix, and the layout has no Medusa",
}


def why_not_servable(network: DraftNetwork) -> str | None:
    """What of a network the layout's own types cannot say; None if other programs can serve it."""
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


def export_speculators(
    network: DraftNetwork, folder: Path, context: LoadContext, training: Mapping[str, Any] | None = None
) -> None:
    """Write a network in the layout; old files stay until the new ones are whole.

    What :func:`why_not_servable` has nothing against is written as ``eagle3`` with the target's rows of
    the head; everything else as ``hyflash-bench``.

    Args:
        network: Attached to the target.
        folder: Made if missing.
        context: The loaded target.
        training: How it was trained, kept where the type is our own.

    Raises:
        DataError: The disk is full or the folder cannot be written.
    """
    reason = why_not_servable(network)
    if reason is None:
        assert isinstance(network, EagleNetwork)
        config, tensors = _eagle3(network, context)
    else:
        config, tensors = _own(network, context, training or {}, reason)
    ids, vocab_size = network.head.draft_ids, network.config.target.vocab_size
    write_tensors(tensors | vocabulary_tensors(ids, vocab_size), folder / _WEIGHTS_FILE)
    write_text(folder / CONFIG_FILE, json.dumps(config, indent=2) + "\n")


# As EAGLE-3


def _eagle3(network: EagleNetwork, context: LoadContext) -> tuple[dict[str, Any], dict[str, Tensor]]:
    sizes = _sizes(network, context)
    tensors = _split(network, eagle_layout(network, sizes, _LAYER))
    tensors["lm_head.weight"] = network.head.rows.cpu().clone()
    config = {
        **_common(network, context, "eagle3", "Eagle3Speculator"),
        # Hidden states are counted, the embedding first, so each id is one above the layer read.
        "eagle_aux_hidden_state_layer_ids": [layer + 1 for layer in network.config.taps],
        "norm_before_residual": False,
        "norm_before_fc": False,
        "embed_requires_grad": False,
        "target_hidden_size": sizes.hidden_size,
        "transformer_layer_config": _layer(sizes, network, num_layers=1),
    }
    return config, tensors


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


# As our own


def _own(
    network: DraftNetwork, context: LoadContext, training: Mapping[str, Any], reason: str
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    config = {
        **_common(network, context, EXPORTED_TYPE, "HyFlashBenchDrafter"),
        "notice": f"Only hyflash-bench runs this drafter, other programs cannot: {reason}.",
        "aux_hidden_state_layer_ids": [layer + 1 for layer in network.requires.taps],
        EXPORTED_KEY: describe(network, training),
    }
    if isinstance(network, BlockNetwork | EagleNetwork):
        num_layers = network.config.num_layers if isinstance(network.config, BlockConfig) else 1
        config["transformer_layer_config"] = _layer(_sizes(network, context), network, num_layers=num_layers)
    return config, {name: _compact(value) for name, value in network.named_parameters()}


def _compact(value: Tensor) -> Tensor:
    """In bfloat16 where that loses nothing."""
    exact = value.detach().to("cpu", torch.float32)
    half = exact.bfloat16()
    return half if torch.equal(half.float(), exact) else exact


# What both say


def _common(
    network: DraftNetwork, context: LoadContext, model_type: str, architecture: str
) -> dict[str, Any]:
    config = network.config
    method = {
        "proposal_type": "greedy",
        "speculative_tokens": config.num_slots,
        "verifier_accept_k": 1,
        "accept_tolerance": 0.0,
    }
    verifier = {"name_or_path": hub_name(context.info), "architectures": [type(context.model).__name__]}
    return {
        "architectures": [architecture],
        "model_type": "speculators",
        "speculators_model_type": model_type,
        "speculators_version": _VERSION,
        "speculators_config": {
            "algorithm": model_type if model_type != EXPORTED_TYPE else network.kind,
            "default_proposal_method": "greedy",
            "proposal_methods": [method],
            "verifier": verifier,
        },
        "draft_vocab_size": config.draft_vocab_size,
        "tie_word_embeddings": False,
    }


def _sizes(network: BlockNetwork | EagleNetwork, context: LoadContext) -> LayerSizes:
    target, width = network.config.target, network.config.intermediate_size
    return LayerSizes(
        hidden_size=target.hidden_size,
        intermediate_size=width or target.intermediate_size,
        num_heads=target.num_heads,
        num_kv_heads=target.num_kv_heads,
        head_dim=target.head_dim,
        norm_eps=target.norm_eps,
        rope={"rope_type": "default", "rope_theta": target.rope_theta},
        max_positions=context.info.max_positions,
    )


def _layer(sizes: LayerSizes, network: DraftNetwork, *, num_layers: int) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": sizes.hidden_size,
        "intermediate_size": sizes.intermediate_size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": sizes.num_heads,
        "num_key_value_heads": sizes.num_kv_heads,
        "head_dim": sizes.head_dim,
        "rms_norm_eps": sizes.norm_eps,
        "rope_theta": sizes.rope["rope_theta"],
        "rope_parameters": sizes.rope,
        "max_position_embeddings": sizes.max_positions,
        "vocab_size": network.config.target.vocab_size,
        "attention_bias": False,
        "mlp_bias": False,
    }
