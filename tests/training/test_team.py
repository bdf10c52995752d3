"""Several processes take the steps that one would take."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from hyflash_bench.targets.target import Target
from hyflash_bench.training.stream import Segment
from hyflash_bench.training.team import ALONE, Team
from hyflash_bench.training.trainer import train
from tests.training.toys import toy_plan

ROOT = Path(__file__).parents[2]
SMALL = "num_slots=2,window=4,chunk=2,memory_heads=2,memory_key_dim=8,memory_value_dim=8"


def _state(folder: Path) -> dict[str, torch.Tensor]:
    described = json.loads((folder / "state" / "state.json").read_text())
    files = sorted((folder / "state" / described["folder"]).iterdir())
    return {f"{path.stem}/{name}": value for path in files for name, value in load_file(path).items()}


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def _launch(plan: Path, folder: Path, cache: Path, size: int) -> None:
    """What ``accelerate launch`` does, without its start."""
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": str(size)}
    shared = {**os.environ, **address, "OMP_NUM_THREADS": "1", "HYFLASH_BENCH_CACHE": str(cache)}
    command = [sys.executable, "-m", "tests.training.team_job", str(plan), str(folder)]
    running = []
    for rank in map(str, range(size)):
        env = {**shared, "RANK": rank, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": str(size)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        running.append(subprocess.Popen(command, cwd=ROOT, env=env, **pipes))
    try:
        said = [process.communicate(timeout=300)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0] * size, "\n".join(said)


def test_two_processes_stopped_and_resumed_leave_the_weights_of_one(
    loaded: Target, toy_corpus: Path, tiny_target: Path, tmp_path: Path, cache: Path
) -> None:
    drafters = ["medusa:num_slots=3", f"hyflash:memory=delta,{SMALL}", "eagle:num_slots=3"]
    # One anchor of two leaves nothing to do for a process at times.
    plan = toy_plan(toy_corpus, tiny_target, drafters=drafters, steps=5, num_anchors=9)
    train(plan, tmp_path / "one")
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_mapping()))
    _launch(tmp_path / "plan.json", tmp_path / "two", cache, size=2)
    one, two = _state(tmp_path / "one"), _state(tmp_path / "two")
    assert one.keys() == two.keys()  # log_rates of a delta memory have no moments in either
    gaps = {name: float((one[name] - two[name]).abs().max()) for name in one}
    assert max(gaps.values()) < 1e-5, sorted(gaps.items(), key=lambda item: -item[1])[:5]
    curve = (tmp_path / "two" / "medusa" / "curve.csv").read_text()
    assert curve.splitlines()[1].startswith("5,")


def test_anchors_are_dealt_out_whole_and_in_order() -> None:
    anchors = np.arange(3, 14)
    parts = [Team(size=4, index=index).share(anchors) for index in range(4)]
    assert np.concatenate(parts).tolist() == anchors.tolist()
    assert {len(part) for part in parts} == {2, 3}
    assert ALONE.share(anchors).tolist() == anchors.tolist()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 20])
def test_each_part_of_a_segment_holds_the_rows_that_its_anchors_had(size: int) -> None:
    segment = Segment(documents=(7, 2, 9, 4), lengths=(10, 6, 12, 5))
    anchors = np.array([1, 4, 12, 17, 20, 26, 30, 31])
    starts = np.asarray(segment.starts)
    before = np.searchsorted(starts, anchors, side="right") - 1
    wanted = [
        (segment.documents[doc], row) for doc, row in zip(before, anchors - starts[before], strict=True)
    ]
    found = []
    for index in range(size):
        part, rows = segment.around(Team(size=size, index=index).share(anchors))
        assert part.num_tokens <= segment.num_tokens
        own = np.asarray(part.starts)
        holder = np.searchsorted(own, rows, side="right") - 1
        found += [(part.documents[doc], row) for doc, row in zip(holder, rows - own[holder], strict=True)]
    assert found == wanted


def test_alone_nothing_is_changed() -> None:
    value = torch.tensor(3.0)
    assert ALONE.total(value) is value
    assert ALONE.agreed(flag=True)
    assert not ALONE.agreed(flag=False)
    assert Team.gathered("cuda:3").backend == "cuda:3"
