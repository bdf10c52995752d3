"""A checkpoint comes back as it was saved, or is refused with the reason."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from hyflash_bench.drafters.networks import checkpoint
from hyflash_bench.drafters.networks.checkpoint import find_checkpoint, load_network, save_network
from hyflash_bench.errors import DataError, DrafterError
from tests.drafters.networks.small import DRAFT_IDS, batch_of, context, eagle, medusa, saved

Tensors = dict[str, torch.Tensor]
Config = dict[str, Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return saved(eagle(), tmp_path / "eagle")


def edit_config(folder: Path, change: Callable[[Config], Any]) -> None:
    path = folder / "config.json"
    described = json.loads(path.read_text())
    change(described)
    path.write_text(json.dumps(described))


def edit_tensors(folder: Path, change: Callable[[Tensors], Any]) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def refusal(folder: Path) -> str:
    with pytest.raises(DrafterError) as caught:
        load_network(folder, context())
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("make", [eagle, medusa])
def test_a_network_comes_back_as_it_was_saved(make: Callable[[], Any], tmp_path: Path) -> None:
    network = make()
    again = load_network(saved(network, tmp_path), context())
    assert again.config == network.config
    assert again.head.draft_ids.tolist() == DRAFT_IDS
    assert not again.training
    for (name, one), (other_name, other) in zip(
        network.named_parameters(), again.named_parameters(), strict=True
    ):
        assert name == other_name
        assert torch.equal(one, other)
        assert not other.requires_grad
    batch = batch_of([20], [4, 11], network.requires)
    with torch.no_grad():
        assert torch.equal(network(batch), again(batch))


def test_parameters_are_stored_in_bfloat16_and_nothing_of_the_target(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    assert tensors.pop("head.draft_ids").dtype == torch.int32
    assert {value.dtype for value in tensors.values()} == {torch.bfloat16}
    assert tensors.keys() == {name for name, _ in eagle().named_parameters()}
    assert json.loads((folder / "config.json").read_text())["training"] == {"drafter": "eagle", "steps": 3}


def test_it_takes_the_targets_precision(folder: Path) -> None:
    network = load_network(folder, replace(context(), dtype=torch.bfloat16))
    assert {parameter.dtype for parameter in network.parameters()} == {torch.bfloat16}
    assert network.head.draft_ids.dtype == torch.int64


def test_saving_again_gives_the_same_files(folder: Path, tmp_path: Path) -> None:
    again = saved(load_network(folder, context()), tmp_path / "again")
    for name in ("config.json", "model.safetensors"):
        assert (folder / name).read_bytes() == (again / name).read_bytes()


# What is refused


@pytest.mark.parametrize(
    ("field", "value"),
    [("weights", "other"), ("tokenizer", "other"), ("hidden_size", 64), ("vocab_size", 96)],
)
def test_another_target_is_refused(folder: Path, field: str, value: Any) -> None:
    edit_config(folder, lambda described: described["network"]["target"].update({field: value}))
    message = refusal(folder)
    assert "was trained for target" in message
    assert f"its {field} is {value}" in message


def test_the_targets_name_alone_does_not_matter(folder: Path) -> None:
    edit_config(folder, lambda described: described["network"]["target"].update(name="elsewhere"))
    load_network(folder, context())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("fusion.weight"), "lacks tensors: fusion.weight"),
        (lambda t: t.pop("head.draft_ids"), "lacks tensors: head.draft_ids"),
        (lambda t: t.update(stray=torch.zeros(1)), "has unknown tensors: stray"),
        (lambda t: t.update({"head.norm.weight": torch.ones(3)}), "head.norm.weight is [3], but"),
        (lambda t: t["output.weight"].view(-1)[5:6].fill_(float("nan")), "output.weight holds NaN"),
        (lambda t: t["output.weight"].view(-1)[5:6].fill_(float("inf")), "output.weight holds NaN or inf"),
        (
            lambda t: t.update(
                {"output.weight": torch.full_like(t["output.weight"], 1e300, dtype=torch.float64)}
            ),
            "output.weight holds NaN or inf",
        ),
        (
            lambda t: t.update({"head.draft_ids": t["head.draft_ids"].to(torch.complex64)}),
            "head.draft_ids is torch.complex64",
        ),
        (lambda t: t["head.draft_ids"][-1:].fill_(97), "must ascend and lie below 97"),
        (lambda t: t["head.draft_ids"][:1].fill_(-1), "must ascend and lie below 97"),
        (lambda t: t["head.draft_ids"][1:2].fill_(3), "must ascend and lie below 97"),
    ],
)
def test_wrong_tensors_are_refused(folder: Path, change: Callable[[Tensors], Any], message: str) -> None:
    edit_tensors(folder, change)
    told = refusal(folder)
    assert message in told
    assert "etrain" in told


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(kind="oracle"), "has kind 'oracle'; known are block, eagle, medusa"),
        (lambda d: d.pop("kind"), "has kind None"),
        (lambda d: d.update(kind=["eagle"]), "has kind ['eagle']"),
        (lambda d: d.update(version=99), "is of version 99; this package reads 1"),
        (lambda d: d.update(format="other"), "not the configuration of a drafter"),
        (lambda d: d["network"].update(layers=2), "unknown key 'layers'"),
        (lambda d: d["network"].update(draft_vocab_size=98), "draft_vocab_size 98 exceeds"),
        (
            lambda d: d["network"].update(copy_window=10**12),
            "copy_window: Input should be less than or equal to 1048576",
        ),
        (lambda d: d["network"].pop("taps"), "key 'taps' is missing"),
        (lambda d: d.pop("network"), "key 'target' is missing"),
        (lambda d: d.update(network=[1]), "key 'target' is missing"),
    ],
)
def test_wrong_configurations_are_refused(
    folder: Path, change: Callable[[Config], Any], message: str
) -> None:
    edit_config(folder, change)
    assert message in refusal(folder)


def test_damaged_files_are_refused(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "model.safetensors cannot be read" in refusal(folder)
    weights.unlink()
    assert "model.safetensors cannot be read" in refusal(folder)
    (folder / "config.json").write_text("{")
    assert "config.json cannot be read" in refusal(folder)
    (folder / "config.json").unlink()
    assert "holds no config.json" in refusal(folder)


# Saving


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), SafetensorError("No space left on device")])
def test_a_full_disk_keeps_the_old_files(
    folder: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def fail(tensors: Tensors, path: Path) -> None:
        path.write_bytes(b"half")
        raise error

    monkeypatch.setattr(checkpoint, "save_file", fail)
    with pytest.raises(DataError, match="Disk full while writing"):
        save_network(eagle(seed=1), folder, {})
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


# Finding


def shipped(network: Any, name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HYFLASH_BENCH_BASELINES_DIR", str(root))
    return saved(network, root / context().info.name / name)


def test_a_baseline_is_found_by_name_and_a_folder_by_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = shipped(eagle(), "eagle", tmp_path, monkeypatch)
    assert find_checkpoint("eagle", "", context()) == found
    assert find_checkpoint("other", "eagle", context()) == found
    assert find_checkpoint("other", str(found), context()) == found


def test_what_is_not_there_is_told_with_what_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped(eagle(), "eagle", tmp_path, monkeypatch)
    with pytest.raises(DrafterError, match=r"no trained drafter 'medusa' .* Shipped for it: eagle\."):
        find_checkpoint("medusa", "", context())
    monkeypatch.setenv("HYFLASH_BENCH_BASELINES_DIR", str(tmp_path / context().info.name))
    with pytest.raises(DrafterError, match="None is shipped for it"):
        find_checkpoint("medusa", "", context())
