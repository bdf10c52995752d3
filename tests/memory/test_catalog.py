"""Drafters on paper hold what live ones hold, whether trained already or not yet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from hyflash_bench import footprint
from hyflash_bench.drafters import Features
from hyflash_bench.drafters.base import Drafter
from hyflash_bench.drafters.eagle import Eagle
from hyflash_bench.drafters.full_context import FullContext
from hyflash_bench.drafters.hyflash import HyFlash
from hyflash_bench.drafters.medusa import Medusa
from hyflash_bench.drafters.networks.block import BlockConfig
from hyflash_bench.drafters.networks.eagle import EagleConfig
from hyflash_bench.drafters.networks.medusa import MedusaConfig
from hyflash_bench.drafters.networks.network import TargetShape
from hyflash_bench.errors import DrafterError, UsageError
from hyflash_bench.memory import catalog
from hyflash_bench.memory.catalog import form_of
from hyflash_bench.memory.forms import is_exact
from hyflash_bench.memory.operators import count_operators
from hyflash_bench.memory.shapes import ModelShape, shape_of
from hyflash_bench.registry import build_drafter
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.training.plan import TrainingPlan
from hyflash_bench.training.roster import ROSTER, enlist
from tests.drafters.fakes import sampler
from tests.drafters.networks.blocks import block
from tests.drafters.networks.small import context, eagle, medusa, saved
from tests.drafters.walks import opened
from tests.targets.families import make_model


@pytest.fixture(scope="module")
def shape() -> ModelShape:
    return shape_of(make_model("llama").config.to_dict(), "tiny")


CASES: list[tuple[type[Drafter], Any, dict[str, Any]]] = [
    (HyFlash, lambda: block("hyflash, markov"), {}),
    (FullContext, lambda: block("full-context"), {}),
    (FullContext, lambda: block("full-context"), {"window": 20}),
    (Eagle, eagle, {}),
    (Eagle, eagle, {"tree": True, "top_k": 3, "depth": 5}),
    (Eagle, eagle, {"window": 150}),
    (Eagle, eagle, {"tree": True, "top_k": 3, "depth": 5, "window": 20}),
    (Medusa, medusa, {}),
    (Medusa, medusa, {"tree": True, "tree_nodes": 7, "num_draft_tokens": 5}),
]


@pytest.mark.parametrize(("kind", "network", "options"), CASES)
def test_a_checkpoint_says_what_its_drafter_will_hold(
    kind: type[Drafter], network: Any, options: dict[str, Any], tmp_path: Path, shape: ModelShape
):
    folder = saved(network(), tmp_path)
    drafter = opened(kind, folder, **options)
    form = form_of(DrafterSpec(name=kind.name, options={"checkpoint": str(folder), **options}), shape)
    assert form is not None
    assert form.note == ""
    for length in (0, 5, 300, 700):
        formula = drafter.memory_formula(length) or {}
        assert form.held(length) == {
            name: size for name, size in formula.items() if name in form.held(length)
        }
        assert sum(form.held(length).values()) == sum(formula.values())


def test_what_is_not_trained_yet_has_the_sizes_that_training_would_give(shape: ModelShape):
    plan = TrainingPlan.parse(
        {"corpus": "none", "match": "none", "draft_vocab_size": 97, "drafters": list(catalog.RECIPES)}, "test"
    )
    counts: Any = {
        "block": footprint.block_parts,
        "eagle": footprint.eagle_parts,
        "medusa": footprint.medusa_parts,
    }
    for entry in enlist(plan, TargetShape.of(context())):
        form = form_of(DrafterSpec(name=entry.name), shape)
        assert form is not None
        assert "nothing is trained" in form.note
        expected = footprint.weight_bytes(entry.config, counts[entry.kind](entry.config), 4)
        assert form.held(100)["weights"] == expected
        assert form.most_drafted == entry.config.num_slots


def test_names_and_defaults_are_those_of_training():
    plan = TrainingPlan.parse({"corpus": "none", "draft_vocab_size": 97, "drafters": list(ROSTER)}, "test")
    entries = enlist(plan, TargetShape.of(context()))
    assert set(catalog.RECIPES) == {entry.drafter for entry in entries}
    for entry in entries:
        kind, values = catalog.RECIPES[entry.drafter]
        assert entry.kind == kind
        assert {key: getattr(entry.config, key) for key in values} == dict(values), entry.name
    pairs: list[tuple[Any, Any]] = [
        (catalog._Block, BlockConfig),
        (catalog._Eagle, EagleConfig),
        (catalog._Medusa, MedusaConfig),
    ]
    for mine, theirs in pairs:
        for name, field in mine.model_fields.items():
            assert field.default == theirs.model_fields[name].default, name


@pytest.mark.parametrize("text", ["prompt-lookup", "suffix", "suffix:num_draft_tokens=3", "small-model"])
def test_drafts_are_as_long_as_the_drafter_says(text: str, shape: ModelShape):
    spec = DrafterSpec.from_text(text)
    options = build_drafter(spec).options
    if spec.name == "small-model":
        assert catalog._whole(spec, "num_draft_tokens", 4) == options.num_draft_tokens  # type: ignore[attr-defined]
        return
    form = form_of(spec, shape)
    assert form is not None
    assert form.most_drafted == options.num_draft_tokens  # type: ignore[attr-defined]
    assert "measured" in form.note
    assert form.held(100)["buffer"] > form.held(10)["buffer"] > 0


@pytest.mark.parametrize("name", ["prompt-lookup", "suffix"])
def test_a_window_of_tokens_is_held_as_it_says_and_looked_through_at_its_length(name: str, shape: ModelShape):
    spec = DrafterSpec(name=name, options={"window": 600})
    drafter, form = build_drafter(spec), form_of(spec, shape)
    assert form is not None
    assert is_exact(form)
    for length in (0, 1, 256, 257, 5000):
        assert form.held(length) == drafter.memory_formula(length)
    costs = [form.draft_cost(4, length) for length in (100, 600, 5000)]
    assert costs[0].num_bytes < costs[1].num_bytes == costs[2].num_bytes
    drafter.observe(torch.arange(300) % 7, Features())
    counted = count_operators(lambda: drafter.draft(300 % 7, 4, sampler()))
    assert form.draft_cost(4, 300).num_operators == pytest.approx(counted, rel=0.15)


def test_the_reference_holds_nothing_and_plugins_are_unknown(shape: ModelShape):
    plain = form_of(DrafterSpec(name="autoregressive"), shape)
    assert plain is not None
    assert sum(plain.held(10**6).values()) == 0
    assert form_of(DrafterSpec(name="some/plugin"), shape) is None


def test_half_precision_and_int8_shrink_what_is_held(shape: ModelShape):
    spec = DrafterSpec(name="full-context")
    full, half = form_of(spec, shape), form_of(spec, shape, bits=4, kv_dtype="int8")
    assert full is not None
    assert half is not None
    assert half.held(9000)["weights"] < full.held(9000)["weights"] < 2 * half.held(9000)["weights"] + 1
    grown = [form.held(9000)["kv"] - form.held(9000 - 256)["kv"] for form in (full, half)]
    assert grown == [256 * 2 * 2 * 8 * 4, 256 * 2 * 2 * (8 + 2)]


def test_what_is_wrong_with_a_checkpoint_is_said(tmp_path: Path, shape: ModelShape):
    with pytest.raises(UsageError, match="no checkpoint 'nowhere' for tiny"):
        form_of(DrafterSpec(name="eagle", options={"checkpoint": "nowhere"}), shape)
    folder = saved(medusa(), tmp_path)
    spec = DrafterSpec(name="eagle", options={"checkpoint": str(folder)})
    with pytest.raises(DrafterError, match="kind medusa; eagle needs eagle"):
        form_of(spec, shape)
    (folder / "config.json").write_text(json.dumps({"format": "hyflash-bench-drafter", "kind": "eagle"}))
    with pytest.raises(DrafterError, match="lacks the network's sizes"):
        form_of(spec, shape)
    (folder / "config.json").write_text("{")
    with pytest.raises(DrafterError, match="cannot be read"):
        form_of(spec, shape)
    with pytest.raises(UsageError, match="window must be a whole number"):
        form_of(DrafterSpec(name="full-context", options={"window": "wide"}), shape)
