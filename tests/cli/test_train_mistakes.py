"""What a user may get wrong with ``train``: one message that says what to do, nothing lost."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import load_file, save_file

from hyflash_bench.cli.main import app
from hyflash_bench.drafters.networks import checkpoint
from hyflash_bench.spec.yaml import dump_yaml
from hyflash_bench.targets.target import Target
from tests.tiny import save_tiny_target
from tests.training.conftest import toy, toy_corpus
from tests.training.toys import toy_documents, toy_plan, toy_target, write_corpus

__all__ = ["toy", "toy_corpus"]

DRAFTER = "medusa:num_slots=3"


@pytest.fixture(scope="session")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _one_cache(_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYFLASH_BENCH_CACHE", str(_cache))


def typed(*words: object) -> Result:
    """Call ``train``; no traceback may reach a user."""
    done = CliRunner().invoke(app, ["train", *map(str, words)])
    assert "Traceback" not in done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done


@pytest.fixture
def train(toy_corpus: Path, tiny_target: Path, tmp_path: Path) -> Callable[..., Result]:
    """Train a small drafter for a few steps into ``out``, with further words."""
    values = toy_plan(toy_corpus, tiny_target, drafters=[DRAFTER], steps=3).to_mapping()
    (tmp_path / "plan.yaml").write_text(dump_yaml(values))

    def call(*words: object) -> Result:
        return typed("--config", tmp_path / "plan.yaml", "--output-path", tmp_path / "out", *words)

    return call


@pytest.fixture(scope="session")
def trained(
    toy: Target, toy_corpus: Path, tiny_target: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Folder of a drafter that is as it should be."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HYFLASH_BENCH_CACHE", str(folder / "cache"))
        plan = toy_plan(toy_corpus, tiny_target, drafters=[DRAFTER], steps=2).to_mapping()
        (folder / "plan.yaml").write_text(dump_yaml(plan))
        done = typed("--config", folder / "plan.yaml", "--output-path", folder / "out")
    assert done.exit_code == 0, done.output
    return folder / "out" / "medusa"


def _broken(trained: Path, folder: Path, change: Callable[[dict[str, Any], dict[str, Any]], Any]) -> Path:
    """A copy of a drafter with something changed in its tensors or its configuration."""
    folder.mkdir()
    tensors = load_file(trained / "model.safetensors")
    described = json.loads((trained / "config.json").read_text())
    change(tensors, described)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(described))
    return folder


CHECKPOINTS: dict[str, tuple[Callable[[dict[str, Any], dict[str, Any]], Any], str]] = {
    "of another target": (
        lambda tensors, described: described["network"]["target"].update(weights="0" * 64),
        "was trained for target",
    ),
    "a tensor is missing": (lambda tensors, described: tensors.pop("bias"), "lacks tensors: bias"),
    "a tensor too many": (
        lambda tensors, described: tensors.update(more=torch.zeros(2)),
        "has unknown tensors: more",
    ),
    "another shape": (
        lambda tensors, described: tensors.update(bias=torch.zeros(1, 9)),
        "tensor bias is [1, 9], but the configuration says",
    ),
    "NaN": (lambda tensors, described: tensors["weight"].fill_(torch.nan), "holds NaN or infinity"),
    "ids beyond the vocabulary": (
        lambda tensors, described: tensors["head.draft_ids"].add_(10_000),
        "must ascend and lie below",
    ),
    "another vocabulary": (
        lambda tensors, described: described["network"]["target"].update(vocab_size=999),
        "its vocab_size is 999",
    ),
    "a newer version": (lambda tensors, described: described.update(version=99), "Update it"),
}


@pytest.mark.parametrize("mistake", CHECKPOINTS)
def test_checkpoints_to_start_from(train, trained: Path, tmp_path: Path, mistake: str) -> None:
    change, words = CHECKPOINTS[mistake]
    done = train("--init-from", _broken(trained, tmp_path / "broken", change))
    assert done.exit_code == 1
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2  # what is being loaded, and the message


def test_files_that_are_no_checkpoint(train, trained: Path, tmp_path: Path) -> None:
    for number, (name, content) in enumerate([("model.safetensors", b"x"), ("config.json", b"{")]):
        folder = _broken(trained, tmp_path / str(number), lambda tensors, described: None)
        (folder / name).write_bytes(content)
        done = train("--init-from", folder)
        assert done.exit_code == 1
        assert "cannot be read" in done.stderr


def test_parts_and_variants(train, trained: Path) -> None:
    done = train("--init-from", trained, "--init-without", "copyng")
    assert (done.exit_code, "Did you mean 'copying'?" in done.stderr) == (2, True)
    assert "name one with init_from" in train("--init-without", "copying").stderr
    assert "weight is [1, 3, 64, 64] there" in train("--init-from", trained, "medusa:hidden_layers=2").stderr
    assert "Use letters, digits" in train("medusa:label=a/b").stderr
    assert "given twice" in train("medusa", "medusa").stderr
    assert "no list of layers" in train("--taps", "1,x").stderr
    assert "must lie in 0..1" in train("hyflash", "--taps", "7").stderr


def test_corpora(train, toy: Target, tmp_path: Path) -> None:
    empty = write_corpus(tmp_path / "empty", toy, [])
    other = toy_target(save_tiny_target(tmp_path / "other", seed=1))
    foreign = write_corpus(tmp_path / "foreign", other, toy_documents(8))
    damaged = write_corpus(tmp_path / "damaged", toy, toy_documents(8))
    (damaged / "0000.safetensors").write_bytes(b"x")
    told = {
        empty: "is empty. Build it with: hyflash-bench corpus build",
        foreign: "was made for target",
        damaged: "is damaged",
        tmp_path / "none": "holds no manifest.json",
    }
    for folder, words in told.items():
        done = train("--corpus", folder)
        assert done.exit_code == 1
        assert words in done.stderr


def _full(monkeypatch: pytest.MonkeyPatch, *, after: int) -> None:
    save, calls = checkpoint.save_file, iter(range(1000))

    def full(tensors: Any, path: Path) -> None:
        if next(calls) >= after:
            Path(path).write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        save(tensors, path)

    monkeypatch.setattr(checkpoint, "save_file", full)


def _state(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "state").rglob("*") if path.is_file()}


def test_a_disk_that_is_full_while_saving(train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert train().exit_code == 0
    before = _state(tmp_path / "out")
    weights = (tmp_path / "out" / "medusa" / "model.safetensors").read_bytes()
    with monkeypatch.context() as patch:
        _full(patch, after=0)
        done = train("--steps", "5")
    assert done.exit_code == 1
    assert "Disk full while writing" in done.stderr
    assert "run the same command again" in done.stderr
    assert _state(tmp_path / "out") == before
    assert (tmp_path / "out" / "medusa" / "model.safetensors").read_bytes() == weights
    assert train("--steps", "5").exit_code == 0


def test_a_disk_that_is_full_while_exporting(train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        _full(patch, after=1)  # the state is stored, the drafter is not
        done = train()
    assert done.exit_code == 1
    assert "Disk full while writing" in done.stderr
    assert not (tmp_path / "out" / "medusa" / "model.safetensors").exists()
    assert train().exit_code == 0
    assert (tmp_path / "out" / "medusa" / "model.safetensors").exists()
