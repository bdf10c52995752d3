"""Calibration: complete, sourced, and of use to the simulation; how fast this machine is decides nothing."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hyflash_bench.memory.calibrate import Calibration, calibrate
from hyflash_bench.memory.catalog import form_of
from hyflash_bench.memory.microbenchmarks import ROUTINES, Effort, PassRate
from hyflash_bench.memory.operators import count_operators
from hyflash_bench.memory.shapes import shape_of
from hyflash_bench.memory.simulate import Scene
from hyflash_bench.spec.device import Rates
from hyflash_bench.spec.drafter import DrafterSpec
from tests.targets.families import make_model

SMALL = Effort(
    widths=(64, 128),
    weight_bytes=2**20,
    rows=(1, 2, 17, 40),
    attention_rows=(1, 17, 40),
    context_length=64,
    read_bytes=2**20,
    repeats=3,
    budget_s=0.0,
)


@pytest.fixture(scope="module")
def found() -> Calibration:
    said: list[str] = []
    calibration = calibrate(machine="a test", dtypes=("float32", "bfloat16"), effort=SMALL, tell=said.append)
    assert len(said) >= 6
    return calibration


def test_every_number_is_measured_and_says_when_and_how(found: Calibration):
    numbers = found.profile.sourced()
    assert {number.basis for number in numbers.values()} == {"measured"}
    assert all("measured 20" in number.source and "torch" in number.source for number in numbers.values())
    assert {f"routine_s.{name}.{part}" for name in ROUTINES for part in ("draft", "observe")} <= set(numbers)
    assert found.profile.name == found.profile.kind == "host"
    assert found.profile.operator_s is not None


def test_rates_are_given_by_operations_per_byte(found: Calibration):
    profile = found.profile
    assert set(profile.product_rates) == set(profile.attention_rates) == {"float32", "bfloat16"}
    for rates in (*profile.product_rates.values(), *profile.attention_rates.values()):
        assert isinstance(rates, Rates)
        assert all(low < high for low, high in pairwise(rates.flop_per_byte))
    halves = profile.product_rates["float32"].flop_per_byte[0] / 1
    assert halves == pytest.approx(0.5, rel=0.02)  # a product and an addition for each four bytes
    assert profile.product_rates["bfloat16"].flop_per_byte[0] == pytest.approx(1.0, rel=0.02)


def test_passes_are_kept_by_shape_dtype_and_rows(found: Calibration):
    assert {(rate.dtype, rate.hidden_size, rate.rows) for rate in found.passes} == {
        (dtype, width, rows)
        for dtype in ("float32", "bfloat16")
        for width in SMALL.widths
        for rows in SMALL.rows
    }
    assert all(isinstance(rate, PassRate) and rate.product_flop_per_s > 0 for rate in found.passes)


def test_the_simulation_takes_measured_rates_operators_and_routines(found: Calibration):
    profile = found.profile
    shape = shape_of(make_model("llama").config.to_dict(), "tiny")
    scene = Scene(profile, shape, 32, "float32")
    assert profile.operator_s is not None
    eagle, suffix = (form_of(DrafterSpec(name=name), shape) for name in ("eagle", "suffix"))
    assert eagle is not None
    assert suffix is not None
    cost = eagle.draft_cost(3.0, 50.0)
    least = 3 * float(cost.num_operators) * profile.operator_s.value
    assert float(scene.draft_seconds(eagle, 3.0, 50.0)) > least
    routine = profile.routine_s["suffix.draft"].value
    assert float(scene.draft_seconds(suffix, 0.0, 50.0)) == pytest.approx(routine)
    assert float(scene.observe_seconds(suffix, 7.0, 50.0)) == pytest.approx(
        7 * profile.routine_s["suffix.observe"].value
    )
    assert float(scene.loop_seconds(3)) > 10 * profile.operator_s.value


def test_operators_are_counted_by_the_dispatcher():
    import torch

    x = torch.ones(3)
    assert count_operators(lambda: x + x * x) == 2
