"""Which worker does what under enforced caps; the worker itself is a stand-in."""

from __future__ import annotations

from dataclasses import replace

from hyflash_bench.errors import HyFlashError
from hyflash_bench.results.records import ConversationRecord, TraceRecord
from hyflash_bench.runner.crew import in_order
from hyflash_bench.runner.events import Event, Log, WorkerRestarted
from hyflash_bench.runner.supervisor import OutOfMemory, WorkerDied
from hyflash_bench.runner.work import Work, WorkCell, WorkResult
from hyflash_bench.runner.worker import DrafterFacts, Job, Ready
from hyflash_bench.runner.workoff import work_off
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.plan import Cap
from hyflash_bench.spec.sampling import GREEDY
from hyflash_bench.spec.target import TargetSpec

WEIGHTS = 100


def work(item: str, *drafters: str, cap: int | None = None) -> Work:
    limit = None if cap is None else Cap(cap, "enforced")
    return Work(
        trace_id=f"trace of {item}", suite="s", item_id=item, sampling=GREEDY, seed=0, max_new_tokens=8,
        draft_budget=4, mode="live", enforced_cap_bytes=cap,
        cells=tuple(
            WorkCell.under(limit, cell_id=f"{name}/{cap}", drafter=DrafterSpec(name=name), repeat=0)
            for name in drafters
        ),
    )  # fmt: skip


class Supervisor:
    """Does all work; starts and runs fail as the test has it."""

    enforced_by = "rlimit_data"

    def __init__(self) -> None:
        self.job = Job(TargetSpec(), (DrafterSpec(name="a"), DrafterSpec(name="b")), {})
        self.ending: str | None = None
        self.listener = None
        self.starts: list[Job] = []
        self.ran: list[Work] = []
        self.failing_starts: list[HyFlashError | None] = []
        self.failing_runs: dict[tuple[str, str], HyFlashError] = {}
        self.problem: str | None = None

    def change(self, job: Job) -> None:
        self.job, self.ending = job, None

    def start(self) -> Ready:
        self.starts.append(self.job)
        self.ending = None
        error = self.failing_starts.pop(0) if self.failing_starts else None
        if error is not None:
            raise error
        facts = [DrafterFacts(d.label, {}, False, self.problem, "oom") for d in self.job.drafters]
        return Ready({}, tuple(facts))

    def run(self, work: Work) -> WorkResult:
        self.ran.append(work)
        error = self.failing_runs.get((work.item_id, work.cells[0].cell_id))
        if error is not None:
            self.ending = str(error) if isinstance(error, WorkerDied) else None
            raise error
        return WorkResult(trace=None, conversations=tuple(map(row_of, work.cells)))


def row_of(cell: WorkCell) -> ConversationRecord:
    return ConversationRecord(
        cell_id=cell.cell_id, item_id="any", trace_id=None, status="ok", recorded_at="now"
    )


class Writer:
    def __init__(self) -> None:
        self.rows: list[ConversationRecord] = []
        self.known: dict[str, TraceRecord] = {}

    def append_conversation(self, record: ConversationRecord) -> None:
        self.rows.append(record)

    def traces(self) -> dict[str, TraceRecord]:
        return self.known

    def by_cell(self, cell_id: str) -> list[ConversationRecord]:
        return [row for row in self.rows if row.cell_id == cell_id]


def done(supervisor: Supervisor, *works: Work) -> tuple[Writer, list[Event]]:
    writer, told = Writer(), []  # type: ignore[var-annotated]
    writer.known = {each.trace_id: TraceRecord.model_construct(trace_id=each.trace_id) for each in works}
    facts = {name: DrafterFacts(name, {}, False, None) for name in ("a", "b")}
    work_off(works, len(works), writer, [supervisor], facts, told.append, weight_bytes=WEIGHTS)  # type: ignore[arg-type]
    return writer, told


def grid(*caps: int) -> list[Work]:
    """Two conversations: together without a cap, and by drafter under each."""
    return [
        each
        for item in ("one", "two")
        for each in (work(item, "a", "b"), *(work(item, d, cap=cap) for cap in caps for d in ("a", "b")))
    ]


def test_caps_come_last_and_each_worker_is_needed_once() -> None:
    kinds = [
        (each.enforced_cap_bytes, len(each.drafters), each.drafters[0].label)
        for each in in_order(grid(300, 200))
    ]
    assert kinds[:2] == [(None, 2, "a")] * 2
    changes = [kind for index, kind in enumerate(kinds) if index == 0 or kinds[index - 1] != kind]
    assert len(changes) == len(set(kinds)) == 5


def test_each_cap_and_drafter_has_a_worker_with_nothing_else_in_it() -> None:
    supervisor = Supervisor()
    writer, told = done(supervisor, *grid(300, 200))
    jobs = [(job.cap_bytes, [drafter.label for drafter in job.drafters]) for job in supervisor.starts]
    assert jobs == [(300, ["a"]), (300, ["b"]), (200, ["a"]), (200, ["b"])]
    assert len(writer.rows) == 2 * (2 + 4)
    assert {row.status for row in writer.rows} == {"ok"}
    assert len([event for event in told if isinstance(event, Log) and "rlimit_data" in event.message]) == 4


def test_what_the_target_said_without_a_cap_is_known_under_it() -> None:
    supervisor = Supervisor()
    done(supervisor, *grid(300))
    assert [each.known is not None for each in supervisor.ran] == [False] * 2 + [True] * 4


def test_a_cap_below_the_weights_needs_no_worker() -> None:
    supervisor = Supervisor()
    writer, _ = done(supervisor, *grid(WEIGHTS - 1))
    assert supervisor.starts == []
    for drafter in ("a", "b"):
        rows = writer.by_cell(f"{drafter}/{WEIGHTS - 1}")
        assert [(row.status, row.peak_bytes) for row in rows] == [("oom", WEIGHTS)] * 2
        assert "the target's weights alone take 100 B; the cap is 99 B" in (rows[0].message or "")


def test_a_worker_that_does_not_start_under_a_cap_is_tried_once() -> None:
    """All conversations of its cap and drafter get the reason; the next drafter gets its own try."""
    supervisor = Supervisor()
    supervisor.failing_starts = [OutOfMemory("no room", 7, 8, "cgroup"), None]
    writer, _ = done(supervisor, *grid(300))
    assert len(supervisor.starts) == 2
    rows = writer.by_cell("a/300")
    assert [(r.status, r.context_reached, r.peak_bytes, r.enforced_by) for r in rows] == [
        ("oom", 7, 8, "cgroup")
    ] * 2
    assert [row.status for row in writer.by_cell("b/300")] == ["ok"] * 2


def test_a_drafter_that_does_not_fit_beside_the_target_is_told_by_its_own_worker() -> None:
    supervisor = Supervisor()
    supervisor.problem = "load() failed"
    writer, _ = done(supervisor, *grid(300))
    assert [(row.status, row.enforced_by) for row in writer.by_cell("a/300")] == [("oom", "rlimit_data")] * 2
    assert [row.status for row in writer.by_cell("a/None")] == ["ok"] * 2


def test_a_conversation_without_room_costs_no_worker_that_is_still_there() -> None:
    supervisor = Supervisor()
    supervisor.failing_runs["one", "a/300"] = OutOfMemory("no room", 5, 250, "rlimit_data")
    writer, told = done(supervisor, *grid(300))
    first, second = writer.by_cell("a/300")
    assert (first.status, first.context_reached, first.peak_bytes) == ("oom", 5, 250)
    assert second.status == "ok"
    assert len(supervisor.starts) == 2
    assert not [event for event in told if isinstance(event, WorkerRestarted)]


def test_a_worker_that_dies_is_replaced_until_no_other_can_be_had() -> None:
    supervisor = Supervisor()
    supervisor.failing_runs["one", "a/300"] = WorkerDied("gone")
    supervisor.failing_starts = [None, OutOfMemory("no room any more")]
    writer, told = done(supervisor, *grid(300))
    assert [row.status for row in writer.by_cell("a/300")] == ["error", "oom"]
    assert [row.status for row in writer.by_cell("b/300")] == ["ok"] * 2
    assert len([event for event in told if isinstance(event, WorkerRestarted)]) == 1


def test_the_common_worker_gives_way_to_a_limited_one_for_the_same_target() -> None:
    supervisor = Supervisor()
    common = supervisor.job
    done(supervisor, work("one", "b", cap=300))
    assert supervisor.starts == [replace(common, drafters=(DrafterSpec(name="b"),), cap_bytes=300)]
