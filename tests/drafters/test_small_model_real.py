"""A drafting model that is a real (tiny) transformer with the engine's own cache."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hyflash_bench.drafters import Drafter, Features
from hyflash_bench.drafters.contract import CHECKS, Ground, run_checks, synthetic_ground
from hyflash_bench.drafters.small_model import SmallModel
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.load import load_target
from hyflash_bench.targets.target import Target
from tests.drafters.fakes import sampler
from tests.tiny import save_tiny_target


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_target(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def target(folder: Path) -> Target:
    return load_target(TargetSpec(target=str(folder)))


def loaded(folder: Path, target: Target) -> SmallModel:
    drafter = SmallModel(SmallModel.Options(model=str(folder)))
    drafter.load(target.load_context())
    return drafter


@pytest.fixture(scope="module")
def results(folder: Path, target: Target) -> dict[str, str]:
    drafter = loaded(folder, target)

    def make() -> Drafter:
        # A fresh drafter without loading the model once more for every walk.
        fresh = SmallModel(drafter.options)
        fresh._model, fresh._vocab_size = drafter._model, drafter._vocab_size
        fresh.reset()
        return fresh

    ground: Ground = synthetic_ground(make, target.info.vocab_size, num_tokens=48)
    return {result.name: result.message for result in run_checks(ground)}


@pytest.mark.parametrize("name", CHECKS)
def test_the_contract_holds(results: dict[str, str], name: str) -> None:
    assert results[name] == ""


def test_a_copy_of_the_target_is_always_accepted(folder: Path, target: Target) -> None:
    drafter = loaded(folder, target)
    text = [5, 9, 30, 31, 32]
    cache = target.new_cache(64)
    reply = [int(target.prefill(torch.tensor(text), cache).logits[-1].argmax())]
    for _ in range(16):
        logits = target.forward(torch.tensor(reply[-1:]), cache).logits
        reply.append(int(logits[-1].argmax()))
    drafter.observe(torch.tensor(text), Features())
    for start in range(0, 15, 5):
        draft = drafter.draft(reply[start], 8, sampler())
        assert draft.tokens.tolist() == reply[start + 1 : start + 5]
        drafter.observe(torch.tensor(reply[start : start + 5]), Features())
