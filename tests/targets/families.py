"""Tiny random models of every supported family, built from configurations."""

from __future__ import annotations

from typing import Any

import torch
import transformers

from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.load import build_target
from hyflash_bench.targets.target import Target

VOCAB = 97
WINDOW = 7
_SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.1, 1.2],
    "long_factor": [1.5, 2.0, 3.0],
    "original_max_position_embeddings": 16,
    "partial_rotary_factor": 0.75,
}
_YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
_WITHOUT_WINDOW = ["full_attention", "sliding_attention", "full_attention"]

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama-biased": ("Llama", {"attention_bias": True, "tie_word_embeddings": True}),
    "llama-mha": ("Llama", {"num_key_value_heads": 6}),
    "llama-odd-head": ("Llama", {"head_dim": 12}),
    "llama-linear": (
        "Llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}},
    ),
    "llama-llama3": ("Llama", {"rope_parameters": _LLAMA3}),
    "llama-dynamic": (
        "Llama",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
    ),
    "smollm3": ("SmolLM3", {"no_rope_layers": [1, 0, 1]}),
    "smollm3-window": (
        "SmolLM3",
        {"use_sliding_window": True, "sliding_window": WINDOW, "no_rope_layers": [1, 0, 1]},
    ),
    "ministral": (
        "Ministral",
        {"sliding_window": WINDOW, "layer_types": _WITHOUT_WINDOW},
    ),
    "mistral-window": ("Mistral", {"sliding_window": WINDOW}),
    "mistral-full": ("Mistral", {"sliding_window": None}),
    "qwen2": ("Qwen2", {}),
    "qwen2-window": (
        "Qwen2",
        {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3", {}),
    "qwen3-yarn": ("Qwen3", {"rope_parameters": _YARN}),
    "gemma": ("Gemma", {"hidden_activation": "gelu_pytorch_tanh"}),
    "gemma2": (
        "Gemma2",
        {"sliding_window": WINDOW, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 2.0},
    ),
    "gemma3": (
        "Gemma3",
        {"sliding_window": WINDOW, "query_pre_attn_scalar": 24, "layer_types": _WITHOUT_WINDOW},
    ),
    "phi3": ("Phi3", {"hidden_size": 48}),
    "phi3-longrope": ("Phi3", {"rope_parameters": _LONGROPE, "original_max_position_embeddings": 16}),
}


def make_model(family: str, *, seed: int = 0, **changed: Any) -> Any:
    """A random model; its weights are large enough for attention to be far from uniform."""
    kind, changes = FAMILIES[family]
    config_class = getattr(transformers, "Gemma3TextConfig" if kind == "Gemma3" else f"{kind}Config")
    sizes = _SIZES | changes | changed
    torch.manual_seed(seed)
    model = getattr(transformers, f"{kind}ForCausalLM")(
        config_class(**sizes, attn_implementation="eager")
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.normal_(mean=parameter.mean().item(), std=0.1)
    return model


def make_target(model: Any, **options: Any) -> Target:
    return build_target(model, None, TargetSpec(target="tiny", **options))


def random_tokens(count: int, *, seed: int = 0) -> torch.Tensor:
    return torch.randint(3, VOCAB, (count,), generator=torch.Generator().manual_seed(seed))
