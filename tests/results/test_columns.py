"""Columns of steps: short on disk, whole in memory, and sums only of what is known."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from hyflash_bench.results.columns import StepLedger, TraceSteps
from hyflash_bench.results.lines import encode
from hyflash_bench.results.records import StepColumns

SAME, TRUTH = [5, 5, 5], [True, False, True]
STEPS = {
    "drafted": SAME,
    "depth": SAME,
    "accepted": [0, 2, 1],
    "committed": [1, 1, 1],
    "eos_cut": [False] * 3,
    "limit_cut": TRUTH,
    "rejected_text": ["a"] * 3,
    "verify_s": [0.25, 0.25, 0.25],
}
PARTS = {name: [place, 10 + place, 20] for place, name in enumerate(StepLedger.model_fields)}


def test_what_is_the_same_at_every_step_is_written_once_and_comes_back_whole() -> None:
    steps = StepColumns(**STEPS, **PARTS)
    stored = json.loads(encode(steps))
    assert (stored["drafted"], stored["eos_cut"], stored["verify_s"]) == (5, False, 0.25)
    assert stored["committed"] == [1, 1, 1], "says how many steps there are"
    assert (stored["limit_cut"], stored["draft_s"]) == (TRUTH, None)
    assert stored["rejected_text"] == ["a"] * 3
    assert StepColumns.model_validate(stored) == steps


@pytest.mark.parametrize("count", [0, 1])
def test_few_steps_come_back_too(count: int) -> None:
    steps = StepColumns(**{name: column[:count] for name, column in STEPS.items()})
    assert StepColumns.model_validate(json.loads(encode(steps))) == steps
    passes = TraceSteps(target_kv_bytes=[7] * count, features_held_bytes=[8] * count)
    assert TraceSteps.model_validate(json.loads(encode(passes))) == passes


def test_sums_are_of_all_parts_or_of_none() -> None:
    steps = StepColumns(**STEPS, **PARTS)
    assert steps.ledger_bytes == [sum(at) for at in zip(*PARTS.values(), strict=True)]
    held = {name: PARTS[name] for name in ("drafter_kv_bytes", "drafter_state_bytes", "drafter_buffer_bytes")}
    assert steps.drafter_bytes == [sum(at) for at in zip(*held.values(), strict=True)]
    lacking = StepColumns(**STEPS, **(PARTS | {"logits_bytes": None}))
    assert (lacking.ledger_bytes, lacking.pass_bytes) == (None, None)
    assert lacking.drafter_bytes == steps.drafter_bytes


def test_columns_of_several_lengths_are_refused() -> None:
    with pytest.raises(ValidationError, match="differ in length"):
        StepColumns(**STEPS, draft_s=[0.1])
