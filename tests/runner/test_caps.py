"""Simulated caps and their policies: exact to the byte, and no pass of the target more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.engine.replay import replay_turn
from hyflash_bench.memory.ledger import ledger_of
from hyflash_bench.memory.ledger_totals import TargetLedger
from hyflash_bench.registry import build_drafter
from hyflash_bench.results.records import ConversationRecord, TurnRecord
from hyflash_bench.runner import conversation as module
from hyflash_bench.runner.caps import apply_cap
from hyflash_bench.runner.conversation import ConversationRunner
from hyflash_bench.runner.work import Work, WorkCell
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.plan import Cap, CapPolicy
from hyflash_bench.spec.sampling import GREEDY
from hyflash_bench.suites.conversation import Conversation, Item, UserTurn
from hyflash_bench.targets.target import Target
from tests.memory.every_drafter import spec_of, target_at

USER_TURNS = ("abc " * 170, "Once more: abc abc abc.", "And again abc.")
DRAFTERS = ("autoregressive", "prompt-lookup", "suffix", "full-context", "eagle", "medusa")
SHRINK = ("prompt-lookup", "suffix", "full-context", "eagle")
STEPS = ("drafted", "depth", "accepted", "committed", "eos_cut", "limit_cut")
BUDGET, MAX_NEW_TOKENS = 8, 20


@dataclass
class Bench:
    """The tiny target with drafters, and what an uncapped conversation gave."""

    target: Target
    specs: dict[str, DrafterSpec]
    drafters: dict[str, Any]
    uncapped: dict[str, ConversationRecord]
    traces: list[Any]

    @property
    def ledger(self) -> TargetLedger:
        return ledger_of(self.target)

    def run(self, cells: list[WorkCell], mode: str = "both") -> dict[str, ConversationRecord]:
        item = Item("talk/one", "talk", "talk", "chat", "chat", None, len(USER_TURNS))
        work = Work(
            trace_id="trace", suite="talk", item_id=item.item_id, sampling=GREEDY, seed=0,
            max_new_tokens=MAX_NEW_TOKENS, draft_budget=BUDGET, mode=mode, cells=tuple(cells),
        )  # fmt: skip
        by_label = {spec.label: self.drafters[name] for name, spec in self.specs.items()}
        runner = ConversationRunner(self.target, by_label, lambda event: None)
        talk = Conversation(item, tuple(map(UserTurn, USER_TURNS)), None, "hash")
        return {record.cell_id: record for record in runner.run(work, talk).conversations}

    def cell(self, name: str, cap: Cap | None = None) -> WorkCell:
        cell_id = name if cap is None else f"{name} {cap.num_bytes} {cap.policy}"
        return WorkCell.under(cap, cell_id=cell_id, drafter=self.specs[name], repeat=0)

    def capped(
        self, name: str, num_bytes: int, policy: CapPolicy = "stop", bits: int = 32
    ) -> ConversationRecord:
        cap = Cap(num_bytes, policy=policy, weight_bits=bits)
        return apply_cap(self.uncapped[name], cell_id="capped", cap=cap, ledger=self.ledger)

    def totals(self, name: str, mode: str = "replay") -> list[tuple[int, int]]:
        """(turn, total) after every prompt and step."""
        return [
            (turn.turn, total)
            for turn in self.uncapped[name].turns
            if turn.mode == mode
            for total in (turn.prompt_ledger_bytes or 0, *(turn.steps.ledger_bytes or []))
        ]

    def peak(self, name: str) -> int:
        return max(total for _, total in self.totals(name))


@pytest.fixture(scope="module")
def bench(tiny_target: Path, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    target, folder = target_at(tiny_target), tmp_path_factory.mktemp("networks")
    specs = {name: spec_of(name, target, folder) for name in DRAFTERS}
    drafters = {name: build_drafter(spec) for name, spec in specs.items()}
    for drafter in drafters.values():
        drafter.load(target.load_context())
    made = Bench(target, specs, drafters, {}, [])
    traced: Callable[..., Any] = module.trace_conversation

    def remembering(*args: Any, **options: Any) -> Any:
        made.traces.append(traced(*args, **options))
        return made.traces[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "trace_conversation", remembering)
        made.uncapped = made.run([made.cell(name) for name in DRAFTERS])
    return made


@pytest.mark.parametrize("name", DRAFTERS)
def test_the_total_of_a_step_is_the_sum_of_its_parts(bench: Bench, name: str) -> None:
    record = bench.uncapped[name]
    assert record.status == "ok", record.message
    for turn in record.turns:
        steps, memory = turn.steps, turn.memory
        contexts = [turn.context_length + done for done in accumulate(steps.committed)]
        requires = bench.drafters[name].requires
        rows = len(requires.taps) + requires.last_hidden
        totals = [
            bench.ledger.total(
                context,
                bench.ledger.pass_bytes(
                    1 + drafted, context - committed, num_features=rows, num_committed=committed
                ),
                held,
            )
            for context, drafted, committed, held in zip(
                contexts,
                steps.drafted,
                steps.committed,
                [(memory["drafter_weights"] or 0) + size for size in steps.drafter_bytes or ()],
                strict=True,
            )
        ]
        assert steps.ledger_bytes == totals
        for kind in ("target_weights", "target_kv", "drafter_weights", "drafter_kv", "drafter_state"):
            assert memory[kind] == getattr(steps, f"{kind}_bytes")[-1]
        for part in ("features", "logits", "workspace"):
            assert memory[part] == max(getattr(steps, f"{part}_bytes"))
        assert turn.formula_difference_bytes == (None if name in {"prompt-lookup", "suffix"} else 0)


@pytest.mark.parametrize("name", DRAFTERS)
def test_replay_and_live_keep_the_same_ledger(bench: Bench, name: str) -> None:
    by_mode = {
        mode: [
            (t.prompt_ledger_bytes, t.steps.ledger_bytes)
            for t in bench.uncapped[name].turns
            if t.mode == mode
        ]
        for mode in ("replay", "live")
    }
    assert by_mode["replay"] == by_mode["live"]


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_cap_is_exact_to_the_byte(bench: Bench, name: str) -> None:
    assert bench.capped(name, bench.peak(name)).status == "ok"
    assert bench.capped(name, bench.peak(name)).turns == bench.uncapped[name].turns
    for turn, total in bench.totals(name):
        cap = total - 1
        first = next(at for at in bench.totals(name) if at[1] > cap)
        record = bench.capped(name, cap)
        assert record.status == "oom"
        assert (record.policy_turn, record.peak_bytes) == first
        assert record.policy_context == record.context_reached
        assert {t.turn for t in record.turns} == set(range(first[0]))
        assert first[0] <= turn


def test_without_a_draft_from_the_start_is_plain_decoding(bench: Bench) -> None:
    cap = bench.peak("autoregressive")
    record = bench.capped("full-context", cap, "no-draft")
    assert (record.status, record.policy_turn, record.policy_step) == ("ok", 0, 0)
    plain = bench.uncapped["autoregressive"]
    for turn, reference in zip(record.turns, plain.turns, strict=True):
        for column in (*STEPS, "ledger_bytes", "target_kv_bytes", "pass_bytes"):
            assert getattr(turn.steps, column) == getattr(reference.steps, column), column
        assert turn.prompt_ledger_bytes == reference.prompt_ledger_bytes
        assert turn.num_output_tokens == reference.num_output_tokens
        assert (turn.decode_s, turn.steps.draft_s, turn.lossless) == (None, None, "not_judged")
        assert [turn.memory[f"drafter_{kind}"] for kind in ("weights", "kv", "state", "buffer")] == [0] * 4
    assert all(turn.ttft_s is None for turn in record.turns if turn.turn > 0)


def test_the_drafter_goes_at_exactly_the_step_that_does_not_fit(bench: Bench) -> None:
    totals = bench.totals("full-context")
    second = [total for turn, total in totals if turn == 1]
    cap = max(total for turn, total in totals if turn == 0 or total in second[:3])
    record = bench.capped("full-context", cap, "no-draft")
    assert record.status == "ok"
    assert record.policy_turn is not None
    assert record.policy_step is not None
    before = bench.uncapped["full-context"]
    for turn, measured in zip(record.turns, before.turns, strict=True):
        kept = {-1: 10**9, 0: record.policy_step, 1: 0}[
            (turn.turn > record.policy_turn) - (turn.turn < record.policy_turn)
        ]
        assert turn.steps.committed[:kept] == measured.steps.committed[:kept]
        assert set(turn.steps.committed[kept:]) <= {1}
        assert sum(turn.steps.drafted[kept:]) == 0
        assert not any((turn.steps.rejected_tokens or [])[kept:])
        assert sum(turn.steps.committed) == sum(measured.steps.committed)
        assert max(turn.steps.ledger_bytes or [0]) <= cap


def test_plain_decoding_that_does_not_fit_either_ends(bench: Bench) -> None:
    plain = bench.totals("autoregressive")
    cap = max(total for turn, total in plain if turn < 2)
    record = bench.capped("eagle", cap, "no-draft")
    stop = bench.capped("autoregressive", cap)
    assert (record.status, record.policy_turn) == ("oom", 0)
    assert (record.context_reached, record.peak_bytes) == (stop.context_reached, stop.peak_bytes)
    assert {turn.turn for turn in record.turns} == {0, 1}


def replay_of(bench: Bench, spec: DrafterSpec) -> list[TurnRecord]:
    """The trace walked by a drafter built from its name and options, as the engine alone does it."""
    drafter = build_drafter(spec)
    drafter.load(bench.target.load_context())
    capacity = sum(len(turn.ingested) for turn in bench.traces[0].turns) + 3 * MAX_NEW_TOKENS + BUDGET + 1
    return [
        replay_turn(
            drafter, turn, Sampler(GREEDY, 0), budget=BUDGET, capacity=capacity,
            vocab_size=bench.target.info.vocab_size, stop_tokens=bench.target.info.eos_token_ids,
        ).steps
        for turn in bench.traces[0].turns
    ]  # fmt: skip


@pytest.mark.parametrize("name", SHRINK)
def test_a_window_is_a_drafter_built_with_it(bench: Bench, name: str) -> None:
    cap = Cap(bench.peak(name) - 1, policy="window")
    record = bench.run([bench.cell(name, cap)])[f"{name} {cap.num_bytes} window"]
    assert record.status == "ok", record.message
    assert record.policy_drafter is not None
    assert record.policy_turn is not None
    assert {turn.mode for turn in record.turns} == {"replay"}
    built = DrafterSpec.from_text(record.policy_drafter)
    assert built.options["window"] > 0
    for turn, steps in zip(record.turns, replay_of(bench, built), strict=True):
        assert {name: getattr(turn.steps, name) for name in STEPS} == {
            name: getattr(steps, name) for name in STEPS
        }
    drafter = build_drafter(built)
    drafter.load(bench.target.load_context())
    for turn in record.turns:
        steps = turn.steps
        contexts = [turn.context_length + done for done in accumulate(steps.committed)]
        weights = (drafter.memory_formula(0) or {}).get("weights", 0)
        held = [sum((drafter.memory_formula(at) or {}).values()) - weights for at in contexts]
        assert steps.drafter_bytes == held
        assert turn.formula_difference_bytes == 0
    before = [turn for turn in bench.uncapped[name].turns if turn.mode == "replay"]
    assert sum(record.turns[-1].steps.drafter_bytes or ()) < sum(before[-1].steps.drafter_bytes or ())
    assert max(total for turn in record.turns for total in turn.steps.ledger_bytes or ()) <= cap.num_bytes


def test_every_repeat_shows_the_window(bench: Bench) -> None:
    cap = Cap(bench.peak("full-context") - 1, policy="window")
    cells = [
        WorkCell.under(cap, cell_id=str(repeat), drafter=bench.specs["full-context"], repeat=repeat)
        for repeat in (0, 1)
    ]
    first, second = (
        [(turn.turn, turn.mode, *(getattr(turn.steps, name) for name in STEPS)) for turn in record.turns]
        for record in bench.run(cells).values()
    )
    assert len(first) == len(USER_TURNS)
    assert first == second


def test_a_cache_that_cannot_be_had_says_for_how_many_tokens(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(Target, "new_cache", refuse)
    with pytest.raises(MemoryError, match=r"no room for the [\d,]+ tokens of the whole conversation"):
        bench.run([bench.cell("autoregressive")])


def test_a_window_that_is_too_small_still_ends(bench: Bench) -> None:
    cap = Cap(bench.peak("autoregressive"), policy="window")
    record = bench.run([bench.cell("full-context", cap)])[f"full-context {cap.num_bytes} window"]
    assert record.status == "oom"
    assert record.turns == []


def test_a_drafter_that_cannot_shrink_is_told_so_only_where_it_would_have_to(bench: Bench) -> None:
    tight = Cap(bench.peak("medusa") - 1, policy="window")
    roomy = replace(tight, num_bytes=bench.peak("medusa"))
    records = bench.run([bench.cell("medusa", cap) for cap in (tight, roomy)], mode="replay")
    refused, fits = records.values()
    assert (refused.status, refused.turns) == ("incompatible", [])
    assert "cannot keep less of the context" in (refused.message or "")
    assert fits.status == "ok"


def test_a_ladder_of_caps_costs_no_pass_of_the_target(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[int] = []
    for name in ("forward", "prefill"):
        real = getattr(Target, name)
        monkeypatch.setattr(Target, name, lambda *a, _real=real, **o: (passes.append(1), _real(*a, **o))[1])
    bench.run([bench.cell("full-context")])
    without = len(passes)
    ladder = [
        Cap(bench.peak("full-context") - less, policy=policy)
        for less in (1, 10_000, 60_000)
        for policy in ("stop", "no-draft", "window")
    ]
    bench.run([bench.cell("full-context"), *(bench.cell("full-context", cap) for cap in ladder)])
    assert len(passes) == 2 * without


def test_fewer_bits_make_room(bench: Bench) -> None:
    peak, ledger = bench.peak("eagle"), bench.ledger
    saved = ledger.weight_bytes - ledger.shape.weight_bytes(4)
    assert saved > 0
    record = bench.capped("eagle", peak - saved, bits=4)
    assert record.status == "ok"
    assert bench.capped("eagle", peak - saved - 1, bits=4).peak_bytes == peak - saved
    for turn in record.turns:
        assert "target_weights" not in turn.memory, "what was not loaded is not shown as loaded"
        assert turn.memory["target_weights_simulated"] == ledger.shape.weight_bytes(4)


def test_what_failed_without_a_cap_fails_with_one(bench: Bench) -> None:
    failed = bench.uncapped["eagle"].model_copy(update={"status": "error", "turns": []})
    capped = apply_cap(failed, cell_id="capped", cap=Cap(1), ledger=bench.ledger)
    assert (capped.cell_id, capped.status, capped.policy_turn) == ("capped", "error", None)
