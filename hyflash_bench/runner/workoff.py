"""Works off conversations one by one; whatever happens to the worker, each cell gets its record."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from hyflash_bench.results.records import ConversationRecord, Status
from hyflash_bench.results.writer import RunWriter
from hyflash_bench.runner.estimate import Pace, effort_of
from hyflash_bench.runner.events import (
    ConversationFinished,
    Event,
    PhaseStarted,
    WorkerRestarted,
    WorkFinished,
    WorkStarted,
)
from hyflash_bench.runner.supervisor import Supervisor, WorkerDied, WorkerSilent, WorkRefused
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
) -> None:
    """Have every conversation done and stored.

    Args:
        left: What is to be done, in order.
        num_work: All conversations of the request, those done before included.
        writer: Open on the run folder.
        supervisor: With a worker that can take work.
        drafters: What loading told about them, by label.
        tell: Told what goes on.
    """
    first, pace = num_work - len(left), Pace()
    efforts = [effort_of(work) for work in left]
    for index, work in enumerate(left):
        started = time.monotonic()
        tell(WorkStarted(work.item_id, tuple(d.label for d in work.drafters)))
        for record in _one(work, writer, supervisor, drafters, tell):
            writer.append_conversation(_storable(record))
        pace.learn(efforts[index], time.monotonic() - started)
        eta_s = pace.seconds(efforts[index + 1 :])
        tell(WorkFinished(work.item_id, first + index + 1, num_work, eta_s))


def _one(
    work: Work,
    writer: RunWriter,
    supervisor: Supervisor,
    drafters: Mapping[str, DrafterFacts],
    tell: Listener,
) -> list[ConversationRecord]:
    """Records of one conversation; a worker that dies costs the drafter that was running."""
    watched = _Watch(tell)
    supervisor.listener = watched
    unfit = {label: facts for label, facts in drafters.items() if facts.problem}
    records = [
        record
        for label, facts in unfit.items()
        for record in _failures(work, label, facts.status, str(facts.problem))
    ]
    left = _without(work, unfit)
    while left is not None:
        if supervisor.ending is not None:
            tell(WorkerRestarted(supervisor.ending))
            supervisor.start()
        try:
            result = supervisor.run(left)
        except WorkRefused as error:
            records += _told(left, [d.label for d in left.drafters], "error", str(error), tell)
            break
        except (WorkerDied, WorkerSilent) as error:
            status: Status = "timeout" if isinstance(error, WorkerSilent) else "error"
            guilty = [watched.drafter] if watched.drafter else [d.label for d in left.drafters]
            records += _told(left, guilty, status, str(error), tell)
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
    work: Work, labels: Iterable[str], status: Status, message: str, tell: Listener
) -> Iterator[ConversationRecord]:
    """Rows of drafters that failed on the way, each told as it is made."""
    for label in labels:
        yield from _failures(work, label, status, message)
        tell(ConversationFinished(work.item_id, label, status, message))


def _failures(work: Work, label: str, status: Status, message: str) -> list[ConversationRecord]:
    """A failure as a row of every cell that it concerns."""
    return [
        ConversationRecord(
            cell_id=cell.cell_id,
            item_id=work.item_id,
            trace_id=None,
            status=status,
            message=message,
            recorded_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        )
        for cell in work.cells
        if cell.drafter.label == label
    ]


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
