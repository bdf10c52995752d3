"""Training on a GPU: features, fitted starts, steps, states and exams mix no devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from hyflash_bench.drafters.networks.checkpoint import WEIGHTS_FILE
from hyflash_bench.training.trainer import train
from tests.emulated import DEVICES, emulated
from tests.training.toys import toy_plan

COPYING = "copy_window=8,copy_size=8"
ROSTER = (
    f"hyflash:num_slots=2,window=4,chunk=2,recall_rows=8,{COPYING}",
    f"full-context:num_slots=2,{COPYING}",
    f"medusa:num_slots=3,{COPYING}",
    f"eagle:num_slots=3,{COPYING}",
)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_training_runs_there_and_goes_on(
    device: str, precision: str, toy_corpus: Path, tiny_target: Path, cache: Path, tmp_path: Path
) -> None:
    plan = toy_plan(
        toy_corpus, tiny_target, drafters=ROSTER, steps=2, backend=device, precision=precision, ema=0.9
    )
    with emulated(device):
        assert train(plan, tmp_path / "out", should_stop=lambda: True).step == 1
        outcome = train(plan, tmp_path / "out")
    assert (outcome.step, outcome.ended) == (2, "finished")
    assert len(list(outcome.folder.glob(f"*/{WEIGHTS_FILE}"))) == len(ROSTER)
