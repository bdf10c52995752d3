"""The longest context that fits: exact to the byte, and the same as trying every length."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyflash_bench.memory.fit import Budget, Plan, longest_context
from hyflash_bench.memory.forms import PlainForm
from hyflash_bench.memory.ledger_totals import TargetLedger
from hyflash_bench.memory.shapes import ModelShape
from hyflash_bench.spec.drafter import DrafterSpec

TARGET = ModelShape(
    name="tiny",
    num_layers=2,
    hidden_size=8,
    intermediate_size=16,
    num_heads=4,
    num_kv_heads=2,
    head_dim=2,
    vocab_size=10,
    tied=True,
    max_positions=100,
    num_vector_parameters=40,
)
LEDGER = TargetLedger.of(TARGET, bits=32, kv_dtype="float32")
FIXED = LEDGER.plain_total(0)
"""Weights, and what a pass of one row needs."""
ROW = LEDGER.workspace(1, 1001) - LEDGER.workspace(1, 1000)
"""What a pass of one row needs more for a further token of context: scores, their softmax, the mask."""
EACH = 64 + ROW
"""And with the token's keys and values."""
NAMES = ("autoregressive", "suffix", "hyflash", "full-context", "eagle", "medusa", "path.py:Own")


def plan(**options: Any) -> Plan:
    return Plan.of(TARGET, [DrafterSpec(name=name) for name in NAMES], **options)


@given(st.integers(0, 500), st.integers(1, 60), st.integers(1, 40), st.integers(0, 20_000))
def test_bisection_finds_what_a_search_finds(fixed: int, slope: int, step: int, budget: int):
    def total(context: int) -> int:
        return fixed + slope * (-(-context // step) * step)

    fitting = [context for context in range(20_000 // slope + step + 2) if total(context) <= budget]
    assert longest_context(total, budget) == (fitting[-1] if fitting else None)


def test_edges():
    assert longest_context(lambda context: 10 + context, 9) is None
    assert longest_context(lambda context: 10 + context, 10) == 0
    assert longest_context(lambda context: 10 + context, 11) == 1
    assert longest_context(lambda _: 10, 10) == 2**40


def test_a_cap_is_exact_to_the_byte():
    def largest(cap: int) -> Any:
        return plan().limits([Budget("cap", cap)])[0]["largest_context"]

    assert largest(FIXED - 1) is None
    assert largest(FIXED) == 0
    needed = LEDGER.plain_total(70)
    assert needed == LEDGER.plain_total(69) + EACH  # here attention needs more room than the MLP
    assert largest(needed - 1) == 69
    assert largest(needed) == 70


def test_the_model_s_own_limit_ends_what_memory_would_allow():
    row = plan().limits([Budget("much", 2**20)])[0]
    assert row["limited_by"] == "model"
    assert row["largest_context"] == 100
    fits = row["memory_context"]
    assert LEDGER.plain_total(fits) <= 2**20 < LEDGER.plain_total(fits + 1)


def test_rows_agree_with_totals():
    planned = plan()
    budget = Budget("some", 2**20)
    rows = {row["drafter"]: row for row in planned.limits([budget])}
    assert set(rows) == set(NAMES)
    for label, form in planned.drafters:
        fits = rows[label]["memory_context"]
        if form is None:
            assert fits is None
            continue
        assert planned.total_bytes(form, fits) <= budget.num_bytes < planned.total_bytes(form, fits + 1)


def test_what_a_drafter_costs_in_context():
    planned = plan()
    form = dict(planned.drafters)["medusa"]
    held = sum(form.held(0).values())
    narrow = Budget("narrow", planned.total_bytes(form, 0) - 1)
    rows = {row["drafter"]: row for row in planned.limits([narrow])}
    assert rows["medusa"]["limited_by"] == "weights"
    assert rows["medusa"]["tokens_lost_to_drafter"] is None
    wide = Budget("wide", planned.total_bytes(form, 20))
    rows = {row["drafter"]: row for row in planned.limits([wide])}
    assert rows["medusa"]["largest_context"] == 20
    lost = rows["autoregressive"]["memory_context"] - 20
    assert lost > held // EACH - 20
    assert rows["medusa"]["tokens_lost_to_drafter"] == min(100, lost + 20) - 20
    rows = {row["drafter"]: row for row in planned.limits([Budget("ample", 2**20)])}
    assert rows["medusa"]["tokens_lost_to_drafter"] == 0  # the model's own limit ends both


def test_what_a_gib_buys():
    rows = {row["drafter"]: row for row in plan().limits([Budget("some", 2**18)])}
    drafting = 64 + 6 * ROW
    assert rows["autoregressive"]["context_bytes_per_token"] == EACH
    assert rows["autoregressive"]["tokens_per_gib"] == 2**30 // EACH
    assert rows["hyflash"]["tokens_per_gib"] == 2**30 // drafting
    assert rows["full-context"]["context_bytes_per_token"] == drafting + 32
    assert rows["full-context"]["tokens_per_gib"] == 2**30 // (drafting + 32)


def test_verdicts():
    planned = plan()
    forms = dict(planned.drafters)
    held = planned.total_bytes(forms["full-context"], 10)
    alone = planned.total_bytes(None, 10)
    for cap, verdict in ((held, "fits"), (held - 1, "without drafter"), (alone, "without drafter")):
        assert planned.verdict(forms["full-context"], Budget("cap", cap), 10) == verdict
    assert planned.verdict(forms["full-context"], Budget("cap", alone - 1), 10) == "does not fit"
    assert planned.verdict(None, Budget("cap", alone), 10) == "unknown"
    assert planned.verdict(forms["autoregressive"], Budget("cap", alone), 10) == "fits"


@pytest.mark.parametrize("name", NAMES[:-1])
def test_totals_never_fall_with_context(name: str):
    planned = plan()
    form = dict(planned.drafters)[name]
    totals = [planned.total_bytes(form, context) for context in range(0, 2000, 13)]
    assert totals == sorted(totals)


def test_the_longest_draft_decides():
    form = PlainForm(9, 0)
    totals = [plan(draft_budget=budget).total_bytes(form, 50) for budget in (1, 9, 200)]
    assert totals[1] - totals[0] >= 8 * (4 * 10 + 64)  # logits and keys of eight more rows
    assert totals[2] == totals[1]
    during = LEDGER.pass_bytes(10, 49, num_committed=1)
    assert totals[1] == LEDGER.total(50, during)


def test_features_that_a_drafter_reads_are_counted():
    planned = plan()
    form = dict(planned.drafters)["hyflash"]
    assert form.num_features == 3
    read = planned.total_bytes(form, 9)
    form.num_features = 0
    assert read - planned.total_bytes(form, 9) == 4 * 3 * 8 * planned.most_rows(form)


def test_planning_leaves_torch_alone():
    code = (
        "import sys; import hyflash_bench.memory.fit, hyflash_bench.spec.device;"
        "print(sorted({'torch', 'transformers', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
