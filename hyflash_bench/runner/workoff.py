"""Works off conversations; whatever happens to a worker, each cell gets its record."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from threading import Lock
from typing import Any

from pydantic import ValidationError

from hyflash_bench.errors import HyFlashError
from hyflash_bench.results.records import ConversationRecord, Status
from hyflash_bench.results.writer import RunWriter
from hyflash_bench.runner.crew import Crew, NoWorker, in_order
from hyflash_bench.runner.estimate import Pace, effort_of
from hyflash_bench.runner.events import (
    ConversationFinished,
    Event,
    Log,
    PhaseStarted,
    WorkFinished,
    WorkStarted,
)
from hyflash_bench.runner.supervisor import (
    OutOfMemory,
    RunEnded,
    Supervisor,
    WorkerDied,
    WorkerSilent,
    WorkRefused,
)
from hyflash_bench.runner.work import Work
from hyflash_bench.runner.worker import DrafterFacts

__all__ = ["Listener", "work_off"]

Listener = Callable[[Event], None]


def work_off(
    left: Sequence[Work],
    num_work: int,
    writer: RunWriter,
    supervisors: Sequence[Supervisor],
    drafters: Mapping[str, DrafterFacts],
    tell: Listener,
    *,
    weight_bytes: int = 0,
) -> None:
    """Have every conversation done and stored.

    Args:
        left: What is to be done.
        num_work: All conversations of the request, those done before included.
        writer: Open on the run folder.
        supervisors: The first one has a worker that can take work without a cap; the others start theirs, and
            all work side by side.
        drafters: What loading told about them, by label.
        tell: Told what goes on.
        weight_bytes: Of the target, which enforced caps have to hold at least.
    """
    first, *others = supervisors[: max(1, len(left))]
    board = _Board(in_order(left), num_work, 1 + len(others), tell)
    if not others:
        _work_through(board, Crew(first, drafters, weight_bytes, tell), writer, tell)
        return

    def join(supervisor: Supervisor) -> None:
        events: list[Event] = []
        supervisor.listener = events.append
        if supervisor is not first and not _has_begun(supervisor, board):
            return
        _work_through(board, Crew(supervisor, drafters, weight_bytes, events.append), writer, events)

    with ThreadPoolExecutor(1 + len(others)) as pool:
        try:
            for done in as_completed([pool.submit(join, supervisor) for supervisor in (first, *others)]):
                done.result()
        except BaseException:  # Ctrl-C too: threads that wait for a worker go on until it is gone
            for supervisor in supervisors:
                supervisor.end()
            raise


class _Board:
    """The conversations that are left, for all threads that work them off."""

    def __init__(self, left: Iterable[Work], num_work: int, num_workers: int, tell: Listener) -> None:
        self._left = deque(left)
        self._num_work, self._num_done = num_work, num_work - len(self._left)
        self._num_workers = num_workers
        self._pace = Pace()
        self._tell = tell
        self._lock = Lock()

    def take(self) -> Work | None:
        """The next one, if any is left."""
        with self._lock:
            return self._left.popleft() if self._left else None

    def finish(self, work: Work, seconds: float, events: Iterable[Event]) -> None:
        """Tell what was not told yet of one that is stored, and how long the others will take."""
        with self._lock:
            self._num_done += 1
            self._pace.learn(effort_of(work), seconds)
            eta_s = self._pace.seconds(map(effort_of, self._left)) / self._num_workers
            for event in (*events, WorkFinished(work.item_id, self._num_done, self._num_work, eta_s)):
                self._tell(event)

    def tell(self, event: Event) -> None:
        """Tell something else."""
        with self._lock:
            self._tell(event)


def _work_through(board: _Board, crew: Crew, writer: RunWriter, told: Listener | list[Event]) -> None:
    """Take conversations until none is left.

    Args:
        board: Has them.
        crew: Does them.
        writer: Stores them.
        told: Gets events as they come. Where several conversations go on at once it is a list, and what it
            holds is told when one is stored.
    """
    later, tell = (told, told.append) if isinstance(told, list) else ([], told)
    while (work := board.take()) is not None:
        started = time.monotonic()
        tell(WorkStarted(work.item_id, tuple(d.label for d in work.drafters)))
        for record in _one(_with_trace(work, writer), writer, crew, tell):
            writer.append_conversation(_storable(record))
        board.finish(work, time.monotonic() - started, later)
        later.clear()


def _has_begun(supervisor: Supervisor, board: _Board) -> bool:
    """Start one more worker; a run goes on without it."""
    try:
        supervisor.start()
    except RunEnded:
        raise
    except HyFlashError as error:
        board.tell(Log(f"One worker fewer: it did not start ({error})"))
        return False
    return True


def _with_trace(work: Work, writer: RunWriter) -> Work:
    """Under an enforced cap the target has answered before, in the pass without one."""
    if work.enforced_cap_bytes is None or work.known is not None:
        return work
    return work.model_copy(update={"known": writer.traces().get(work.trace_id)})


def _one(work: Work, writer: RunWriter, crew: Crew, tell: Listener) -> list[ConversationRecord]:
    """Records of one conversation; a worker that dies costs the drafter that was running."""
    watched = _Watch(tell)
    supervisor = crew.supervisor
    supervisor.listener = watched
    try:
        facts = crew.facts(work)
    except NoWorker as error:
        return list(_told(work, _labels(work), error.reason, tell))
    unfit = {label: known for label, known in facts.items() if known.problem}
    records = [
        record
        for label, known in unfit.items()
        for record in _failures(
            work, label, known.status, str(known.problem), enforced_by=supervisor.enforced_by
        )
    ]
    left = _without(work, unfit)
    while left is not None:
        try:
            crew.revive()
            result = supervisor.run(left)
        except NoWorker as error:
            records += _told(left, _labels(left), error.reason, tell)
            break
        except WorkRefused as error:
            records += _told(left, _labels(left), error, tell)
            break
        except (OutOfMemory, WorkerDied, WorkerSilent) as error:
            guilty = [watched.drafter] if watched.drafter else _labels(left)
            records += _told(left, guilty, error, tell)
            left, watched.drafter = _without(left, guilty), None
            continue
        if result.trace is not None:
            writer.append_trace(result.trace)
        records += result.conversations
        break
    return records


class _Watch:
    """Passes events on and remembers which drafter is running."""

    def __init__(self, tell: Listener) -> None:
        self._tell = tell
        self.drafter: str | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, PhaseStarted):
            self.drafter = event.drafter
        self._tell(event)


def _told(
    work: Work, labels: Iterable[str], error: HyFlashError, tell: Listener
) -> Iterator[ConversationRecord]:
    """Rows of drafters that failed on the way, each told as it is made."""
    status: Status = "timeout" if isinstance(error, WorkerSilent) else "error"
    details: dict[str, Any] = {}
    if isinstance(error, OutOfMemory):
        status = "oom"
        names = ("context_reached", "peak_bytes", "enforced_by")
        details = {name: getattr(error, name) for name in names}
    for label in labels:
        yield from _failures(work, label, status, str(error), **details)
        tell(ConversationFinished(work.item_id, label, status, str(error)))


def _failures(
    work: Work, label: str, status: Status, message: str, **details: Any
) -> list[ConversationRecord]:
    """A failure as a row of every cell that it concerns."""
    return [
        ConversationRecord(
            cell_id=cell.cell_id,
            item_id=work.item_id,
            trace_id=None,
            status=status,
            message=message,
            recorded_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            **details,
        )
        for cell in work.cells
        if cell.drafter.label == label
    ]


def _labels(work: Work) -> list[str]:
    return [drafter.label for drafter in work.drafters]


def _without(work: Work, labels: Iterable[str]) -> Work | None:
    """The work less some drafters, or None when nothing is left."""
    out = set(labels)
    cells = tuple(cell for cell in work.cells if cell.drafter.label not in out)
    return work.model_copy(update={"cells": cells}) if cells else None


def _storable(record: ConversationRecord) -> ConversationRecord:
    """The record with null for a number that no file takes; an error row where null is not allowed."""
    values = record.model_dump()
    nulled = _finite(values)
    if nulled == values:
        return record
    try:
        return ConversationRecord.model_validate(nulled)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        message = f"{where} is NaN or infinite, so the conversation cannot be counted"
        return record.model_copy(update={"status": "error", "message": message, "turns": []})


def _finite(value: Any) -> Any:
    """Plain data with None in the place of NaN and infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value
