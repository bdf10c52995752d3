"""The roofline: numbers by hand, curves that grow, and steps that agree with single passes."""

from __future__ import annotations

from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from hyflash_bench.drafters.base import Draft, Features
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.engine.live import live_turn
from hyflash_bench.memory import simulate
from hyflash_bench.memory.catalog import form_of
from hyflash_bench.memory.forms import DrafterForm
from hyflash_bench.memory.operators import count_operators
from hyflash_bench.memory.shapes import PassCost
from hyflash_bench.memory.simulate import Scene, pass_seconds
from hyflash_bench.spec.device import DeviceProfile, read_device
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.sampling import GREEDY
from hyflash_bench.targets.target import Pass
from tests.memory.test_fit import TARGET
from tests.spec.test_device import GOOD

DEVICE = DeviceProfile.parse(GOOD, "test")
"""2e9 bytes and 2e9 operations of float32 a second; 1 ms a pass and 0.1 ms a layer."""


def form(name: str) -> DrafterForm:
    found = form_of(DrafterSpec(name=name), TARGET)
    assert found is not None
    return found


def scene(name: str = "raspberry-pi-5-8gb") -> Scene:
    return Scene(read_device(name), TARGET, 32, "float32")


@pytest.mark.parametrize(
    ("cost", "seconds"),
    [
        (PassCost(2e9, 1e9), 1.0011),
        (PassCost(1e9, 2e9), 1.0011),
        (PassCost(1e9, 2e9, 3.0, 5), 3 * 1.0015),
        (PassCost(0.0, 0.0, 0.0), 0.0),
    ],
)
def test_seconds_by_hand(cost: PassCost, seconds: float):
    assert pass_seconds(cost, DEVICE, "float32") == pytest.approx(seconds)


RATES = {"basis": "measured", "source": "made up for a test", "flop_per_byte": [0.5, 8.0]}
MEASURED = DeviceProfile.parse(
    {
        **GOOD,
        "product_rates": {"float32": {**RATES, "flop_per_s": [1e9, 4e9]}},
        "attention_rates": {"float32": {**RATES, "flop_per_s": [1e9, 1e9]}},
        "operator_s": {"value": 1e-4, "basis": "measured", "source": "made up for a test"},
        "routine_s": {"suffix.draft": {"value": 0.25, "basis": "measured", "source": "made up here"}},
    },
    "test",
)


@pytest.mark.parametrize(
    ("cost", "seconds"),
    [
        (PassCost(1e9, 2e9), 1.0011),  # at the first point
        (PassCost(2e9, 1e9), 1.0011),  # between two: a rate of 2e9 at four times the intensity
        (PassCost(8e9, 1e9), 2.0011),  # at the last
        (PassCost(32e9, 1e9), 8.0011),  # beyond: bound by arithmetic
        (PassCost(0.25e9, 2e9), 1.0011),  # below the first: bound by memory
        (PassCost(2e9, 4e9, score_flops=1e9, cache_bytes=2e9), 2.0011),  # products, then attention
        (PassCost(1e9, 2e9, 3.0, num_operators=50), 3 * 1.005),
        (PassCost(0.0, 0.0, 2.0, routine="suffix.draft"), 0.5),
        (PassCost(0.0, 0.0, 2.0, routine="unknown.draft"), 0.0),
    ],
)
def test_seconds_where_rates_were_measured(cost: PassCost, seconds: float):
    assert pass_seconds(cost, MEASURED, "float32") == pytest.approx(seconds, rel=2e-2)


def test_precisions_that_were_not_measured_keep_the_roofline():
    cost = PassCost(2e9, 1e9)
    assert pass_seconds(cost, MEASURED, "float16") == pass_seconds(cost, DEVICE, "float16")


def test_the_loop_s_own_operators_are_those_that_are_counted():
    logits, drafted, num_steps = torch.zeros(4, 11), torch.tensor([5, 6, 7]), 6
    target, cache, drafter = MagicMock(), MagicMock(length=8, capacity=99), MagicMock()
    target.device, target.info.vocab_size = torch.device("cpu"), 11
    target.forward.return_value = Pass(logits, Features())
    drafter.draft.side_effect = lambda *_: Draft(drafted, None, None)

    def work() -> None:
        live_turn(
            target, cache, drafter, Sampler(GREEDY, 0),
            ingested=drafted, ingested_features=Features(), first_logits=logits[0],
            budget=8, max_new_tokens=1 + num_steps, stop_tokens=(),
        )  # fmt: skip

    assert count_operators(work) / num_steps == pytest.approx(simulate._LOOP_OPERATORS, abs=5)


def test_a_longer_draft_and_a_longer_context_never_cost_less():
    rows = scene().verify_seconds(np.arange(64), 1000)
    contexts = scene().plain_seconds(np.arange(0, 10**6, 1000))
    assert (np.diff(rows) >= 0).all()
    assert (np.diff(contexts) > 0).all()
    assert rows[-1] > rows[0]


def test_prefill_is_the_sum_of_its_passes():
    stage = Scene(DEVICE, TARGET, 32, "float32")
    assert stage.prefill_seconds(600) > stage.prefill_seconds(512) > stage.prefill_seconds(1)
    assert stage.prefill_seconds(1) == pytest.approx(float(stage.plain_seconds(0)))


def test_plain_steps_are_plain_decoding():
    contexts = np.arange(100, 200, dtype=np.float64)
    steps = scene().steps(form("autoregressive"), np.zeros(100), np.ones(100), contexts)
    assert steps.simulated_speedup == pytest.approx(1.0)
    assert steps.simulated_tok_per_s == pytest.approx(100 / scene().plain_seconds(contexts - 1).sum())
    assert not steps.draft_s.any()


def test_a_drafter_pays_from_its_break_even_on():
    drafter, stage = form("hyflash"), scene()
    needed = float(stage.break_even(drafter, 5, 999, 2.0))
    contexts = np.full(50, 1000.0)
    speeds = [
        stage.steps(drafter, np.full(50, 5.0), np.full(50, length), contexts).simulated_speedup
        for length in (0.9 * needed, needed, 1.1 * needed)
    ]
    assert speeds[0] < 1 < speeds[2]
    assert speeds[1] == pytest.approx(1.0, rel=1e-2)


def test_full_context_drafting_slows_with_context_and_a_window_does_not():
    contexts = np.array([1_000.0, 10_000.0, 131_072.0])
    stage = scene()

    def drafting(name: str) -> np.ndarray:
        return np.asarray(pass_seconds(form(name).draft_cost(5.0, contexts), stage.device, "float32"))

    for name in ("full-context", "eagle"):
        assert (np.diff(drafting(name)) > 0).all()
    for name in ("hyflash", "window", "memory-only", "medusa"):
        assert len(set(np.broadcast_to(drafting(name), 3).tolist())) == 1


def test_steps_without_a_draft_cost_no_drafting():
    steps = scene().steps(form("eagle"), np.array([0.0, 4.0]), np.array([1.0, 2.0]), np.array([9.0, 10.0]))
    assert steps.draft_s[0] == 0
    assert steps.draft_s[1] > 0
