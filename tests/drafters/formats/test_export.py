"""What is written for speculators is read back as the same drafter, to the bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from hyflash_bench.drafters.base import bytes_by_kind
from hyflash_bench.drafters.eagle import Eagle
from hyflash_bench.drafters.formats import load_drafter, read_network
from hyflash_bench.drafters.formats.export import export_speculators, why_not_servable
from hyflash_bench.drafters.networks.network import DraftNetwork
from hyflash_bench.errors import DrafterError
from hyflash_bench.memory.catalog import form_of
from hyflash_bench.memory.shapes import shape_of
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.formats.recognise import recognise
from tests.drafters.fakes import sampler
from tests.drafters.networks.blocks import block
from tests.drafters.networks.small import DRAFT_IDS, context, eagle, features_of, medusa, saved
from tests.drafters.walks import anchors_along, opened
from tests.targets.families import VOCAB, make_model, random_tokens

TEXT = random_tokens(40, seed=3)
EXPRESSIBLE = {"token_residual": False, "last_hidden": False, "taps": (0, 1)}
OWN: dict[str, tuple[str, Callable[[], DraftNetwork]]] = {
    "hyflash": ("hyflash", lambda: block("hyflash, 2 layers")),
    "hyflash, copying": ("hyflash", lambda: block("hyflash, copying")),
    "hyflash, markov": ("hyflash", lambda: block("hyflash, markov")),
    "hyflash, one state": ("hyflash", lambda: block("hyflash, 2 layers, one state")),
    "full-context": ("full-context", lambda: block("full-context, 2 layers, markov")),
    "window": ("window", lambda: block("window, 2 layers")),
    "memory-only": ("memory-only", lambda: block("memory-only")),
    "eagle, copying": ("eagle", lambda: eagle(**EXPRESSIBLE, copy_window=9, copy_size=6)),
    "eagle": ("eagle", eagle),
    "medusa": ("medusa", medusa),
    "medusa, copying": ("medusa", lambda: medusa(copy_window=9, copy_size=6)),
}


def exported(folder: Path, **changes: Any) -> Path:
    export_speculators(eagle(**(EXPRESSIBLE | changes)), folder, context())
    return folder


# As EAGLE-3


@pytest.mark.parametrize("tree", [False, True])
def test_the_exported_drafter_drafts_what_ours_does(tmp_path: Path, tree: bool) -> None:
    ours = opened(Eagle, saved(eagle(**EXPRESSIBLE), tmp_path / "ours"), tree=tree)
    theirs = load_drafter(exported(tmp_path / "theirs"), context(), tree=tree)
    assert drafts_of(ours) == drafts_of(theirs)


def drafts_of(drafter: Any) -> list[tuple[list[int], list[int] | None]]:
    features = features_of(TEXT, drafter.requires)
    drafts = []
    for anchor in anchors_along(drafter, TEXT, features, 9, [0, 3, 1, 4]):
        draft = drafter.draft(int(TEXT[anchor]), 8, sampler())
        drafts.append((draft.tokens.tolist(), None if draft.parents is None else draft.parents.tolist()))
    return drafts


def test_its_tensors_are_ours_to_the_bit(tmp_path: Path) -> None:
    network = eagle(**EXPRESSIBLE)
    theirs: Any = read_network(exported(tmp_path), context())
    assert torch.equal(theirs.attention.query.weight, network.query.weight)
    assert torch.equal(theirs.attention.key_value.weight, network.key_value.weight)
    assert torch.equal(theirs.attention.output.weight, network.output.weight)
    for name in ("fusion", "token_norm", "feature_norm", "mlp_norm", "mlp.gate_up", "mlp.down", "head.norm"):
        own, other = (net.get_parameter(f"{name}.weight") for net in (network, theirs))
        assert torch.equal(own, other), name
    assert torch.equal(theirs.head.rows, network.head.rows)
    assert torch.equal(theirs.head.draft_ids, network.head.draft_ids)


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
    assert "notice" not in config
    assert config["eagle_aux_hidden_state_layer_ids"] == [1, 2]  # hidden states, the embedding first
    attention = [f"layers.0.self_attn.{name}_proj.weight" for name in "qkvo"]
    mlp = [f"layers.0.mlp.{name}_proj.weight" for name in ("gate", "up", "down")]
    norms = ("input_layernorm", "hidden_norm", "post_attention_layernorm")
    others = ["fc.weight", "norm.weight", "lm_head.weight", "d2t", "t2d"]
    assert set(tensors) == {*attention, *mlp, *(f"layers.0.{name}.weight" for name in norms), *others}
    assert (torch.arange(len(DRAFT_IDS)) + tensors["d2t"]).tolist() == DRAFT_IDS
    assert tensors["t2d"].nonzero()[:, 0].tolist() == DRAFT_IDS
    assert len(tensors["t2d"]) == VOCAB


# As our own


@pytest.mark.parametrize("kind", OWN)
def test_every_other_drafter_comes_back_to_the_bit(tmp_path: Path, kind: str) -> None:
    name, make = OWN[kind]
    network = make()
    with torch.no_grad():  # more digits than bfloat16 has
        next(network.parameters()).add_(torch.rand(1) / 3)
    export_speculators(network, tmp_path, context(), {"steps": 7})
    assert recognise(tmp_path).drafter == name
    again = read_network(tmp_path, context())
    assert isinstance(again, type(network))
    assert again.config == network.config
    for (key, own), (other, read) in zip(
        network.state_dict().items(), again.state_dict().items(), strict=True
    ):
        assert key == other
        assert torch.equal(own, read), key
    tensors = load_file(tmp_path / "model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} >= {torch.bfloat16, torch.float32}


@pytest.mark.parametrize("kind", OWN)
def test_it_drafts_and_weighs_the_same(tmp_path: Path, kind: str) -> None:
    name, make = OWN[kind]
    network = make()
    ours = load_drafter(saved(network, tmp_path / "ours"), context())
    export_speculators(network, tmp_path / "theirs", context())
    theirs = load_drafter(tmp_path / "theirs", context())
    assert theirs.name == ours.name == name
    assert drafts_of(ours) == drafts_of(theirs)
    assert bytes_by_kind(ours.memory()) == bytes_by_kind(theirs.memory())
    form = form_of(
        DrafterSpec.from_text(str(tmp_path / "theirs")), shape_of(make_model("llama").config.to_dict(), "x")
    )
    assert form is not None
    length = len(TEXT) - 1
    assert sum(form.held(length).values()) == sum((ours.memory_formula(length) or {}).values())


@pytest.mark.parametrize("kind", OWN)
def test_its_configuration_is_that_of_the_layout(tmp_path: Path, kind: str) -> None:
    _, make = OWN[kind]
    network = make()
    export_speculators(network, tmp_path, context(), {"steps": 7})
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["speculators_model_type"] == "hyflash-bench"
    assert config["speculators_version"]
    told = config["speculators_config"]
    assert told["algorithm"] == network.kind
    assert told["proposal_methods"][0]["speculative_tokens"] == network.config.num_slots
    assert told["default_proposal_method"] == told["proposal_methods"][0]["proposal_type"]
    assert told["verifier"]["name_or_path"]
    assert told["verifier"]["architectures"] == ["LlamaForCausalLM"]
    assert config["draft_vocab_size"] == network.config.draft_vocab_size
    assert config["aux_hidden_state_layer_ids"] == [layer + 1 for layer in network.requires.taps]
    assert ("transformer_layer_config" in config) == (network.kind != "medusa")
    assert config["hyflash_bench"]["training"] == {"steps": 7}
    assert "other programs cannot" in config["notice"]
    ids = load_file(tmp_path / "model.safetensors")["d2t"] + torch.arange(network.config.draft_vocab_size)
    assert torch.equal(ids, network.head.draft_ids)


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
def test_why_other_programs_cannot_run_it_is_said(tmp_path: Path, network: Any, why: str) -> None:
    assert why in (why_not_servable(network()) or "")
    export_speculators(network(), tmp_path, context())
    assert why in json.loads((tmp_path / "config.json").read_text())["notice"]


# Strictness


def test_several_files_with_an_index_are_read_as_one(tmp_path: Path) -> None:
    network = block("hyflash")
    export_speculators(network, tmp_path, context())
    tensors = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    save_file({"state": torch.zeros(2)}, tmp_path / "foreign.safetensors")  # beside the network, not of it
    names = sorted(tensors)
    parts = {f"model-0000{part + 1}-of-00002.safetensors": names[part::2] for part in range(2)}
    for file, held in parts.items():
        save_file({name: tensors[name] for name in held}, tmp_path / file)
    index = {"weight_map": {name: file for file, held in parts.items() for name in held}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    again = read_network(tmp_path, context())
    assert all(map(torch.equal, network.parameters(), again.parameters()))
    (tmp_path / list(parts)[1]).unlink()
    with pytest.raises(DrafterError, match=r"lacks files that its index names: model-00002"):
        read_network(tmp_path, context())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tensors: tensors.update(odd=torch.ones(2)), "does not know: odd"),
        (lambda tensors: tensors.pop("weight"), "lacks tensors: weight"),
        (lambda tensors: tensors.update(bias=torch.ones(3)), r"tensor bias is \[3\]"),
        (lambda tensors: tensors["bias"].fill_(torch.nan), "tensor bias holds NaN"),
        (lambda tensors: tensors["d2t"].add_(90), "different ids from 0 to 96"),
        (lambda tensors: tensors.pop("d2t"), "lacks tensors: d2t"),
        (lambda tensors: tensors["t2d"].logical_not_(), "t2d names other tokens"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_by_name(tmp_path: Path, change: Any, said: str) -> None:
    export_speculators(medusa(), tmp_path, context())
    tensors = load_file(tmp_path / "model.safetensors")
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(DrafterError, match=said):
        load_drafter(tmp_path, context())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda config: config.pop("hyflash_bench"), "'hyflash-bench' cannot be run"),
        (lambda config: config["hyflash_bench"].update(version=9), "is of version 9"),
        (lambda config: config["hyflash_bench"].update(kind="other"), "'other'"),
        (lambda config: config["hyflash_bench"].pop("network"), "network"),
        (lambda config: config["hyflash_bench"]["network"]["target"].update(weights="x"), "its weights is x"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(tmp_path: Path, change: Any, said: str) -> None:
    export_speculators(medusa(), tmp_path, context())
    config = json.loads((tmp_path / "config.json").read_text())
    change(config)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(DrafterError, match=said):
        load_drafter(tmp_path, context())
