"""Works off conversations one by one; whatever happens to the worker, each cell gets its record."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
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
    PhaseStarted,
    WorkFinished,
    WorkStarted,
)
from hyflash_bench.runner.supervisor import (
    OutOfMemory,
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
    supervisor: Supervisor,
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
        supervisor: With a worker that can take work without a cap.
        drafters: What loading told about them, by label.
        tell: Told what goes on.
        weight_bytes: Of the target, which enforced caps have to hold at least.
    """
    left = in_order(left)
    first, pace = num_work - len(left), Pace()
    efforts = [effort_of(work) for work in left]
    crew = Crew(supervisor, drafters, weight_bytes, tell)
    for index, work in enumerate(left):
        started = time.monotonic()
        tell(WorkStarted(work.item_id, tuple(d.label for d in work.drafters)))
        for record in _one(_with_trace(work, writer), writer, crew, tell):
            writer.append_conversation(_storable(record))
        pace.learn(efforts[index], time.monotonic() - started)
        eta_s = pace.seconds(efforts[index + 1 :])
        tell(WorkFinished(work.item_id, first + index + 1, num_work, eta_s))


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
