"""Several workers: the same tables, sooner; ended at any moment, nothing but what was in flight is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Barrier

import pytest

from hyflash_bench.errors import HyFlashError, SpecError
from hyflash_bench.runner.events import ConversationFinished, Event, Log, WorkFinished
from hyflash_bench.runner.run import run
from hyflash_bench.runner.supervisor import RunEnded, Supervisor
from hyflash_bench.runner.work import Work, WorkResult
from hyflash_bench.runner.worker import Job
from hyflash_bench.runner.workoff import work_off
from hyflash_bench.spec.run import RunSpec
from hyflash_bench.spec.target import TargetSpec
from tests.runner.requests import request_for, tables
from tests.runner.test_workoff import Writer, record, work

ITEMS = [f"s/t/{number}" for number in range(6)]
REPLAY = {"mode": "replay", "drafters": ["autoregressive", "suffix"]}


class Fake:
    """A supervisor whose worker answers each conversation as it is told to."""

    enforced_by = ending = None

    def __init__(self, answer: Callable[[Work], None], problem: Exception | None = None) -> None:
        self._answer, self._problem = answer, problem
        self.listener: Callable[[Event], None] = lambda event: None
        self.is_ended = False

    def start(self) -> None:
        if self._problem is not None:
            raise self._problem

    def end(self) -> None:
        self.is_ended = True

    def run(self, work: Work) -> WorkResult:
        self._answer(work)
        self.listener(ConversationFinished(work.item_id, "a", "ok", None))
        return WorkResult(trace=None, conversations=(record().model_copy(update={"item_id": work.item_id}),))


def done(*supervisors: Fake) -> tuple[list[str], list[Event]]:
    """Stored conversations and what was told, of six."""
    writer, told = Writer(), []  # type: ignore[var-annotated]
    works = [work("a", item=item) for item in ITEMS]
    work_off(works, len(works), writer, supervisors, {}, told.append)  # type: ignore[arg-type]
    return [each.item_id for each in writer.records], told


def test_conversations_go_on_at_once() -> None:
    """Each worker waits for the other in the midst of every conversation."""
    together = Barrier(2, timeout=60)
    stored, told = done(Fake(lambda work: together.wait()), Fake(lambda work: together.wait()))
    finished = [event for event in told if isinstance(event, WorkFinished)]

    assert sorted(stored) == ITEMS
    assert [event.num_done for event in finished] == [1, 2, 3, 4, 5, 6]
    assert finished[-1].eta_s == 0


def test_what_is_told_of_a_conversation_stands_together() -> None:
    together = Barrier(2, timeout=60)
    _, told = done(Fake(lambda work: together.wait()), Fake(lambda work: together.wait()))
    names = [event.item_id for event in told]  # type: ignore[union-attr]

    assert [name for index, name in enumerate(names) if name not in names[:index]] == names[::3]


def test_a_run_goes_on_without_a_worker_that_does_not_start() -> None:
    """Of several, as when memory holds fewer copies of the target."""
    stored, told = done(Fake(lambda work: None), Fake(lambda work: None, HyFlashError("no room")))

    assert sorted(stored) == ITEMS
    assert [event.message for event in told if isinstance(event, Log)] == [
        "One worker fewer: it did not start (no room)"
    ]


def test_what_ends_one_ends_all_and_is_raised() -> None:
    def fail(work: Work) -> None:
        raise HyFlashError("the disk is full")

    workers = Fake(fail), Fake(fail)
    with pytest.raises(HyFlashError, match="the disk is full"):
        done(*workers)
    assert all(each.is_ended for each in workers)


def test_no_worker_starts_once_the_run_is_ended() -> None:
    supervisor = Supervisor(Job(TargetSpec(), (), {}), 1.0, lambda event: None)
    supervisor.end()
    with pytest.raises(RunEnded):
        supervisor.start()


def test_several_workers_give_the_tables_of_one(tiny_target: Path, small_suite: Path, tmp_path: Path) -> None:
    for workers in (1, 3):
        spec = request_for(tiny_target, small_suite, workers=workers, **REPLAY)
        assert run(spec, output_path=tmp_path / f"{workers}").exit_code == 0

    assert tables(tmp_path / "3") == tables(tmp_path / "1")


def test_interrupted_beside_each_other_they_go_on_to_the_same_tables(
    tiny_target: Path, small_suite: Path, tmp_path: Path
) -> None:
    """What was in flight is no failure: it is done again."""
    spec = request_for(tiny_target, small_suite, workers=2, **REPLAY)

    def stop(event: Event) -> None:
        if isinstance(event, WorkFinished):
            raise KeyboardInterrupt

    first = run(spec, output_path=tmp_path / "stopped", listener=stop)
    before = tables(tmp_path / "stopped")["turns"]
    assert first.interrupted
    assert run(spec, output_path=tmp_path / "stopped").exit_code == 0
    run(request_for(tiny_target, small_suite, **REPLAY), output_path=tmp_path / "whole")

    assert tables(tmp_path / "stopped") == tables(tmp_path / "whole")
    assert 0 < len(before) < len(tables(tmp_path / "whole")["turns"])


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"mode": "both"}, "Use mode replay, or one worker"),
        ({"mode": "replay", "cap_kind": "enforced", "memory_caps": ["700MiB"]}, "Use one worker"),
    ],
)
def test_workers_are_refused_where_they_would_spoil_what_is_measured(asked: dict, why: str) -> None:
    with pytest.raises(SpecError, match=why):
        RunSpec.parse({"workers": 2, **asked})
