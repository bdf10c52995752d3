"""One process of a training in several; see test_team.py.

python -m tests.training.team_job PLAN.json FOLDER
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from hyflash_bench.training import trainer
from hyflash_bench.training.plan import TrainingPlan
from hyflash_bench.training.state import StateFolder

STEPS_BEFORE_THE_STOP = 3


def main(plan_file: str, folder: str) -> None:
    torch.set_num_threads(1)
    plan = TrainingPlan.parse(json.loads(Path(plan_file).read_text()))
    if os.environ["RANK"] != "0":

        def refuse(*_: Any, **__: Any) -> None:
            raise AssertionError("a process that is not the main one writes")

        StateFolder.save = refuse  # type: ignore[method-assign]
        trainer.export = refuse  # type: ignore[assignment]
        trainer.write_text = refuse  # type: ignore[assignment]
    calls = iter(range(1, 100))
    # Only one process is told to stop; the others must hear of it.
    is_told = os.environ["RANK"] == "1"
    stopped = trainer.train(
        plan, Path(folder), should_stop=lambda: next(calls) == STEPS_BEFORE_THE_STOP and is_told
    )
    assert (stopped.step, stopped.ended) == (STEPS_BEFORE_THE_STOP, "stopped")
    assert trainer.train(plan, Path(folder)).ended == "finished"


if __name__ == "__main__":
    main(*sys.argv[1:])
