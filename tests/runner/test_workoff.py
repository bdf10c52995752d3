"""Working conversations off: nothing that one of them holds ends the run."""

from __future__ import annotations

import math

import pytest

from hyflash_bench.results.records import ConversationRecord, StepColumns, TurnRecord
from hyflash_bench.runner.conversation import ConversationRunner, is_out_of_memory
from hyflash_bench.runner.events import Event, WorkFinished
from hyflash_bench.runner.supervisor import WorkerDied, WorkRefused
from hyflash_bench.runner.work import Work, WorkCell, WorkResult
from hyflash_bench.runner.worker import DrafterFacts
from hyflash_bench.runner.workoff import work_off
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.sampling import GREEDY

STEPS = {"drafted": [1], "depth": [1], "accepted": [1], "committed": [1]}
CUTS = {"eos_cut": [False], "limit_cut": [False]}


def record(cell: str = "a", **values: object) -> ConversationRecord:
    steps = StepColumns(**STEPS, **CUTS, verify_s=values.pop("verify_s", None))
    turn = {
        "turn": 0, "mode": "live", "context_length": 9, "num_prompt_tokens": 9, "num_output_tokens": 2,
        "stop_reason": "eos", "steps": steps,
    }  # fmt: skip
    return ConversationRecord(
        cell_id=cell, item_id="s/t/one", trace_id=None, status="ok", recorded_at="now",
        turns=[TurnRecord(**{**turn, **values})],
    )  # fmt: skip


def work(*drafters: str, item: str = "s/t/one") -> Work:
    cells = [
        WorkCell(cell_id=name, drafter=DrafterSpec(name=name), memory_cap_bytes=None, repeat=0)
        for name in drafters
    ]
    return Work(
        trace_id="t", suite="s", item_id=item, sampling=GREEDY, seed=0, max_new_tokens=8, draft_budget=4,
        mode="live", cells=tuple(cells),
    )  # fmt: skip


class Writer:
    """Takes records; refuses what no file takes, as the real one does."""

    def __init__(self) -> None:
        self.records: list[ConversationRecord] = []

    def append_conversation(self, conversation: ConversationRecord) -> None:
        from hyflash_bench.results.lines import encode

        encode(conversation)
        self.records.append(conversation)


class Supervisor:
    """Answers from a list: records, or errors to raise."""

    enforced_by = None

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.ending: str | None = None
        self.num_starts = 0
        self.listener = None

    def start(self) -> None:
        self.num_starts, self.ending = self.num_starts + 1, None

    def run(self, work: Work) -> WorkResult:
        answer = self.answers.pop(0)
        if isinstance(answer, WorkerDied):
            self.ending = str(answer)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, ConversationRecord)
        return WorkResult(trace=None, conversations=(answer.model_copy(update={"item_id": work.item_id}),))


def done(supervisor: Supervisor, *works: Work, **facts: DrafterFacts) -> tuple[Writer, list[Event]]:
    writer, told = Writer(), []  # type: ignore[var-annotated]
    work_off(works, len(works), writer, [supervisor], facts, told.append)  # type: ignore[arg-type]
    return writer, told


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_number_that_no_file_takes_is_not_measured(number: float) -> None:
    """Null where null is allowed; the rest of the record is as it was."""
    writer, _ = done(Supervisor(record(divergence_gap=number, decode_s=1.5)), work("a"))
    (turn,) = writer.records[0].turns
    assert (turn.divergence_gap, turn.decode_s) == (None, 1.5)
    assert writer.records[0].status == "ok"


def test_where_null_is_not_allowed_the_row_is_an_error_and_the_run_goes_on() -> None:
    supervisor = Supervisor(record(verify_s=[math.nan]), record())
    writer, _ = done(supervisor, work("a"), work("a", item="s/t/two"))
    assert [each.status for each in writer.records] == ["error", "ok"]
    assert writer.records[0].turns == []
    assert "turns.0.steps.verify_s.0 is NaN" in (writer.records[0].message or "")


def test_a_dead_worker_is_replaced_when_the_next_conversation_needs_one() -> None:
    supervisor = Supervisor(WorkerDied("gone"), record(), WorkerDied("gone again"))
    writer, _ = done(supervisor, *(work("a", item=f"s/t/{n}") for n in ("one", "two", "three")))
    assert [each.status for each in writer.records] == ["error", "ok", "error"]
    assert supervisor.num_starts == 1


def test_a_conversation_that_was_refused_costs_no_worker() -> None:
    supervisor = Supervisor(WorkRefused("no users here"), record())
    writer, _ = done(supervisor, work("a"), work("a", item="s/t/two"))
    assert [each.status for each in writer.records] == ["error", "ok"]
    assert supervisor.num_starts == 0


@pytest.mark.parametrize("status", ["incompatible", "error", "oom"])
def test_what_kept_a_drafter_from_loading_is_its_status(status: str) -> None:
    facts = DrafterFacts("a", {}, False, "why", status)  # type: ignore[arg-type]
    writer, _ = done(Supervisor(), work("a"), a=facts)
    assert [(each.status, each.message) for each in writer.records] == [(status, "why")]


def test_nothing_is_said_to_be_left_when_all_is_done() -> None:
    _, told = done(Supervisor(record(), record()), work("a"), work("a", item="s/t/two"))
    finished = [event for event in told if isinstance(event, WorkFinished)]
    assert [(event.num_done, event.num_work) for event in finished] == [(1, 2), (2, 2)]
    assert finished[-1].eta_s == 0


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (
            RuntimeError("[alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"),
            True,
        ),
        (RuntimeError("MPS backend out of memory"), True),
        (RuntimeError("shapes do not match"), False),
        (ValueError("DefaultCPUAllocator: can't allocate memory"), False),
    ],
)
def test_running_out_of_memory_is_told_from_other_errors(error: Exception, expected: bool) -> None:
    """The CPU allocator raises a plain RuntimeError."""
    assert is_out_of_memory(error) is expected


def test_a_target_that_computes_no_numbers_is_told(tiny_target) -> None:
    """Not stored, and not the end of the worker."""
    import torch

    from hyflash_bench.errors import TargetError
    from hyflash_bench.registry import build_drafter
    from hyflash_bench.spec.target import TargetSpec
    from hyflash_bench.suites.conversation import Conversation, Item, UserTurn
    from hyflash_bench.targets.load import load_target

    target = load_target(TargetSpec(target=str(tiny_target)))
    forward = target.forward

    def broken(*arguments: object, **options: object) -> object:
        passed = forward(*arguments, **options)  # type: ignore[arg-type]
        return type(passed)(torch.full_like(passed.logits, math.nan), passed.features)

    target.forward = broken  # type: ignore[method-assign]
    drafter = build_drafter(DrafterSpec(name="autoregressive"))
    runner = ConversationRunner(target, {"autoregressive": drafter}, lambda event: None)
    item = Item("s/t/one", "s", "t", "chat", "chat", None, 1)
    with pytest.raises(TargetError, match="turn 0: the target's logits are NaN"):
        runner.run(work("autoregressive"), Conversation(item, (UserTurn("Hello."),), None, "hash"))
