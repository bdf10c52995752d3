"""A run on other devices: sums of steps, columns that say what they are, and nothing but the folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyflash_bench.analysis.simulated import (
    SIMULATED,
    against_measured,
    median_absolute_error,
    simulated,
)
from hyflash_bench.errors import TargetError
from hyflash_bench.memory.catalog import form_of
from hyflash_bench.memory.shapes import known_shape
from hyflash_bench.memory.simulate import Scene
from hyflash_bench.results.reader import Run, load_run
from hyflash_bench.spec.device import DeviceProfile, read_device
from hyflash_bench.spec.drafter import DrafterSpec
from tests.results.factory import DRAFTERS, FakeDrafter, make_run

INFO: dict[str, Any] = {
    "name": "tiny-135m",
    "dtype": "float32",
    "num_layers": 30,
    "hidden_size": 576,
    "vocab_size": 49152,
    "num_attention_heads": 9,
    "num_kv_heads": 3,
    "head_dim": 64,
    "max_positions": 8192,
    "num_parameters": 134515008,
}
"""What a run keeps of a target of SmolLM2-135M's sizes."""
PLUGIN = FakeDrafter("some/plugin", 4, keep=0.5)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "demo"
    return load_run(make_run(folder, (*DRAFTERS, PLUGIN), num_per_group=3, target=INFO))


@pytest.fixture(scope="module")
def devices() -> list[DeviceProfile]:
    return [read_device(name) for name in ("raspberry-pi-5-8gb", "h200")]


def test_sizes_follow_from_what_a_run_keeps():
    shape = known_shape(INFO)
    assert (shape.intermediate_size, shape.tied, shape.num_vector_parameters) == (1536, True, 61 * 576)
    assert shape.num_parameters == INFO["num_parameters"]
    assert known_shape({**INFO, "intermediate_size": 1536}) == shape
    untied = known_shape({**INFO, "num_parameters": INFO["num_parameters"] + 49152 * 576})
    assert not untied.tied
    with pytest.raises(TargetError, match="Run it again"):
        known_shape({**INFO, "num_parameters": INFO["num_parameters"] + 1})


def test_every_group_has_a_row_on_every_device(run: Run, devices: list[DeviceProfile]):
    table = simulated(run, devices)
    assert tuple(table.columns) == SIMULATED
    chats, documents = 2, 3  # two samplings of a suite without rungs; three rungs of another
    assert len(table) == len(devices) * (len(DRAFTERS) + 1) * (chats + documents)
    assert set(table["device"]) == {device.name for device in devices}
    unknown = table[table["drafter"] == PLUGIN.label]
    assert unknown["measured_acceptance_length"].notna().all()
    assert unknown["simulated_tok_per_s"].isna().all()
    assert table["simulated_energy_j_per_token"].notna().any()


def test_a_row_is_the_sum_of_its_steps(run: Run, devices: list[DeviceProfile]):
    pi = devices[0]
    row = simulated(run, [pi]).query("drafter == 'full-context' and context_rung == 2048").iloc[0]
    steps = run.steps
    chosen = steps[
        steps["is_scored"]
        & steps["memory_cap_bytes"].isna()
        & (steps["drafter"] == "full-context")
        & (steps["context_rung"] == 2048)
    ]
    shape = known_shape(INFO)
    form = form_of(DrafterSpec(name="full-context"), shape)
    assert form is not None
    scene = Scene(pi, shape, 32, "float32")
    seconds = sum(
        float(scene.step_seconds(form, drafted, context - 1, committed))
        for drafted, context, committed in zip(
            chosen["drafted"], chosen["context_length"], chosen["committed"], strict=True
        )
    )
    committed = int(chosen["committed"].sum())
    assert row["num_steps"] == len(chosen)
    assert row["simulated_tok_per_s"] == pytest.approx(committed / seconds)
    whole = chosen[~chosen["limit_cut"]]
    assert row["measured_acceptance_length"] == pytest.approx(whole["committed"].mean())
    assert row["break_even_acceptance_length"] == pytest.approx(
        len(chosen) ** -1 * committed / row["simulated_speedup"]
    )
    power = pi.power_w
    assert power is not None
    assert row["simulated_energy_j_per_token"] == pytest.approx(power.value * seconds / committed)
    parts = sum(row[f"simulated_{part}_s"] for part in ("draft", "verify", "observe"))
    assert parts == pytest.approx(seconds / len(chosen))
    assert row["simulated_ttft_s"] > row["simulated_prefill_s"] > 0


def test_plain_decoding_gains_nothing(run: Run, devices: list[DeviceProfile]):
    plain = simulated(run, devices).query("drafter == 'autoregressive'")
    assert np.allclose(plain["simulated_speedup"], 1.0)
    assert np.allclose(plain["break_even_acceptance_length"], 1.0)
    assert np.allclose(plain["simulated_tok_per_s"], plain["simulated_plain_tok_per_s"])
    assert plain["stops_paying_context"].isna().all()


def test_fewer_bits_are_faster_where_memory_decides(run: Run, devices: list[DeviceProfile]):
    speeds = [
        simulated(run, devices[:1], bits=bits, kv_dtype="int8")["simulated_plain_tok_per_s"].max()
        for bits in (32, 8, 4)
    ]
    assert speeds == sorted(speeds)


def test_where_a_drafter_stops_paying_is_where_its_gain_crosses_one(run: Run):
    pi = read_device("raspberry-pi-5-8gb")
    table = simulated(run, [pi]).query("drafter == 'full-context' and suite == 'longctx'")
    assert table["stops_paying_context"].nunique() == 1
    solved = table["stops_paying_context"].iloc[0]
    shape = known_shape(INFO)
    form = form_of(DrafterSpec(name="full-context"), shape)
    assert form is not None
    accepted = float(table["measured_acceptance_length"].iloc[-1])  # beyond the longest rung it stays
    scene = Scene(pi, shape, 32, "float32")

    def gain(context: int) -> float:
        return accepted / float(scene.break_even(form, 8, context, accepted))

    assert solved > 8192
    assert gain(int(solved) - 2) > 1.0 >= gain(int(solved) + 2)


def test_a_device_of_measured_rates_is_held_against_the_live_loop(run: Run, devices: list[DeviceProfile]):
    held = against_measured(run, devices[0])
    assert set(held["drafter"]) == {drafter.label for drafter in DRAFTERS}
    row = held.query("drafter == 'autoregressive' and context_rung == 512").iloc[0]
    turns = run.turns
    live = turns[
        (turns["mode"] == "live")
        & turns["memory_cap_bytes"].isna()
        & (turns["drafter"] == "autoregressive")
        & (turns["context_rung"] == 512)
    ]
    measured = live["num_committed"].sum() / live["decode_s"].sum()
    assert row["measured_tok_per_s"] == pytest.approx(measured)
    assert row["simulated_error_share"] == pytest.approx(row["simulated_tok_per_s"] / measured - 1)
    assert median_absolute_error(held) == pytest.approx(held["simulated_error_share"].abs().median())
    assert median_absolute_error(held.iloc[:0]) is None


def test_networks_in_the_manifest_outlive_their_checkpoints(run: Run, tmp_path: Path, devices: Any):
    shape = known_shape(INFO)
    network = {
        "kind": "block",
        "network": {
            "target": {name: getattr(shape, name) for name in ("hidden_size", "intermediate_size")}
            | {"num_heads": 9, "num_kv_heads": 3, "head_dim": 64},
            "num_layers": 3, "attention": "full", "memory": "none", "taps": [8, 18, 27],
        },
    }  # fmt: skip
    folder = make_run(
        tmp_path / "deep", DRAFTERS[:3], num_per_group=2, target=INFO, networks={"full-context": network}
    )
    deep, shallow = (
        simulated(one, devices[:1]).query("drafter == 'full-context'")["simulated_draft_s"].mean()
        for one in (load_run(folder), run)
    )
    assert deep > 1.5 * shallow


def test_simulating_leaves_torch_alone():
    code = (
        "import sys; import hyflash_bench.analysis.simulated;"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
