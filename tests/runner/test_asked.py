"""What is asked of memory is checked before any model is loaded, and says how to mend it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hyflash_bench.data import data_folder
from hyflash_bench.errors import SpecError, UnknownName, UsageError
from hyflash_bench.memory.lookup import read_shape
from hyflash_bench.runner import asked
from hyflash_bench.runner.asked import asked_caps, checked, remarks
from hyflash_bench.runner.plan import make_plan
from hyflash_bench.runner.run import run
from hyflash_bench.runner.supervisor import Supervisor
from hyflash_bench.runner.worker import DrafterFacts
from hyflash_bench.spec.device import read_device
from hyflash_bench.spec.plan import Cap
from hyflash_bench.spec.run import RunSpec
from hyflash_bench.suites.catalog import load_suite


@pytest.fixture(autouse=True)
def _no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Supervisor, "start", lambda self: pytest.fail("a model would have been loaded"))


def spec_for(target: Path, **request: Any) -> RunSpec:
    return RunSpec.parse({"target": str(target), "drafters": ["autoregressive", "suffix"], **request})


def test_drafters_that_cannot_follow_a_policy_are_named_before_anything_is_loaded(tiny_target: Path) -> None:
    asked_for: dict[str, Any] = {"memory_caps": ["1GiB"], "drafters": ["autoregressive", "suffix", "medusa"]}
    (remark,) = remarks(spec_for(tiny_target, cap_policy="window", **asked_for))
    assert remark.startswith("--cap-policy window: medusa cannot keep less of the context")
    assert list(remarks(spec_for(tiny_target, **asked_for))) == []


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"devices": ["iphone-15"]}, "Did you mean 'iphone-15-pro'"),
        ({"devices": ["cuda"]}, "--backend cuda"),
        ({"devices": ["cuda:1"]}, "--backend cuda:1"),
        ({"devices": ["nowhere.yaml"]}, "No file nowhere.yaml"),
        (
            {"devices": ["h200", str(data_folder("devices") / "h200.yaml")]},
            "Two of the devices are called 'h200'",
        ),
        ({"memory_caps": ["100KiB"]}, r"100 KiB, is below the target's weights alone: 354 KiB in 32 bits"),
        ({"memory_caps": ["40KiB"], "weight_bits": 4}, "in 4 bits.*fewer --weight-bits or a smaller target"),
        (
            {"memory_caps": ["1GiB"], "cap_policy": "window", "drafters": ["autoregressive", "scripted"]},
            r"none of autoregressive, scripted can keep less.*\(prompt-lookup, suffix, full-context, eagle\)",
        ),
        ({"drafter_kv_dtype": "int8"}, "none of autoregressive, suffix has keys and values"),
    ],
)
def test_requests_that_cannot_be_met(
    request_: Mapping[str, Any], words: str, tiny_target: Path, small_suite: Path, tmp_path: Path
) -> None:
    spec = spec_for(tiny_target, suites=[str(small_suite)], **request_)
    with pytest.raises(UsageError, match=words):
        run(spec, output_path=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"memory_caps": ["0MiB"]}, "is zero"),
        ({"memory_caps": ["-1GiB"]}, "is negative"),
        ({"memory_caps": ["512"]}, "number with a unit"),
        ({"memory_caps": ["1GiB", "1024MiB"]}, r"memory cap 1 GiB \(1,073,741,824 bytes\) is given twice"),
        ({"devices": ["h200", "h200"]}, "given twice"),
        ({"cap_policy": "no-draft"}, "needs a memory cap or a device"),
        ({"weight_bits": 8}, "needs a memory cap or a device"),
        ({"weight_bits": 5, "devices": ["h200"]}, "weight_bits"),
        ({"cap_policy": "window", "devices": ["h200"], "mode": "live"}, "mode both or replay"),
        ({"cap_kind": "enforced"}, "needs a memory cap"),
        ({"cap_kind": "enforced", "devices": ["h200"]}, "devices are always simulated"),
        ({"cap_kind": "enforced", "memory_caps": ["1GiB"], "cap_policy": "no-draft"}, "Use cap_policy stop"),
        ({"cap_kind": "enforced", "memory_caps": ["1GiB"], "weight_bits": 8}, "weights as loaded"),
    ],
)
def test_requests_that_contradict_themselves(request_: Mapping[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        RunSpec.parse(request_)


def test_a_device_is_a_simulated_cap_of_what_a_program_can_use(tiny_target: Path) -> None:
    spec = spec_for(
        tiny_target,
        memory_caps=["1GiB"],
        devices=["raspberry-pi-5-8gb"],
        cap_policy="no-draft",
        weight_bits=8,
    )
    usable = read_device("raspberry-pi-5-8gb").memory_usable.value
    assert asked_caps(spec) == [
        Cap(2**30, "simulated", "no-draft", None, 8),
        Cap(usable, "simulated", "no-draft", "raspberry-pi-5-8gb", 8),
    ]


def test_enforcement_that_cannot_be_had(tiny_target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"memory_caps": ["1GiB"], "cap_kind": "enforced"}
    monkeypatch.setattr(asked, "enforcement_available", lambda backend: "cgroup")
    assert [cap.kind for cap in asked_caps(spec_for(tiny_target, **wanted))] == ["enforced"]
    monkeypatch.setattr(asked, "enforcement_available", lambda backend: None)
    with pytest.raises(UsageError, match="--allow-simulated"):
        checked(spec_for(tiny_target, **wanted))
    allowed = spec_for(tiny_target, **wanted, allow_simulated=True)
    assert [cap.kind for cap in asked_caps(checked(allowed))] == ["simulated"]


def test_the_precision_of_drafters_caches_becomes_their_option(tiny_target: Path) -> None:
    drafters = ["suffix", "full-context", "eagle:kv_dtype=bfloat16"]
    spec = checked(spec_for(tiny_target, drafters=drafters, drafter_kv_dtype="int8"))
    labels = [drafter.label for drafter in spec.drafters]
    assert labels == ["suffix", "full-context:kv_dtype=int8", "eagle:kv_dtype=bfloat16"]
    assert checked(spec) == spec


def facts_of(target: Path) -> dict[str, Any]:
    weight_bytes = read_shape(str(target)).weight_bytes(32)
    return {
        "name": "tiny", "fingerprint": "f", "dtype": "float32", "max_positions": 2048,
        "weight_bytes": weight_bytes,
    }  # fmt: skip


def test_cells_say_which_cap_they_are_under(tiny_target: Path, small_suite: Path) -> None:
    spec = spec_for(
        tiny_target, suites=[str(small_suite)], memory_caps=["1GiB"], devices=["h200"], weight_bits=4,
        temperature=0.0, cap_policy="no-draft",
    )  # fmt: skip
    drafters = {d.label: DrafterFacts(d.label, {}, d.name == "autoregressive", None) for d in spec.drafters}
    plan = make_plan(spec, [load_suite(str(small_suite))], facts_of(tiny_target), drafters)
    under = {(c.memory_cap_bytes, c.cap_kind, c.cap_policy, c.device, c.weight_bits) for c in plan.cells}
    usable = read_device("h200").memory_usable.value
    assert under == {
        (None, None, None, None, None),
        (2**30, "simulated", "no-draft", None, 4),
        (usable, "simulated", "no-draft", "h200", 4),
    }
    assert len(plan.works) == 3, "one pass serves all caps"


def test_enforced_caps_are_work_of_their_own(
    tiny_target: Path, small_suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked, "enforcement_available", lambda backend: "cgroup")
    spec = spec_for(
        tiny_target, suites=[str(small_suite)], memory_caps=["1GiB", "2GiB"], cap_kind="enforced",
        devices=["h200"], temperature=0.0,
    )  # fmt: skip
    drafters = {d.label: DrafterFacts(d.label, {}, d.name == "autoregressive", None) for d in spec.drafters}
    plan = make_plan(spec, [load_suite(str(small_suite))], facts_of(tiny_target), drafters)
    free = [work for work in plan.works if work.enforced_cap_bytes is None]
    assert len(free) == 3
    assert {cell.cap for work in free for cell in work.cells} == {
        None,
        Cap(read_device("h200").memory_usable.value),
    }
    alone = [work for work in plan.works if work.enforced_cap_bytes is not None]
    assert len(alone) == 3 * 2 * 2
    for work in alone:
        assert len(work.drafters) == 1
        assert {(cell.memory_cap_bytes, cell.cap_kind) for cell in work.cells} == {
            (work.enforced_cap_bytes, "enforced")
        }
    assert {work.trace_id for work in alone} == {work.trace_id for work in free}


def test_what_files_do_not_tell_is_seen_once_the_target_is_there(
    tiny_target: Path, small_suite: Path
) -> None:
    """With dtype auto the precision is the checkpoint's."""
    spec = spec_for(tiny_target, suites=[str(small_suite)], memory_caps=["100KiB"], dtype="auto")
    drafters = {d.label: DrafterFacts(d.label, {}, False, None) for d in spec.drafters}
    assert checked(spec) == spec
    with pytest.raises(UsageError, match="in float32"):
        make_plan(spec, [load_suite(str(small_suite))], facts_of(tiny_target), drafters)


def test_unknown_devices_are_unknown_names(tiny_target: Path) -> None:
    with pytest.raises(UnknownName):
        checked(spec_for(tiny_target, devices=["fridge"]))
