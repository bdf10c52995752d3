"""Public checkpoints on paper: bytes of the loaded drafter, operations that torch counts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from hyflash_bench.drafters.base import bytes_by_kind
from hyflash_bench.drafters.formats import load_drafter
from hyflash_bench.drafters.networks import native
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.errors import DrafterError, UsageError
from hyflash_bench.memory.catalog import form_of
from hyflash_bench.memory.forms import DrafterForm, is_exact
from hyflash_bench.memory.lookup import network_of, networks_of
from hyflash_bench.memory.operators import count_operators
from hyflash_bench.memory.shapes import ModelShape, shape_of
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.sampling import GREEDY
from tests.drafters.formats.configs import CONFIGS, DFLASH, EAGLE, EAGLE3, MEDUSA
from tests.drafters.formats.published import context, features_of, scaled, target, tensors_of, write
from tests.memory.counting import bytes_read, flops_of
from tests.targets.families import VOCAB, random_tokens

TREE = {"tree": True, "top_k": 3, "depth": 4, "total_tokens": 9}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in CONFIGS} | {
    "sliding, int8": ("DFlash, block size inside, sliding", {"kv_dtype": "int8", "num_draft_tokens": 3}),
    "eagle3, tree": ("EAGLE3-LLaMA3.1-Instruct-8B", TREE),
    "eagle3, window": ("EAGLE3-LLaMA3.1-Instruct-8B", {"window": 16}),
    "eagle3, window, tree": ("EAGLE3-LLaMA3.1-Instruct-8B", TREE | {"window": 16}),
    "eagle, tree": ("EAGLE-LLaMA3-Instruct-8B", TREE),
    "medusa, tree": (MEDUSA, {"tree": True, "tree_nodes": 9}),
}


def family(name: str) -> str:
    return "qwen3" if name in DFLASH else "llama"


def shape(name: str) -> ModelShape:
    return shape_of(target(family(name)).model.config.to_dict(), "tiny")


def spec_of(folder: Path, options: dict[str, Any]) -> DrafterSpec:
    spec = DrafterSpec.from_text(str(folder))
    return spec.model_copy(update={"options": spec.options | options})


def on_paper(folder: Path, name: str, options: dict[str, Any]) -> DrafterForm:
    form = form_of(spec_of(folder, options), shape(name))
    assert form is not None
    return form


@pytest.mark.parametrize("variant", VARIANTS)
def test_bytes_are_those_of_the_loaded_drafter(variant: str, tmp_path: Path) -> None:
    name, options = VARIANTS[variant]
    form = on_paper(write(tmp_path, name), name, options)
    drafter: Any = load_drafter(tmp_path, context(family(name)), **options)
    tokens = random_tokens(600)
    features = features_of(tokens[:100], drafter.requires, family(name))
    for start in range(0, 600, 100):
        drafter.observe(tokens[start : start + 100], features)
        drafter.draft(5, 16, Sampler(GREEDY, 0))
        held = {kind: size for kind, size in form.held(start + 100).items() if size}
        assert held == {kind: size for kind, size in bytes_by_kind(drafter.memory()).items() if size}
    assert form.num_features == len(drafter.requires.taps) + drafter.requires.last_hidden
    assert len(drafter.draft(5, 64, Sampler(GREEDY, 0))) <= form.most_drafted


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_draft_and_an_observation_cost_what_torch_counts(
    variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "load_kernels", lambda: None)  # torch does not see into it
    name, options = VARIANTS[variant]
    form = on_paper(write(tmp_path, name), name, options)
    drafter: Any = load_drafter(tmp_path, context(family(name)), **options)
    tokens = random_tokens(80)
    features = features_of(tokens, drafter.requires, family(name))

    def observed(start: int, stop: int) -> None:
        drafter.observe(tokens[start:stop], features.rows(slice(start, stop)))

    def draft() -> None:
        drafter.draft(5, 16, Sampler(GREEDY, 0))

    observed(0, 40)
    cost = form.draft_cost(float(form.most_drafted), 40.0)
    passes = float(cost.num_passes)
    assert flops_of(draft) == pytest.approx(float(cost.flops) * passes, rel=0.06)
    floats = [held.tensor for held in drafter.memory() if held.tensor.is_floating_point()]
    embedding = drafter.network.embedding
    weights = [tensor for tensor in floats if tensor is not embedding]
    assert bytes_read(draft, weights) == pytest.approx(float(cost.num_bytes), rel=0.15)
    if "kv_dtype" not in options:  # what quantising keys takes besides is left out, as for others
        operators = float(cost.num_operators) * passes
        assert count_operators(draft) == pytest.approx(operators, rel=0.1, abs=4)

    starts = range(40, 76, 3)
    costs = [form.observe_cost(3.0, float(start)) for start in starts]
    assert flops_of(lambda: [observed(start, start + 3) for start in starts]) == pytest.approx(
        sum(float(cost.flops) for cost in costs), rel=0.02
    )
    if "kv_dtype" not in options:
        drafter.reset()
        observed(0, 40)
        assert count_operators(lambda: [observed(start, start + 3) for start in starts]) == pytest.approx(
            sum(float(cost.num_operators) for cost in costs), rel=0.2
        )


def test_half_precision_and_eight_bits_are_those_of_the_loaded_drafter(tmp_path: Path) -> None:
    from dataclasses import replace

    name = "EAGLE3-LLaMA3.1-Instruct-8B"
    spec = spec_of(write(tmp_path, name), {})
    form = form_of(spec, shape(name), bits=16, kv_dtype="int8")
    drafter: Any = load_drafter(tmp_path, replace(context(), dtype=torch.bfloat16), kv_dtype="int8")
    tokens = random_tokens(100)
    drafter.observe(tokens, features_of(tokens, drafter.requires))
    assert form is not None
    assert form.held(100) == bytes_by_kind(drafter.memory())


def test_a_matrix_that_may_be_the_targets_is_said_to_be_counted(tmp_path: Path) -> None:
    name = "EAGLE-LLaMA3-Instruct-8B"
    config = scaled(name)
    tensors = tensors_of(name, config)
    own = on_paper(write(tmp_path / "own", name), name, {})
    assert "is held once" in own.note
    assert not is_exact(own)
    del tensors["embed_tokens.weight"]
    lent = on_paper(write(tmp_path / "lent", name, config=config, tensors=tensors), name, {})
    assert is_exact(lent)
    assert own.held(9)["weights"] - lent.held(9)["weights"] == VOCAB * 48 * 4


def test_a_drafter_narrower_than_its_target_borrows_nothing(tmp_path: Path) -> None:
    name = "Llama-3.1-8B-Instruct-speculator.eagle3"
    config = scaled(name) | {"target_hidden_size": 48, "draft_vocab_size": VOCAB, "norm_before_fc": True}
    config["transformer_layer_config"]["hidden_size"] = 32
    tensors = tensors_of(name, config) | {
        "fc.weight": torch.ones(32, 144),
        "input_norm.weight": torch.ones(144),
    }
    del tensors["d2t"], tensors["t2d"]
    form = on_paper(write(tmp_path, name, config=config, tensors=tensors), name, {})
    drafter: Any = load_drafter(tmp_path, context())
    tokens = random_tokens(50)
    drafter.observe(tokens, features_of(tokens, drafter.requires))
    assert is_exact(form)
    assert form.held(50) == bytes_by_kind(drafter.memory())


def test_what_a_run_keeps_is_enough_without_the_files(tmp_path: Path) -> None:
    for name in (DFLASH[0], EAGLE3[0], EAGLE[0], MEDUSA):
        spec = spec_of(write(tmp_path / name, name), {})
        form = form_of(spec, shape(name))
        kept = networks_of([spec], "tiny")[spec.label]
        assert json.loads(json.dumps(kept)) == kept
        for file in (tmp_path / name).iterdir():
            file.unlink()
        again = form_of(spec, shape(name), network=kept)
        assert form is not None
        assert again is not None
        assert again.held(300) == form.held(300)
        assert again.draft_cost(3.0, 300.0) == form.draft_cost(3.0, 300.0)


def test_runs_that_did_not_keep_sizes_are_left_out() -> None:
    spec = DrafterSpec(name="eagle", options={"checkpoint": "gone"})
    assert form_of(spec, shape(EAGLE[0]), network={"kind": "of others", "network": {}}) is None


def test_what_loading_would_refuse_is_refused(tmp_path: Path) -> None:
    llama = shape(EAGLE3[0])
    folder = write(tmp_path / "eagle", EAGLE3[0])
    with pytest.raises(DrafterError, match="kind eagle; medusa needs medusa"):
        form_of(DrafterSpec(name="medusa", options={"checkpoint": str(folder)}), llama)
    with pytest.raises(DrafterError, match="kind eagle; dflash needs dflash"):
        form_of(DrafterSpec(name="dflash", options={"checkpoint": str(folder)}), llama)
    with pytest.raises(UsageError, match="no checkpoint"):
        form_of(DrafterSpec(name="dflash"), llama)
    config = scaled(DFLASH[0]) | {"vocab_size": 500}
    folder = write(tmp_path / "other", DFLASH[0], config=config, tensors={"fc.weight": torch.ones(2)})
    with pytest.raises(DrafterError, match="vocab_size is 500, that of tiny is 97"):
        form_of(spec_of(folder, {}), llama)
    spec = spec_of(write(tmp_path / "heads", MEDUSA), {"tree": True, "tree_paths": str(tmp_path / "none")})
    with pytest.raises(UsageError, match=r"tree_paths .* cannot be read"):
        form_of(spec, llama)


def test_a_listed_tree_is_counted(tmp_path: Path) -> None:
    paths = tmp_path / "choices.json"
    paths.write_text("[[0], [0, 0], [1]]")
    options = {"tree": True, "tree_paths": str(paths)}
    form = on_paper(write(tmp_path / "heads", MEDUSA), MEDUSA, options)
    drafter: Any = load_drafter(tmp_path / "heads", context(), **options)
    assert form.most_drafted == 3
    assert form.held(9) == bytes_by_kind(drafter.memory())


def test_published_sizes_at_their_own_scale(tmp_path: Path) -> None:
    """From the configuration alone, as no tensor is there: DFlash for Qwen3-8B weighs 1,048.6 M numbers."""
    name = "Qwen3-8B-DFlash-b16"
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[name]))
    found = network_of(spec_of(tmp_path, {}), "any")
    assert found is not None
    big = ModelShape(
        name="Qwen3-8B", num_layers=36, hidden_size=4096, intermediate_size=12288, num_heads=32,
        num_kv_heads=8, head_dim=128, vocab_size=151936, tied=False, max_positions=40960,
        num_vector_parameters=1,
    )  # fmt: skip
    form = form_of(spec_of(tmp_path, {}), big, bits=16, kv_dtype="bfloat16")
    assert form is not None
    ids = 8 * 151936
    assert (form.held(0)["weights"] - ids) / 2 == pytest.approx(1048.6e6, abs=0.1e6)
    assert (form.held(2**20)["kv"] - form.held(2**19)["kv"]) / 2**19 == 20_480  # as sglang says


def test_neither_torch_nor_a_tensor_is_touched(tmp_path: Path) -> None:
    write(tmp_path, "Llama-3.1-8B-Instruct-speculator.eagle3")
    code = (
        "import sys; from hyflash_bench.memory.lookup import network_of; "
        "from hyflash_bench.spec.drafter import DrafterSpec; "
        "assert network_of(DrafterSpec.from_text(sys.argv[1]), 'x'); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
