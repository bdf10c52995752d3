"""Configurations of public checkpoints, as far as they bear on what is computed."""

from __future__ import annotations

from typing import Any

_QWEN3_4B = {
    "model_type": "qwen3",
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_act": "silu",
    "attention_bias": False,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000,
    "rope_scaling": None,
    "max_position_embeddings": 40960,
    "vocab_size": 151936,
}
_LLAMA_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 500_000.0,
    "max_position_embeddings": 2048,
    "vocab_size": 128256,
}
_SLIDING, _FULL = "sliding_attention", "full_attention"


def _speculators(kind: str, layers: dict[str, Any], num_tokens: int, **fields: Any) -> dict[str, Any]:
    return {
        "architectures": ["DFlashDraftModel" if kind == "dflash" else "Eagle3Speculator"],
        "speculators_model_type": kind,
        "speculators_version": "0.3.0",
        "speculators_config": {
            "algorithm": kind,
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": num_tokens}],
            "verifier": {"name_or_path": "Qwen/Qwen3-8B", "architectures": ["Qwen3ForCausalLM"]},
        },
        "transformer_layer_config": layers,
        **fields,
    }


CONFIGS: dict[str, dict[str, Any]] = {
    "Qwen3-4B-DFlash-b16": {
        **_QWEN3_4B,
        "architectures": ["DFlashDraftModel"],
        "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
        "num_hidden_layers": 5,
        "num_target_layers": 36,
        "block_size": 16,
        "layer_types": [_FULL] * 5,
        "sliding_window": None,
        "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
    },
    "Qwen3-8B-DFlash-b16": {
        **_QWEN3_4B,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "architectures": ["DFlashDraftModel"],
        "num_hidden_layers": 5,
        "num_target_layers": 36,
        "block_size": 16,
        "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
    },
    "DFlash, block size inside, sliding": {
        **{key: value for key, value in _QWEN3_4B.items() if not key.startswith("rope")},
        "architectures": ["DFlashDraftModel"],
        "num_hidden_layers": 4,
        "num_target_layers": 36,
        "layer_types": [_SLIDING, _FULL, _SLIDING, _FULL],
        "sliding_window": 2048,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
        "dflash_config": {
            "block_size": 8,
            "mask_token_id": 151669,
            "target_layer_ids": [5, 19, 33],
            "input_embedding_scale": 2.0,
            "output_multiplier": 0.5,
            "final_logit_softcapping": 20.0,
        },
    },
    "DFlash, sliding both ways": {
        **_QWEN3_4B,
        "architectures": ["DFlashDraftModel"],
        "num_hidden_layers": 2,
        "num_target_layers": 36,
        "layer_types": [_SLIDING, _SLIDING],
        "sliding_window": 2048,
        "is_causal": False,
        "block_size": 8,
        "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [5, 19, 33]},
    },
    "Qwen3-8B-speculator.dflash": _speculators(
        "dflash",
        {
            **_QWEN3_4B,
            "hidden_size": 4096,
            "intermediate_size": 12288,
            "num_hidden_layers": 5,
            "layer_types": [_SLIDING] * 5,
            "sliding_window": 2048,
        },
        7,
        block_size=8,
        draft_vocab_size=32000,
        aux_hidden_state_layer_ids=[2, 10, 18, 26, 34],
        mask_token_id=151669,
        sliding_window_non_causal=False,
        sample_from_anchor=False,
    ),
    "speculators dflash, from the anchor": _speculators(
        "dflash",
        {**_QWEN3_4B, "num_hidden_layers": 2, "layer_types": [_FULL] * 2},
        8,
        block_size=8,
        draft_vocab_size=151936,
        aux_hidden_state_layer_ids=[2, 18, 34],
        mask_token_id=151669,
        sample_from_anchor=True,
    ),
    "EAGLE3-LLaMA3.1-Instruct-8B": {
        **_LLAMA_8B,
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 1,
        "draft_vocab_size": 32000,
    },
    "EAGLE3, nested ids": {
        **_LLAMA_8B,
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": 32000,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": [1, 15, 28],
            "use_aux_hidden_state": True,
        },
    },
    "Qwen3-4B_eagle3": {
        **_QWEN3_4B,
        "model_type": "llama",
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "max_position_embeddings": 2048,
        "draft_vocab_size": 32000,
    },
    "Llama-3.1-8B-Instruct-speculator.eagle3": _speculators(
        "eagle3",
        {**_LLAMA_8B, "head_dim": 128, "num_hidden_layers": 1},
        5,
        draft_vocab_size=32000,
        norm_before_residual=True,
        target_hidden_size=None,
        eagle_aux_hidden_state_layer_ids=None,
    ),
    "Qwen3-8B-speculator.eagle3, later": _speculators(
        "eagle3",
        {**_QWEN3_4B, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 1},
        3,
        draft_vocab_size=64000,
        norm_before_residual=False,
        norm_before_fc=True,
        fc_norm=True,
        norm_output=True,
        eagle_aux_hidden_state_layer_ids=[2, 18, 33],
    ),
    "EAGLE-Vicuna-7B-v1.3": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "num_hidden_layers": 1,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 2048,
        "vocab_size": 32000,
        "bias": False,
    },
    "EAGLE-LLaMA3-Instruct-8B": {
        **_LLAMA_8B,
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 1,
    },
    "EAGLE-Qwen2-7B-Instruct": {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "num_hidden_layers": 1,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
        "max_position_embeddings": 32768,
        "vocab_size": 152064,
        "qkv_bias": True,
        "bias": True,
    },
    "medusa-vicuna-7b-v1.3": {
        "medusa_num_heads": 2,  # as published; the file holds five
        "medusa_num_layers": 1,
        "base_model_name_or_path": "lmsys/vicuna-7b-v1.3",
    },
}
DFLASH = [name for name in CONFIGS if "dflash" in name.lower()]
EAGLE3 = [name for name in CONFIGS if "eagle3" in name.lower()]
EAGLE = [name for name in CONFIGS if name.startswith("EAGLE-")]
MEDUSA = "medusa-vicuna-7b-v1.3"
