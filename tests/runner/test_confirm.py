"""Solved limits hold in runs: what ends at the limit fits, what goes past it does not."""

from __future__ import annotations

from pathlib import Path

from hyflash_bench.drafters.networks.checkpoint import save_network
from hyflash_bench.drafters.networks.network import TargetShape
from hyflash_bench.memory.fit import Plan
from hyflash_bench.memory.lookup import read_shape
from hyflash_bench.runner.confirm import confirm
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.load import load_target
from hyflash_bench.training.plan import TrainingPlan
from hyflash_bench.training.roster import enlist
from tests.tiny import save_tiny_target


def untrained(target: Path, folder: Path, names: list[str]) -> list[DrafterSpec]:
    """Drafters of the target with random weights."""
    context = load_target(TargetSpec(target=str(target))).load_context()
    plan = TrainingPlan.parse({"corpus": "none", "drafters": names, "draft_vocab_size": 64}, "test")
    specs = []
    for entry in enlist(plan, TargetShape.of(context)):
        network = entry.build()
        network.set_vocabulary(range(entry.config.draft_vocab_size))
        save_network(network, folder / entry.name, {})
        specs.append(DrafterSpec(name=entry.name, options={"checkpoint": str(folder / entry.name)}))
    return specs


def test_three_limits_hold(tmp_path: Path, small_suite: Path):
    target = save_tiny_target(tmp_path / "tiny")
    specs = [DrafterSpec(name="autoregressive"), *untrained(target, tmp_path, ["hyflash", "full-context"])]
    plan = Plan.of(read_shape(str(target)), specs)
    labels = [spec.label for spec in specs]
    found = confirm(plan, str(target), labels, suite=str(small_suite), contexts=())
    assert [one.expected for one in found] == ["fits", "out of memory"] * 3
    assert all(one.agrees for one in found)
    for below, above in zip(found[::2], found[1::2], strict=True):
        assert below.solved_context >= below.conversation_context == below.reached_context
        assert below.peak_bytes <= below.memory_cap_bytes
        assert above.solved_context < above.reached_context <= above.conversation_context
        assert above.peak_bytes > above.memory_cap_bytes
    plain = found[0]
    assert plain.peak_bytes == plain.memory_cap_bytes  # to the byte
