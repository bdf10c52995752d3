"""A run from request to tables. The parent plans, stores and reports; it never imports torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from hyflash_bench.errors import UsageError
from hyflash_bench.registry import require_drafter
from hyflash_bench.results.layout import RESULTS_FOLDER
from hyflash_bench.results.merge import mixed_limits
from hyflash_bench.results.reader import load_run
from hyflash_bench.results.writer import RunWriter
from hyflash_bench.runner.asked import checked, remarks
from hyflash_bench.runner.environment import BUSY_SHARE, busy_share, num_cores
from hyflash_bench.runner.events import Event, Log, Planned
from hyflash_bench.runner.manifest import manifest_of
from hyflash_bench.runner.plan import Plan, make_plan
from hyflash_bench.runner.remembered import remembered
from hyflash_bench.runner.supervisor import Supervisor
from hyflash_bench.runner.work import Work
from hyflash_bench.runner.worker import DrafterFacts, Job, Ready
from hyflash_bench.runner.workoff import Listener, work_off
from hyflash_bench.spec.plan import content_id
from hyflash_bench.spec.run import RunSpec
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.suites.catalog import load_suite
from hyflash_bench.suites.datafiles.choice import DataFiles
from hyflash_bench.suites.suite import Suite
from hyflash_bench.targets.source import parse as parse_target

__all__ = ["Listener", "Outcome", "data_files", "preview", "run"]

LONGEST_NAME = 60


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
    spec = checked(spec)
    for remark in remarks(spec):
        tell(Log(remark))
    if spec.data:
        tell(Log(f"Reading {', '.join(spec.data)}"))
    suites = _checked_suites(spec)
    folder = _usable(output_path or RESULTS_FOLDER / _run_name(spec))
    with RunWriter(folder, fresh=fresh) as writer:
        job = _job(spec, suites)
        supervisors = [Supervisor(job, spec.timeout_s, tell) for _ in range(spec.workers)]
        outcome = Outcome(folder)
        plan: Plan | None = None
        try:
            drafters, plan = _finished_plan(spec, suites, writer)
            busy = None
            if plan is None:
                busy = _told_when_busy(spec, tell)
                drafters, plan = _plan(spec, suites, supervisors[0].start())
            _require_work(plan)
            _tell_left_out(plan, suites, tell)
            manifest = writer.write_manifest(manifest_of(spec, plan, suites, writer.layout, command, busy))
            for mixed in mixed_limits(manifest.cells):
                tell(Log(f"This folder holds runs with other limits: {mixed}. Compare like with like."))
            left = plan.remaining(writer.finished(), writer.traces())
            _fetch_texts(left, suites, tell)
            tell(Planned(len(plan.works), len(plan.works) - len(left)))
            weight_bytes = int(plan.target["weight_bytes"])
            work_off(left, len(plan.works), writer, supervisors, drafters, tell, weight_bytes=weight_bytes)
            finished_at = datetime.now(UTC).isoformat(timespec="seconds")
            writer.write_manifest(manifest.model_copy(update={"finished_at": finished_at}))
        except KeyboardInterrupt:
            for supervisor in supervisors:
                supervisor.kill()
            outcome.interrupted = True
        finally:
            for supervisor in supervisors:
                supervisor.stop()
            if writer.layout.is_run:
                writer.write_tables()
        if writer.layout.is_run:  # not where it was interrupted before it began
            outcome.num_cells = _cells_by_status(folder, plan)
    return outcome


def preview(spec: RunSpec, *, output_path: Path | None = None, listener: Listener | None = None) -> Plan:
    """The plan of a request, without measuring: loads suites, target and drafters.

    Raises:
        HyFlashError: The request cannot be met.
    """
    tell = listener or _ignore
    spec = checked(spec)
    suites = _checked_suites(spec)
    supervisor = Supervisor(_job(spec, suites), spec.timeout_s, tell)
    try:
        ready = supervisor.start()
    finally:
        supervisor.stop()
    _, plan = _plan(spec, suites, ready)
    _require_work(plan)
    return plan


def _plan(spec: RunSpec, suites: Sequence[Suite], ready: Ready) -> tuple[Mapping[str, DrafterFacts], Plan]:
    drafters = {facts.label: facts for facts in ready.drafters}
    return drafters, make_plan(spec, suites, ready.info, drafters)


def _finished_plan(
    spec: RunSpec, suites: Sequence[Suite], writer: RunWriter
) -> tuple[Mapping[str, DrafterFacts], Plan | None]:
    """The plan of a request that the folder holds the answers to already; it needs no worker."""
    ready = remembered(writer.layout, spec)
    if ready is None:
        return {}, None
    drafters, plan = _plan(spec, suites, ready)
    return drafters, None if plan.remaining(writer.finished(), {}) else plan


def _cells_by_status(folder: Path, plan: Plan | None) -> dict[str, int]:
    if plan is None:
        return {}
    cells = load_run(folder).cells
    cells = cells[cells["cell_id"].isin([cell.cell_id for cell in plan.cells])]
    is_capped = (cells["status"] == "oom") & cells["memory_cap_bytes"].notna()
    return dict(Counter(cells["status"].mask(is_capped, "capped")))


def _checked_suites(spec: RunSpec) -> list[Suite]:
    """Suites of the request, once everything is checked that needs no target."""
    parse_target(spec.target)
    for drafter in spec.drafters:
        require_drafter(drafter)
    data = data_files(spec)
    suites = [load_suite(name, data) for name in spec.suites]
    for suite in suites:
        suite.items(contexts=spec.contexts, kinds=spec.kinds, limit=spec.limit)
    return suites


def data_files(spec: RunSpec) -> DataFiles:
    """The data set that the request gives its suite."""
    return DataFiles.of(spec.data, skip_bad_rows=spec.skip_bad_rows)


def _fetch_texts(works: Sequence[Work], suites: Sequence[Suite], tell: Listener) -> None:
    """Fetch and verify the texts of what is left to do, so that the worker needs no network."""
    for suite in suites:
        wanted = {work.item_id for work in works if work.suite == suite.spec.name}
        items = [item for item in suite.items() if item.item_id in wanted]
        suite.prepare(lambda message: tell(Log(message)), items)


def _job(spec: RunSpec, suites: Sequence[Suite]) -> Job:
    return Job(
        target=_shared_out(spec),
        drafters=spec.drafters,
        suites={suite.spec.name: str(suite.path) for suite in suites},
        data=data_files(spec),
    )


def _shared_out(spec: RunSpec) -> TargetSpec:
    """The target with an equal share of the cores for each worker, unless threads were asked for."""
    if spec.workers == 1 or spec.num_threads is not None:
        return spec.target_spec
    return spec.target_spec.model_copy(update={"num_threads": max(1, num_cores() // spec.workers)})


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
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}-{content_id(parts)}"


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


def _usable(folder: Path) -> Path:
    """The run folder, if the system takes its name.

    Raises:
        UsageError: It does not.
    """
    try:
        folder.exists()
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(
            f"{str(folder)[:60]!r}... ({len(str(folder))} characters) cannot be a run folder: {reason}. "
            "Give a shorter --output-path."
        ) from None
    return folder


def _ignore(event: Event) -> None:
    del event
