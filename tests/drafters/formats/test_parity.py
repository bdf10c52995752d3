"""Public checkpoints compute what a plain second implementation computes, whatever was accepted before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hyflash_bench.drafters import Draft, Drafter
from hyflash_bench.drafters.formats import load_drafter
from hyflash_bench.drafters.networks import public
from hyflash_bench.errors import DrafterError
from tests.drafters.fakes import sampler
from tests.drafters.formats import plain
from tests.drafters.formats.configs import DFLASH, EAGLE, EAGLE3, MEDUSA
from tests.drafters.formats.published import (
    context,
    features_of,
    hidden_states,
    scaled,
    target,
    tensors_of,
    write,
)
from tests.drafters.walks import anchors_along
from tests.targets.families import random_tokens

TOLERANCE = 1e-4
TEXT = random_tokens(40, seed=3)
PROMPT, PATTERN = 9, [0, 3, 1, 5, 2]
NUM_STEPS = 4


def family(name: str) -> str:
    return "qwen3" if name in DFLASH else "llama"


@cache
def states(which: str) -> list[Tensor]:
    return hidden_states(TEXT, which)


def target_matrices(which: str) -> tuple[Tensor, Tensor]:
    model = target(which).model
    return (
        model.get_input_embeddings().weight.detach().clone(),
        model.get_output_embeddings().weight.detach().clone(),
    )


def ours(drafter: Any, anchor: int) -> Tensor:
    """Logits of the drafter along the text, by the steps that it drafts in."""
    with torch.inference_mode():
        if drafter.name == "dflash":
            return drafter.block_logits(int(TEXT[anchor]), drafter.network.config.num_slots)
        if drafter.name == "medusa":
            return drafter.network.logits(drafter._row, drafter.network.config.num_slots)[0]
        g, logits = drafter._last, []
        for step in range(NUM_STEPS):
            g = drafter._run_ahead([int(TEXT[anchor + step])], g, step, step)
            logits.append(drafter.network.head(g)[0])
        return torch.stack(logits)


def theirs(name: str, anchor: int) -> Tensor:
    config, which = scaled(name), family(name)
    tensors = tensors_of(name, config)
    if name == MEDUSA:
        return plain.medusa(tensors, states(which), anchor, 5)
    matrices = target_matrices(which)
    if name in DFLASH:
        return plain.dflash(config, tensors, states(which), TEXT, anchor, *matrices)
    return plain.eagle(config, tensors, states(which), TEXT, anchor, NUM_STEPS, *matrices)


def gaps(drafter: Drafter, name: str, *, rows_late: int = 0) -> Iterator[float]:
    given = features_of(TEXT, drafter.requires, family(name))
    features = given.rows((torch.arange(len(TEXT)) - rows_late).clamp(min=0))
    for anchor in anchors_along(drafter, TEXT, features, PROMPT, PATTERN):
        expected = theirs(name, anchor)
        found = ours(drafter, anchor)
        assert found.shape == expected.shape
        assert float(expected.std()) > 0.3  # large enough for the tolerance to mean something
        yield float((found - expected).abs().max())


@pytest.mark.parametrize("name", [*DFLASH, *EAGLE3, *EAGLE, MEDUSA])
def test_logits_are_those_of_the_plain_form(name: str, tmp_path: Path) -> None:
    drafter = load_drafter(write(tmp_path, name), context(family(name)))
    assert max(gaps(drafter, name)) < TOLERANCE


@pytest.mark.parametrize("name", ["EAGLE3, nested ids", "EAGLE-LLaMA3-Instruct-8B"])
def test_the_dynamic_tree_is_that_of_the_plain_form(name: str, tmp_path: Path) -> None:
    """EAGLE-2: each level goes on from its likeliest nodes, and the likeliest of all are proposed."""
    top_k, levels, total = 3, 3, 8
    options = {"tree": True, "top_k": top_k, "depth": levels, "total_tokens": total}
    drafter = load_drafter(write(tmp_path, name), context(), **options)
    config = scaled(name)
    tensors, matrices = tensors_of(name, config), target_matrices("llama")
    features = features_of(TEXT, drafter.requires)
    moved = tensors.get("d2t", torch.zeros(layers_of(config)["vocab_size"], dtype=torch.int64))
    ids = torch.arange(len(moved)) + moved
    for anchor in anchors_along(drafter, TEXT, features, PROMPT, [0, 3]):
        scores: dict[tuple[int, ...], float] = {}
        frontier: list[tuple[int, ...]] = [()]
        for _ in range(levels):
            reached = {}
            for path in frontier:
                text = torch.cat([TEXT[: anchor + 1], torch.tensor(path, dtype=torch.int64)])
                logits = plain.eagle(
                    config, tensors, states("llama"), text, anchor, len(path) + 1, *matrices
                )[-1]
                best = logits.log_softmax(-1).topk(top_k)
                for value, place in zip(best.values.tolist(), best.indices.tolist(), strict=True):
                    reached[(*path, int(ids[place]))] = scores.get(path, 0.0) + value
            scores |= reached
            frontier = sorted(reached, key=lambda path: -reached[path])[:top_k]
        expected = sorted(scores, key=lambda path: -scores[path])[:total]
        draft = drafter.draft(int(TEXT[anchor]), 64, sampler())
        assert {path_to(draft, node) for node in range(len(draft))} == set(expected)


def layers_of(config: dict[str, Any]) -> dict[str, Any]:
    return config.get("transformer_layer_config", config)


def path_to(draft: Draft, node: int) -> tuple[int, ...]:
    assert draft.parents is not None
    path: tuple[int, ...] = ()
    while node >= 0:
        path, node = (int(draft.tokens[node]), *path), int(draft.parents[node])
    return path


@pytest.mark.parametrize("name", [*DFLASH, *EAGLE3])
def test_a_tap_one_off_would_be_seen(name: str, tmp_path: Path) -> None:
    config = scaled(name)
    tensors = tensors_of(name, config)
    inner = config.get("dflash_config") or config.get("eagle_config") or config
    ids = next((key for key in inner if key.endswith("layer_ids") and inner[key]), None)
    if ids is None:  # those that are read by default
        ids, inner["eagle_aux_hidden_state_layer_ids"] = "eagle_aux_hidden_state_layer_ids", [2, 4, 5]
    folder = write(tmp_path / "same", name, config=config, tensors=tensors)
    assert max(gaps(load_drafter(folder, context(family(name))), name)) < TOLERANCE
    inner[ids] = [index - 1 for index in inner[ids]]
    folder = write(tmp_path / "shifted", name, config=config, tensors=tensors)
    assert min(gaps(load_drafter(folder, context(family(name))), name)) > 100 * TOLERANCE


@pytest.mark.parametrize("name", [DFLASH[0], EAGLE3[0], *EAGLE, MEDUSA])
def test_features_of_the_row_before_would_be_seen(name: str, tmp_path: Path) -> None:
    drafter = load_drafter(write(tmp_path, name), context(family(name)))
    assert min(gaps(drafter, name, rows_late=1)) > 100 * TOLERANCE


@pytest.mark.parametrize("name", [DFLASH[0], EAGLE3[0], EAGLE[0], MEDUSA])
def test_proposals_one_slot_off_would_be_seen(name: str, tmp_path: Path) -> None:
    drafter = load_drafter(write(tmp_path, name), context(family(name)))
    features = features_of(TEXT, drafter.requires, family(name))
    for anchor in anchors_along(drafter, TEXT, features, PROMPT, [0]):
        found, expected = ours(drafter, anchor), theirs(name, anchor)
        assert float((found[1:] - expected[:-1]).abs().max()) > 100 * TOLERANCE


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_drafter_may_be_narrower_than_its_target(tmp_path: Path, is_whole: bool) -> None:
    name = "Llama-3.1-8B-Instruct-speculator.eagle3"
    config = scaled(name) | {"target_hidden_size": 48}
    config["transformer_layer_config"]["hidden_size"] = 32
    if is_whole:
        config["draft_vocab_size"] = config["transformer_layer_config"]["vocab_size"]
    tensors = tensors_of(name, config)
    tensors["fc.weight"] = torch.randn(32, 3 * 48, generator=torch.Generator().manual_seed(1)) / 12
    if is_whole:
        del tensors["d2t"], tensors["t2d"]
    folder = write(tmp_path / "whole", name, config=config, tensors=tensors)
    drafter = load_drafter(folder, context())
    matrices = target_matrices("llama")
    features = features_of(TEXT, drafter.requires)
    for anchor in anchors_along(drafter, TEXT, features, PROMPT, PATTERN):
        expected = plain.eagle(config, tensors, states("llama"), TEXT, anchor, NUM_STEPS, *matrices)
        assert float((ours(drafter, anchor) - expected).abs().max()) < TOLERANCE
    for lent in ("embed_tokens.weight", "lm_head.weight"):
        rest = {key: value for key, value in tensors.items() if key != lent}
        folder = write(tmp_path / lent, name, config=config, tensors=rest)
        with pytest.raises(DrafterError, match=f"lacks tensors: {lent}"):
            load_drafter(folder, context())


def test_the_layer_has_either_name(tmp_path: Path) -> None:
    """SafeAILab calls it midlayer, others layers.0; what is computed is the same."""
    name = EAGLE3[0]
    config = scaled(name)
    tensors = tensors_of(name, config)
    renamed = {key.replace("midlayer.", "layers.0."): value for key, value in tensors.items()}
    assert renamed.keys() != tensors.keys()
    drafter = load_drafter(write(tmp_path, name, config=config, tensors=renamed), context())
    assert max(gaps(drafter, name)) < TOLERANCE


@pytest.mark.parametrize("name", [*DFLASH, *EAGLE3, *EAGLE])
def test_a_rotation_one_off_would_be_seen(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is drafted stands one further from what is verified."""
    drafter: Any = load_drafter(write(tmp_path, name), context(family(name)))
    true = public.rotary_tables_of

    def shifted(sizes: Any, positions: Tensor) -> tuple[Tensor, Tensor]:
        return true(sizes, positions + 1)

    features = features_of(TEXT, drafter.requires, family(name))
    for anchor in anchors_along(drafter, TEXT, features, PROMPT, [0]):
        with monkeypatch.context() as patch:
            patch.setattr(public, "rotary_tables_of", shifted)
            found = ours(drafter, anchor)
        expected = theirs(name, anchor)
        assert float((found - expected).abs().max()) > 20 * TOLERANCE


def test_a_dropped_norm_would_be_seen(tmp_path: Path) -> None:
    name = "Qwen3-8B-speculator.eagle3, later"
    for key in ("norm_before_fc", "fc_norm"):
        drafter: Any = load_drafter(write(tmp_path / key, name), context())
        if key == "fc_norm":
            drafter.network.tap_norms = torch.nn.ModuleList()
        else:
            drafter.network.fusion_norm = None
        assert min(gaps(drafter, name)) > 20 * TOLERANCE


def test_yarn_is_that_of_transformers(tmp_path: Path) -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    config = scaled("Qwen3-4B_eagle3") | {"rope_scaling": rope}
    drafter: Any = load_drafter(write(tmp_path, "Qwen3-4B_eagle3", config=config), context())
    positions = torch.tensor([0, 1, 7, 100])
    cosine, sine = drafter.network.rotary(positions)
    plain_config = LlamaConfig(
        hidden_size=96, num_attention_heads=6, head_dim=16, max_position_embeddings=2048,
        rope_parameters=rope | {"rope_theta": 1_000.0},
    )  # fmt: skip
    expected = LlamaRotaryEmbedding(plain_config)(torch.zeros(1), positions[None])
    assert torch.allclose(cosine, expected[0][0, :, :8], atol=1e-5)
    assert torch.allclose(sine, expected[1][0, :, :8], atol=1e-5)


def test_published_configurations_have_the_published_sizes() -> None:
    from hyflash_bench.drafters.networks.dflash import DFlashNetwork
    from hyflash_bench.drafters.networks.public_eagle import FirstEagle, ThirdEagle
    from hyflash_bench.spec.formats.dflash import read_dflash
    from hyflash_bench.spec.formats.eagle import read_eagle, read_eagle3
    from tests.drafters.formats.configs import CONFIGS

    def build(name: str) -> Any:
        with torch.device("meta"):
            if name in DFLASH:
                return DFlashNetwork(read_dflash(CONFIGS[name], name))
            if name in EAGLE:
                return FirstEagle(read_eagle(CONFIGS[name], name))
            return ThirdEagle(read_eagle3(CONFIGS[name], name, 32))

    def millions(name: str, *left_out: str) -> float:
        parameters = build(name).named_parameters()
        return sum(value.numel() for key, value in parameters if key not in left_out) / 1e6

    lent = ("embedding", "head.rows")
    assert millions("Qwen3-4B-DFlash-b16", *lent) == pytest.approx(537.4, abs=0.1)
    assert millions("Qwen3-8B-DFlash-b16", *lent) == pytest.approx(1048.6, abs=0.1)
    network = build("EAGLE3-LLaMA3.1-Instruct-8B")
    assert network.fusion.weight.shape == (4096, 3 * 4096)
    assert network.attention.query.weight.shape == (4096, 8192)
    assert network.head.rows.shape == (32000, 4096)
    assert network.requires.taps == (1, 15, 28)
    assert build("EAGLE3, nested ids").requires.taps == (1, 15, 28)
    assert build("Qwen3-8B-speculator.dflash").requires.taps == (1, 9, 17, 25, 33)
    assert build("EAGLE-LLaMA3-Instruct-8B").fusion.bias is not None
    assert build("EAGLE-Vicuna-7B-v1.3").fusion.bias is None
    for name in [*DFLASH, *EAGLE3, *EAGLE]:
        build(name)
    assert json.dumps(CONFIGS)  # as written in files: nothing but plain values
