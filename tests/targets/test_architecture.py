"""Reading a model: nothing held twice, nothing run that cannot be verified."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers

from hyflash_bench.errors import UnsupportedTarget
from hyflash_bench.spec.target import FAMILIES
from hyflash_bench.targets.architecture import check_supported, read
from tests.targets.families import make_model

DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}


@pytest.mark.parametrize("family", ["llama", "qwen2", "phi3"])
def test_fused_weights_are_the_models_own(family: str) -> None:
    model = make_model(family)
    before = {name: value.clone() for name, value in model.state_dict().items()}

    arch = read(model)

    fused = {linear.weight.untyped_storage().data_ptr() for linear in arch.linears}
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
        if name.endswith(("proj.weight", "lm_head.weight")):
            assert value.untyped_storage().data_ptr() in fused


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (transformers.T5Config(), "encoder-decoder"),
        (transformers.GPT2Config(), "'gpt2' is not known"),
        (transformers.MambaConfig(), "layers of type linear_attention"),
        (
            transformers.Qwen3NextConfig(num_hidden_layers=4),
            "layers of type linear_attention, whose state cannot be cut back",
        ),
        (
            SimpleNamespace(model_type="llama", hidden_act="silu", rope_parameters={"rope_type": "spiral"}),
            "Rotary scaling 'spiral' is not one of default, dynamic",
        ),
        (transformers.PaliGemmaConfig(), "'paligemma' is not known"),
        (
            transformers.LlavaConfig(text_config=transformers.GPT2Config()),
            "'gpt2' is not known .* the text part of gemma3, llava",
        ),
        (transformers.LlamaConfig(hidden_act="relu"), "Activation 'relu'"),
        (SimpleNamespace(model_type="jamba", layer_types=["mamba", "attention"]), "attention, mamba"),
    ],
)
def test_what_cannot_be_verified_is_refused(config: Any, reason: str) -> None:
    with pytest.raises(UnsupportedTarget, match=reason) as caught:
        check_supported(config)

    assert all(family in str(caught.value) for family in FAMILIES)


def test_positions_that_change_with_the_length_are_only_run_where_they_do_not() -> None:
    config = transformers.LlamaConfig(rope_parameters=DYNAMIC)
    check_supported(config)

    with pytest.raises(UnsupportedTarget, match=r"'dynamic' .* limit of 2048, .* Drop extrapolate"):
        check_supported(config, extrapolate=True)


def test_gemma_norms_are_read_around_one() -> None:
    model = make_model("gemma")

    arch = read(model)

    assert torch.equal(arch.final_norm.weight, 1 + model.model.norm.weight)
