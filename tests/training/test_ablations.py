"""Ablations and controls: each can be trained, exported and run, and differs in what it is for."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
import torch

from hyflash_bench.drafters.base import bytes_by_kind
from hyflash_bench.errors import SpecError
from hyflash_bench.footprint import block_held
from hyflash_bench.registry import build_drafter
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.targets.target import Target
from hyflash_bench.training.corpus.store import Corpus
from hyflash_bench.training.session import Session
from hyflash_bench.training.trainer import train
from tests.training.test_roster import _enlist
from tests.training.toys import toy_plan

SMALL = "num_slots=2,window=8,chunk=4,memory_heads=2,memory_key_dim=8,memory_value_dim=8"
PLAIN = "num_slots=2,chunk=4"
ABLATIONS = {
    f"hyflash:memory=gated-linear,{SMALL}": "plain gated linear attention",
    f"hyflash:memory=delta,{SMALL}": "the delta rule without a gate",
    f"memory-only:{SMALL}": "of the gated delta rule",
    f"window-equal-bytes:{PLAIN}": "as many bytes as hyflash",
    f"window:{PLAIN},window=8": "Its window is 8 rows",
}


def test_each_is_trained_and_runs_under_its_name(
    loaded: Target, toy_corpus: Path, tiny_target: Path, tmp_path: Path
) -> None:
    outcome = train(toy_plan(toy_corpus, tiny_target, drafters=[*ABLATIONS], steps=1), tmp_path / "out")
    folders = [path for path in outcome.folder.iterdir() if (path / "config.json").is_file()]
    assert len(folders) == len(ABLATIONS)
    for folder in folders:
        told = [text for spec, text in ABLATIONS.items() if folder.name.startswith(spec.partition(":")[0])]
        card = (folder / "README.md").read_text()
        assert any(text in card for text in told), folder.name
        assert "tokens copied from the last 512 rows" in card
        drafter = build_drafter(DrafterSpec.from_text(str(folder)))
        drafter.load(loaded.load_context())
        assert bytes_by_kind(drafter.memory()) == drafter.memory_formula(0)


@pytest.mark.parametrize("depth", [1, 3])
def test_a_window_of_equal_bytes_is_as_near_as_a_row_allows(depth: int) -> None:
    hyflash, window = _enlist(f"hyflash:num_layers={depth}", f"window-equal-bytes:num_layers={depth}")
    held = [sum(block_held(entry.config, 5000, 4).values()) for entry in (hyflash, window)]
    assert window.bytes_gap == held[1] - held[0]
    row = depth * 2 * window.config.target.num_kv_heads * window.config.target.head_dim * 4
    assert abs(window.bytes_gap) <= row / 2
    assert window.config.window > hyflash.config.window
    assert window.drafter == "window"
    assert window.label == f"window-equal-bytes-l{depth}"


def test_its_measure_is_the_hyflash_that_is_trained_beside_it() -> None:
    usual = _enlist("window-equal-bytes")[0]
    larger = _enlist("hyflash:memory_value_dim=256", "window-equal-bytes")[1]
    assert larger.config.window > usual.config.window


@pytest.mark.parametrize(
    "text",
    ["hyflash:memory=none", "window:memory=delta", "window-equal-bytes:window=9", "window:attention=full"],
)
def test_what_would_be_another_drafter_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="is what makes"):
        _enlist(text)


# Arms that start alike


def _first_weights(
    target: Target, corpus: Path, folder: Path, *drafters: str
) -> dict[str, dict[str, torch.Tensor]]:
    plan = toy_plan(corpus, folder, drafters=[f"{drafter}:{PLAIN}" for drafter in drafters])
    session = Session.open(plan, target, Corpus.open(corpus, target.info), is_new=True)
    return {pupil.entry.label: dict(pupil.network.named_parameters()) for pupil in session.pupils}


def test_arms_share_first_weights_whatever_the_order(
    toy: Target, toy_corpus: Path, tiny_target: Path, cache: Path
) -> None:
    names = ("hyflash", "full-context", "window", "window-equal-bytes", "memory-only")
    forwards = _first_weights(toy, toy_corpus, tiny_target, *names)
    backwards = _first_weights(toy, toy_corpus, tiny_target, *reversed(names))
    for label, parameters in forwards.items():
        assert all(torch.equal(value, backwards[label][name]) for name, value in parameters.items())
    for first, second in combinations(forwards.values(), 2):
        shared = [name for name in first.keys() & second.keys() if first[name].shape == second[name].shape]
        assert {"fuse.weight", "block_input.shared.weight", "markov.table", "layers.0.qkv.weight"} <= {
            *shared
        }
        assert [name for name in shared if not torch.equal(first[name], second[name])] == []
    assert {"writers.0.project.weight", "layers.0.reader.project.weight"} <= {
        name for name in forwards["hyflash-l1"] if name in forwards["memory-only-l1"]
    }


def test_another_seed_starts_elsewhere(toy: Target, toy_corpus: Path, tiny_target: Path, cache: Path) -> None:
    tables = []
    for seed in (0, 1):
        plan = toy_plan(toy_corpus, tiny_target, drafters=[f"window:{PLAIN}"], seed=seed)
        session = Session.open(plan, toy, Corpus.open(toy_corpus, toy.info))
        tables.append(session.pupils[0].network.markov.table.detach().clone())
    assert not torch.allclose(*tables)
