"""Every layout is told from the others, by the loader and on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
import torch
from safetensors.torch import save_file

from hyflash_bench.drafters.formats import load_drafter
from hyflash_bench.errors import DrafterError, MissingDependency, SpecError
from hyflash_bench.spec.baselines import checkpoint_folder, shipped_baselines
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.formats.dflash import default_taps, read_dflash
from hyflash_bench.spec.formats.names import tensor_names
from hyflash_bench.spec.formats.recognise import is_hub_id, recognise
from tests.drafters.formats.configs import CONFIGS, DFLASH, EAGLE, EAGLE3, MEDUSA
from tests.drafters.formats.published import context, write
from tests.drafters.networks.blocks import block
from tests.drafters.networks.small import context as small_context
from tests.drafters.networks.small import eagle, medusa, saved

EXPECTED = {
    **dict.fromkeys(DFLASH, ("dflash", "dflash")),
    **dict.fromkeys(EAGLE3, ("eagle3", "eagle")),
    **dict.fromkeys(EAGLE, ("eagle", "eagle")),
    MEDUSA: ("medusa", "medusa"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_folder_is_told_by_its_files(name: str, tmp_path: Path) -> None:
    found = recognise(write(tmp_path, name))
    assert (found.format, found.drafter) == EXPECTED[name]
    assert DrafterSpec.from_text(str(tmp_path)).name == EXPECTED[name][1]


@pytest.mark.parametrize("kind", ["hyflash", "full-context", "window", "memory-only", "eagle", "medusa"])
def test_our_own_are_loaded_the_same_way(kind: str, tmp_path: Path) -> None:
    networks = {"eagle": eagle, "medusa": medusa}
    network = networks[kind]() if kind in networks else block(kind)
    drafter = load_drafter(saved(network, tmp_path), small_context(), num_draft_tokens=2)
    assert drafter.name == kind
    assert drafter.options.num_draft_tokens == 2


def test_shipped_baselines_are_recognised() -> None:
    shipped = shipped_baselines("smollm2-135m")
    assert shipped
    for baseline in shipped:
        assert recognise(baseline.folder).drafter == baseline.drafter


def test_a_folder_stands_for_its_drafter_with_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "mine", "EAGLE3-LLaMA3.1-Instruct-8B")
    monkeypatch.chdir(tmp_path)
    spec = DrafterSpec.from_text("./mine:tree=true,top_k=10")
    assert spec == DrafterSpec(name="eagle", options={"checkpoint": "./mine", "tree": True, "top_k": 10})
    assert DrafterSpec.from_text(spec.label) == spec
    assert checkpoint_folder(spec, "any") == Path("mine")
    assert DrafterSpec.from_text("mine").name == "mine"  # a bare word is a name
    for text in ("./mine:checkpoint=other", "./nowhere"):
        with pytest.raises(SpecError, match=r"given twice|there is no folder \./nowhere"):
            DrafterSpec.from_text(text)


def test_heads_without_a_configuration_are_heads(tmp_path: Path) -> None:
    write(tmp_path, MEDUSA)
    (tmp_path / "config.json").unlink()
    assert load_drafter(tmp_path, context()).network.config.num_slots == 5


def test_heads_as_safetensors_are_the_same(tmp_path: Path) -> None:
    write(tmp_path / "pickled", MEDUSA)
    tensors = torch.load(tmp_path / "pickled" / "medusa_lm_head.pt", weights_only=True)
    (tmp_path / "safe").mkdir()
    save_file(tensors, tmp_path / "safe" / "medusa_lm_head.safetensors")
    pickled, safe = (load_drafter(tmp_path / name, context()).network for name in ("pickled", "safe"))
    assert all(map(torch.equal, pickled.parameters(), safe.parameters()))


def test_layers_read_by_default_are_the_authors() -> None:
    assert default_taps(36, 5) == (1, 9, 17, 25, 33)
    assert default_taps(24, 5) == (1, 6, 11, 16, 21)
    assert default_taps(28, 5) == (1, 7, 13, 19, 25)
    assert default_taps(32, 5) == (1, 8, 15, 22, 29)
    assert default_taps(64, 5) == (1, 16, 31, 46, 61)
    assert default_taps(36, 1) == (18,)
    config = {**CONFIGS["Qwen3-4B-DFlash-b16"], "dflash_config": {"mask_token_id": 151669}}
    assert read_dflash(config, "it").taps == (1, 9, 17, 25, 33)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, "no drafter that is known .*LlamaForCausalLM"),
        ({"speculators_model_type": "mlp"}, "'mlp' cannot be run; known are dflash and eagle3"),
        ([1], "holds a list"),
    ],
)
def test_what_is_unknown_is_refused(tmp_path: Path, config: object, said: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(DrafterError, match=said):
        load_drafter(tmp_path, context())


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DrafterError, match="is no folder"):
        load_drafter(tmp_path / "nowhere", context())
    with pytest.raises(DrafterError, match=r"holds no config\.json"):
        load_drafter(tmp_path, context())
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(DrafterError, match=r"config\.json cannot be read"):
        load_drafter(tmp_path, context())


def test_a_hub_id_is_read_from_the_cache_or_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_hub_id("z-lab/Qwen3-4B-DFlash-b16")
    assert is_hub_id("org/name@0123abc")
    assert not is_hub_id("hyflash-l1")
    assert not is_hub_id("./org/name")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(MissingDependency, match="org/nowhere could not be fetched"):
        load_drafter("org/nowhere", context())
    spec = DrafterSpec.from_text("eagle:checkpoint=org/nowhere")
    assert checkpoint_folder(spec, "any") is None
    snapshot = write(tmp_path, "EAGLE3-LLaMA3.1-Instruct-8B")
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: str(snapshot))
    assert checkpoint_folder(spec, "any") == snapshot
    assert load_drafter("org/there@main", context()).name == "eagle"


@pytest.mark.parametrize("is_legacy", [False, True])
def test_names_are_read_from_pickles_without_running_them(tmp_path: Path, is_legacy: bool) -> None:
    tensors = {"fc.weight": torch.ones(2, 4), "layers.0.mlp.up_proj.weight": torch.ones(3)}
    torch.save(tensors, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=not is_legacy)
    assert tensors.keys() <= tensor_names(tmp_path)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert tensor_names(tmp_path) == tensors.keys()
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 20)
    assert tensor_names(tmp_path) == frozenset()


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin", "medusa_lm_head.pt"])
def test_names_of_a_damaged_file_are_none_or_fewer(tmp_path: Path, file: str) -> None:
    tensors = {"fc.weight": torch.ones(2, 4), "norm.weight": torch.ones(3)}
    path = tmp_path / file
    save_file(tensors, path) if path.suffix == ".safetensors" else torch.save(tensors, path)
    content = path.read_bytes()
    for seed in range(80):
        draw = Random(seed)
        at = draw.randrange(len(content))
        changed = bytearray(content[: len(content) if seed % 2 else at])
        for _ in range(8):
            if changed:
                changed[draw.randrange(len(changed))] = draw.randrange(256)
        path.write_bytes(changed)
        assert len(tensor_names(tmp_path)) < 20


def test_results_belong_to_the_files_that_were_read(tmp_path: Path) -> None:
    from hyflash_bench.runner.plan import drafter_version

    folder, tree = write(tmp_path / "it", MEDUSA), tmp_path / "choices.json"
    tree.write_text("[[0]]")
    spec = DrafterSpec.from_text(f"{folder}:tree=true,tree_paths={tree}")
    versions = [drafter_version(spec, "any")]
    tree.write_text("[[0], [1]]")
    versions.append(drafter_version(spec, "any"))
    tensors = torch.load(folder / "medusa_lm_head.pt", weights_only=True)
    torch.save({name: tensor + 1 for name, tensor in tensors.items()}, folder / "medusa_lm_head.pt")
    versions.append(drafter_version(spec, "any"))
    assert len(set(versions)) == 3
    assert all(versions)
