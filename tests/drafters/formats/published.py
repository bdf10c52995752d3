"""Random checkpoints in the layouts of public ones, scaled down to a tiny target."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from hyflash_bench.drafters import Features, LoadContext, Requires
from hyflash_bench.targets.target import Target
from tests.drafters.formats.configs import CONFIGS, DFLASH, EAGLE, MEDUSA
from tests.targets.families import VOCAB, make_model, make_target

NUM_LAYERS = 8
DRAFT_IDS = [*range(3, 60), *range(70, 90)]
MASK = 95


@cache
def target(family: str = "llama") -> Target:
    """A tiny target with layers enough for every default."""
    return make_target(make_model(family, num_hidden_layers=NUM_LAYERS))


def context(family: str = "llama") -> LoadContext:
    return target(family).load_context()


def features_of(tokens: Tensor, requires: Requires, family: str = "llama") -> Features:
    return target(family).prefill(tokens, target(family).new_cache(len(tokens)), requires).features


def hidden_states(tokens: Tensor, family: str = "llama") -> list[Tensor]:
    """As transformers counts them: the embedding first, the last one normed."""
    with torch.no_grad():
        output = target(family).model(tokens[None], output_hidden_states=True)
    return [states[0] for states in output.hidden_states]


def scaled(name: str) -> dict[str, Any]:
    """The configuration of a small checkpoint of the same layout, for the tiny target."""
    config = deepcopy(CONFIGS[name])
    layers = config.get("transformer_layer_config", config)
    if "hidden_size" in layers:
        has_dim = "head_dim" in layers
        layers |= {
            "hidden_size": 48,
            "intermediate_size": 40,
            "num_attention_heads": 6 if has_dim else 4,
            "num_key_value_heads": 6 if layers["num_key_value_heads"] == 32 else 2,
            "vocab_size": VOCAB,
        }
        if has_dim:
            layers["head_dim"] = 16  # not hidden_size / heads, as in Qwen3
        elif layers["num_key_value_heads"] == 6:
            layers["num_attention_heads"] = 6
        if layers.get("sliding_window"):
            layers["sliding_window"] = 7
        if layers.get("rope_theta"):
            layers["rope_theta"] = 1_000.0
        if layers.get("rope_scaling"):
            layers["rope_scaling"] |= {"original_max_position_embeddings": 32}
    small = {"num_target_layers": NUM_LAYERS, "aux_hidden_state_layer_ids": [2, 4, 7][: _taps(config)]}
    for key, value in small.items():
        if key in config:
            config[key] = value
    if config.get("draft_vocab_size"):
        whole = config["draft_vocab_size"] == CONFIGS[name].get("transformer_layer_config", {}).get(
            "vocab_size"
        )
        config["draft_vocab_size"] = VOCAB if whole else len(DRAFT_IDS)
    if config.get("eagle_aux_hidden_state_layer_ids"):
        config["eagle_aux_hidden_state_layer_ids"] = [2, 4, 6]
    if "eagle_config" in config:
        config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = [1, 3, 4]
    if "mask_token_id" in config:
        config["mask_token_id"] = MASK
    if "dflash_config" in config:
        config["dflash_config"] |= {"mask_token_id": MASK, "target_layer_ids": [1, 3, 6]}
    return config


def _taps(config: dict[str, Any]) -> int:
    return len(config.get("aux_hidden_state_layer_ids", []))


def tensors_of(name: str, config: dict[str, Any], *, seed: int = 0) -> dict[str, Tensor]:
    """Random tensors with the names and shapes of the published file."""
    shapes = _shapes(name, config)
    draw = torch.Generator().manual_seed(seed)
    size = 0.6 if name in EAGLE else 1.5  # without norms, larger ones would blow rounding up step by step
    tensors = {}
    for key, shape in shapes.items():
        if (
            key.endswith("norm.weight")
            or "layernorm" in key
            or ".fc_norm" in key
            or key.startswith("fc_norm")
        ):
            tensors[key] = 1 + 0.3 * torch.randn(shape, generator=draw)
        else:
            tensors[key] = torch.randn(shape, generator=draw) * (size / shape[-1] ** 0.5)
    if "d2t" in shapes:
        ids = torch.tensor(DRAFT_IDS)
        tensors["d2t"] = ids - torch.arange(len(ids))
        tensors["t2d"] = torch.zeros(VOCAB, dtype=torch.bool).index_fill_(0, ids, True)
    return tensors


def _shapes(name: str, config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    if name == MEDUSA:
        size = 48
        shapes: dict[str, tuple[int, ...]] = {}
        for head in range(5):
            shapes[f"{head}.0.linear.weight"] = (size, size)
            shapes[f"{head}.0.linear.bias"] = (size,)
            shapes[f"{head}.1.weight"] = (VOCAB, size)
        return shapes
    layers = config.get("transformer_layer_config", config)
    size, draft = layers["hidden_size"], config.get("draft_vocab_size", layers["vocab_size"])
    reduced = {"lm_head.weight": (draft, size), "d2t": (draft,), "t2d": (layers["vocab_size"],)}
    if name in DFLASH:
        inner = config.get("dflash_config", {})
        taps = inner.get("target_layer_ids") or config["aux_hidden_state_layer_ids"]
        shapes = {
            "fc.weight": (size, len(taps) * size),
            "hidden_norm.weight": (size,),
            "norm.weight": (size,),
        }
        for index in range(layers["num_hidden_layers"]):
            shapes |= _layer(f"layers.{index}", layers, size, {"input_layernorm"}, qk_norm=True)
        return shapes | (reduced if draft != layers["vocab_size"] else {})
    if name in EAGLE:
        shapes = {"embed_tokens.weight": (layers["vocab_size"], size), "fc.weight": (size, 2 * size)}
        if config.get("bias", True):
            shapes["fc.bias"] = (size,)
        return shapes | _layer("layers.0", layers, size, set(), bias=config.get("qkv_bias", False))
    is_speculators = "speculators_model_type" in config
    shapes = {"fc.weight": (size, 3 * size), "norm.weight": (size,)} | reduced
    if config.get("norm_before_fc"):
        shapes["input_norm.weight"] = (3 * size,)
    if config.get("fc_norm"):
        shapes |= {f"fc_norm.{index}.weight": (size,) for index in range(3)}
    if is_speculators:
        shapes["embed_tokens.weight"] = (layers["vocab_size"], size)
    layer = "layers.0" if is_speculators else "midlayer"
    norms = {"input_layernorm", "hidden_norm"}
    qk_norm = is_speculators and layers["model_type"] == "qwen3"
    return shapes | _layer(layer, layers, 2 * size, norms, qk_norm=qk_norm)


def _layer(
    name: str,
    layers: dict[str, Any],
    inputs: int,
    norms: set[str],
    *,
    qk_norm: bool = False,
    bias: bool = False,
) -> dict[str, tuple[int, ...]]:
    size, width = layers["hidden_size"], layers["intermediate_size"]
    dim = layers.get("head_dim", size // layers["num_attention_heads"])
    heads = {"q": layers["num_attention_heads"], "k": layers["num_key_value_heads"]}
    heads["v"] = heads["k"]
    shapes: dict[str, tuple[int, ...]] = {}
    for key, count in heads.items():
        shapes[f"{name}.self_attn.{key}_proj.weight"] = (count * dim, inputs)
        if bias:
            shapes[f"{name}.self_attn.{key}_proj.bias"] = (count * dim,)
    shapes[f"{name}.self_attn.o_proj.weight"] = (size, heads["q"] * dim)
    if qk_norm:
        shapes |= {f"{name}.self_attn.{key}_norm.weight": (dim,) for key in "qk"}
    shapes |= {f"{name}.mlp.{key}_proj.weight": (width, size) for key in ("gate", "up")}
    shapes[f"{name}.mlp.down_proj.weight"] = (size, width)
    return shapes | {
        f"{name}.{norm}.weight": (size,) for norm in sorted({*norms, "post_attention_layernorm"})
    }


def write(
    folder: Path, name: str, *, config: dict[str, Any] | None = None, tensors: dict[str, Tensor] | None = None
) -> Path:
    """Write a small checkpoint as the published one is written."""
    config = scaled(name) if config is None else config
    tensors = tensors_of(name, config) if tensors is None else tensors
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if name == MEDUSA:
        torch.save(tensors, folder / "medusa_lm_head.pt")
    elif name in EAGLE or name == "EAGLE3-LLaMA3.1-Instruct-8B":
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        save_file(tensors, folder / "model.safetensors")
    return folder
