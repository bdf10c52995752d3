"""What is written for speculators is read back as the same drafter; what cannot be written says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hyflash_bench.drafters.eagle import Eagle
from hyflash_bench.drafters.formats import load_drafter
from hyflash_bench.drafters.formats.export import export_speculators, why_not_speculators
from hyflash_bench.errors import DrafterError
from tests.drafters.fakes import sampler
from tests.drafters.networks.blocks import block
from tests.drafters.networks.small import DRAFT_IDS, context, eagle, features_of, medusa, saved
from tests.drafters.walks import anchors_along, opened
from tests.targets.families import VOCAB, random_tokens

TEXT = random_tokens(40, seed=3)
EXPRESSIBLE = {"token_residual": False, "last_hidden": False, "taps": (0, 1)}


def exported(folder: Path, **changes: Any) -> Path:
    export_speculators(eagle(**(EXPRESSIBLE | changes)), folder, context())
    return folder


@pytest.mark.parametrize("tree", [False, True])
def test_the_exported_drafter_drafts_what_ours_does(tmp_path: Path, tree: bool) -> None:
    ours = opened(Eagle, saved(eagle(**EXPRESSIBLE), tmp_path / "ours"), tree=tree)
    theirs = load_drafter(exported(tmp_path / "theirs"), context(), tree=tree)
    features = features_of(TEXT, ours.requires)
    drafts = [
        [
            drafter.draft(int(TEXT[anchor]), 8, sampler())
            for anchor in anchors_along(drafter, TEXT, features, 9, [0, 3, 1, 4])
        ]
        for drafter in (ours, theirs)
    ]
    for own, other in zip(*drafts, strict=True):
        assert torch.equal(own.tokens, other.tokens)
        assert own.parents is other.parents is None or torch.equal(own.parents, other.parents)


def test_its_logits_are_ours(tmp_path: Path) -> None:
    ours = opened(Eagle, saved(eagle(**EXPRESSIBLE), tmp_path / "ours"))
    theirs = load_drafter(exported(tmp_path / "theirs"), context())
    along, warm = TEXT[20:24], sampler(0, temperature=1.0)
    for drafter in (ours, theirs):
        drafter.observe(TEXT[:19], features_of(TEXT[:19], drafter.requires))
    rows = [drafter.draft(int(TEXT[19]), 4, warm, along).probabilities for drafter in (ours, theirs)]
    assert torch.allclose(*rows, atol=1e-6)


def test_names_and_ids_are_those_of_the_layout(tmp_path: Path) -> None:
    folder = exported(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    assert config["speculators_model_type"] == "eagle3"
    assert config["eagle_aux_hidden_state_layer_ids"] == [1, 2]  # hidden states, the embedding first
    attention = [f"layers.0.self_attn.{name}_proj.weight" for name in "qkvo"]
    mlp = [f"layers.0.mlp.{name}_proj.weight" for name in ("gate", "up", "down")]
    norms = ("input_layernorm", "hidden_norm", "post_attention_layernorm")
    others = ["fc.weight", "norm.weight", "lm_head.weight", "d2t", "t2d"]
    assert set(tensors) == {*attention, *mlp, *(f"layers.0.{name}.weight" for name in norms), *others}
    assert (torch.arange(len(DRAFT_IDS)) + tensors["d2t"]).tolist() == DRAFT_IDS
    assert tensors["t2d"].nonzero()[:, 0].tolist() == DRAFT_IDS
    assert len(tensors["t2d"]) == VOCAB


@pytest.mark.parametrize(
    ("network", "why"),
    [
        (lambda: eagle(token_residual=True, last_hidden=False), "residual stream"),
        (lambda: eagle(token_residual=False, last_hidden=True), "last hidden state"),
        (lambda: eagle(token_residual=False, last_hidden=False, taps=(0, 2)), "last layer"),
        (lambda: eagle(**EXPRESSIBLE, copy_window=16), "copies"),
        (medusa, "has no Medusa"),
        (lambda: block("hyflash"), "slot codes"),
        (lambda: block("full-context"), "slot codes"),
    ],
)
def test_what_the_layout_cannot_express_is_refused(tmp_path: Path, network: Any, why: str) -> None:
    assert why in (why_not_speculators(network()) or "")
    with pytest.raises(DrafterError, match=why):
        export_speculators(network(), tmp_path / "it", context())
    assert not (tmp_path / "it").exists()
