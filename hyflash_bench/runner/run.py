"""A run from request to tables. The parent plans, stores and reports; it never imports torch."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import hyflash_bench
from hyflash_bench.errors import UsageError
from hyflash_bench.registry import require_drafter
from hyflash_bench.results.layout import RESULTS_FOLDER
from hyflash_bench.results.reader import load_run
from hyflash_bench.results.records import ConversationRecord, Manifest, Status
from hyflash_bench.results.writer import RunWriter
from hyflash_bench.runner.environment import BUSY_SHARE, busy_share, environment, git_state
from hyflash_bench.runner.events import (
    ConversationFinished,
    Event,
    Log,
    PhaseStarted,
    Planned,
    WorkerRestarted,
    WorkFinished,
    WorkStarted,
)
from hyflash_bench.runner.plan import Plan, estimated_s, make_plan
from hyflash_bench.runner.supervisor import Supervisor, WorkerDied, WorkerSilent, WorkRefused
from hyflash_bench.runner.work import Work
from hyflash_bench.runner.worker import DrafterFacts, Job
from hyflash_bench.spec.run import RunSpec
from hyflash_bench.suites.catalog import load_suite
from hyflash_bench.suites.suite import Suite
from hyflash_bench.targets.source import parse as parse_target

__all__ = ["Outcome", "preview", "run"]

Listener = Callable[[Event], None]


@dataclass(slots=True)
class Outcome:
    """How a run ended.

    Attributes:
        path: The run folder.
        num_cells: Cells of the request by status; of capped cells those out of memory stand apart
            under ``capped``, since not fitting is what a cap is there to find out.
        interrupted: Ctrl-C ended it; the same command goes on.
    """

    path: Path
    num_cells: dict[str, int] = field(default_factory=dict)
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """0 all measured, 1 some cells failed or nothing was measured, 130 interrupted.

        A drafter that cannot run a cell and a cap that is too small are results, not failures.
        """
        if self.interrupted:
            return 130
        statuses = set(self.num_cells)
        has_failed = bool(statuses - {"ok", "incompatible", "capped"})
        return int(has_failed or statuses == {"incompatible"})


def run(
    spec: RunSpec,
    *,
    output_path: Path | None = None,
    fresh: bool = False,
    listener: Listener | None = None,
    command: Sequence[str] = (),
) -> Outcome:
    """Measure what a request asks for; the same request again goes on where it stopped.

    Args:
        spec: The request.
        output_path: Exactly this folder; by default one in ``results/`` named after suites and target.
        fresh: Discard what the folder holds.
        listener: Told what goes on.
        command: The command line, for the record.

    Raises:
        HyFlashError: The request cannot be met; nothing that was measured before is lost.
    """
    tell = listener or _ignore
    suites = _checked_suites(spec)
    busy = _told_when_busy(spec, tell)
    folder = output_path or RESULTS_FOLDER / _run_name(spec)
    with RunWriter(folder, fresh=fresh) as writer:
        supervisor = Supervisor(_job(spec, suites), spec.timeout_s, tell)
        outcome = Outcome(folder)
        plan: Plan | None = None
        try:
            ready = supervisor.start()
            drafters = {facts.label: facts for facts in ready.drafters}
            plan = make_plan(spec, suites, ready.info, drafters)
            _require_work(plan)
            _tell_left_out(plan, suites, tell)
            manifest = writer.write_manifest(_manifest(spec, plan, suites, folder, command, busy))
            left = plan.remaining(writer.finished(), writer.traces())
            _fetch_texts(left, suites, tell)
            tell(Planned(len(plan.works), len(plan.works) - len(left)))
            _work_off(left, len(plan.works), writer, supervisor, drafters, tell)
            finished_at = datetime.now(UTC).isoformat(timespec="seconds")
            writer.write_manifest(manifest.model_copy(update={"finished_at": finished_at}))
        except KeyboardInterrupt:
            supervisor.kill()
            outcome.interrupted = True
        finally:
            supervisor.stop()
            if writer.layout.is_run:
                writer.write_tables()
        outcome.num_cells = _cells_by_status(folder, plan)
    return outcome


def preview(spec: RunSpec, *, output_path: Path | None = None, listener: Listener | None = None) -> Plan:
    """The plan of a request, without measuring: loads suites, target and drafters.

    Raises:
        HyFlashError: The request cannot be met.
    """
    tell = listener or _ignore
    suites = _checked_suites(spec)
    supervisor = Supervisor(_job(spec, suites), spec.timeout_s, tell)
    try:
        ready = supervisor.start()
    finally:
        supervisor.stop()
    plan = make_plan(spec, suites, ready.info, {facts.label: facts for facts in ready.drafters})
    _require_work(plan)
    return plan


def _work_off(
    left: Sequence[Work],
    num_work: int,
    writer: RunWriter,
    supervisor: Supervisor,
    drafters: Mapping[str, DrafterFacts],
    tell: Listener,
) -> None:
    done = num_work - len(left)
    total = sum(estimated_s(work) for work in left)
    spent_estimate, started = 0.0, time.monotonic()
    for work in left:
        tell(WorkStarted(work.item_id, tuple(d.label for d in work.drafters)))
        for record in _one(work, writer, supervisor, drafters, tell):
            writer.append_conversation(record)
        done += 1
        spent_estimate += estimated_s(work)
        pace = (time.monotonic() - started) / spent_estimate
        tell(WorkFinished(work.item_id, done, num_work, (total - spent_estimate) * pace))


def _one(
    work: Work,
    writer: RunWriter,
    supervisor: Supervisor,
    drafters: Mapping[str, DrafterFacts],
    tell: Listener,
) -> Iterable[ConversationRecord]:
    """Records of one conversation; a worker that dies costs the drafter that was running."""
    watched = _Watch(tell)
    supervisor.listener = watched
    unfit = {label: facts.problem for label, facts in drafters.items() if facts.problem}
    records = [
        record
        for label, problem in unfit.items()
        for record in _failures(
            work, label, "error" if drafters[label].is_broken else "incompatible", problem
        )
    ]
    left = _without(work, unfit)
    while left is not None:
        try:
            result = supervisor.run(left)
        except WorkRefused as error:
            for drafter in left.drafters:
                records += _failures(left, drafter.label, "error", str(error))
                tell(ConversationFinished(work.item_id, drafter.label, "error", str(error)))
            break
        except (WorkerDied, WorkerSilent) as error:
            status: Status = "timeout" if isinstance(error, WorkerSilent) else "error"
            guilty = [watched.drafter] if watched.drafter else [d.label for d in left.drafters]
            for label in guilty:
                records += _failures(left, label, status, str(error))
                tell(ConversationFinished(work.item_id, label, status, str(error)))
            tell(WorkerRestarted(str(error)))
            supervisor.start()
            left = _without(left, guilty)
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


def _cells_by_status(folder: Path, plan: Plan | None) -> dict[str, int]:
    if plan is None:
        return {}
    cells = load_run(folder).cells
    cells = cells[cells["cell_id"].isin([cell.cell_id for cell in plan.cells])]
    is_capped = (cells["status"] == "oom") & cells["memory_cap_bytes"].notna()
    return dict(Counter(cells["status"].mask(is_capped, "capped")))


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


def _checked_suites(spec: RunSpec) -> list[Suite]:
    """Suites of the request, once everything is checked that needs no target."""
    parse_target(spec.target)
    for drafter in spec.drafters:
        require_drafter(drafter)
    suites = [load_suite(name) for name in spec.suites]
    for suite in suites:
        suite.items(contexts=spec.contexts, kinds=spec.kinds, limit=spec.limit)
    return suites


def _fetch_texts(works: Sequence[Work], suites: Sequence[Suite], tell: Listener) -> None:
    """Fetch and verify the texts of what is left to do, so that the worker needs no network."""
    for suite in suites:
        wanted = {work.item_id for work in works if work.suite == suite.spec.name}
        items = [item for item in suite.items() if item.item_id in wanted]
        suite.prepare(lambda message: tell(Log(message)), items)


def _job(spec: RunSpec, suites: Sequence[Suite]) -> Job:
    return Job(
        target=spec.target_spec,
        drafters=spec.drafters,
        suites={suite.spec.name: str(suite.path) for suite in suites},
    )


def _require_work(plan: Plan) -> None:
    if not plan.works:
        raise UsageError(
            f"No conversation is left: the target {plan.target['name']} takes "
            f"{plan.target['max_positions']:,} positions and the filters ask for "
            f"contexts={plan.spec.contexts}, kinds={plan.spec.kinds}. Widen the filters, choose "
            "another target, or add --extrapolate."
        )


def _tell_left_out(plan: Plan, suites: Sequence[Suite], tell: Listener) -> None:
    limit = int(plan.target["max_positions"])
    for suite in () if plan.spec.extrapolate else suites:
        wanted = suite.items(contexts=plan.spec.contexts, kinds=plan.spec.kinds)
        too_long = set(suite.too_long(limit, plan.spec.max_new_tokens)) & set(wanted)
        if too_long:
            tell(
                Log(
                    f"{len(too_long)} conversations of {suite.spec.name} are left out: with their replies "
                    f"they go past the target's {limit:,} positions (--extrapolate takes them in)."
                )
            )


def _run_name(spec: RunSpec) -> str:
    """The default folder: the same suites on the same target are one run that grows."""
    parts = [*(Path(suite).stem for suite in spec.suites), Path(spec.target).name]
    name = "-".join(parts).lower()
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name)


def _told_when_busy(spec: RunSpec, tell: Listener) -> float:
    """How busy the machine is before the run adds its own work; told when it spoils speeds."""
    busy = busy_share()
    if busy > BUSY_SHARE and spec.mode != "replay":
        tell(
            Log(
                f"Other programs use {busy:.0%} of this machine: speeds will come out too low. "
                "Stop them for figures that can be compared."
            )
        )
    return busy


def _manifest(
    spec: RunSpec, plan: Plan, suites: Sequence[Suite], folder: Path, command: Sequence[str], busy: float
) -> Manifest:
    return Manifest(
        run_id=folder.resolve().name,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        package_version=hyflash_bench.__version__,
        command=list(command),
        request=spec.model_dump(mode="json", exclude_unset=True),
        resolved=spec.to_mapping(),
        target=dict(plan.target),
        suites=[
            {
                "suite_hash": suite.suite_hash,
                **suite.spec.model_dump(mode="json", include={"name", "version", "title", "licence"}),
                "description": suite.spec.description,
            }
            for suite in suites
        ],
        environment={**environment(), "busy_share": round(busy, 2)},
        git=git_state(Path(hyflash_bench.__file__).parent),
        cells=list(plan.cells),
    )


def _ignore(event: Event) -> None:
    del event
