"""A worker under a cap: what it leaves behind, and how deaths under a cap are read."""

from __future__ import annotations

import types

import pytest

from hyflash_bench.memory.limits import EnforcedLimit
from hyflash_bench.results.records import ConversationRecord
from hyflash_bench.runner.supervisor import OutOfMemory, Supervisor, WorkerDied
from hyflash_bench.runner.undercap import Signs, UnderCap
from hyflash_bench.runner.work import WorkResult
from hyflash_bench.runner.worker import Job, NoRoom, _answer
from hyflash_bench.spec.target import TargetSpec


class Limit:
    """A limit whose use the test sets."""

    kind = "rlimit_data"

    def __init__(self) -> None:
        self.used = 0
        self.done: list[object] = []

    def used_bytes(self) -> int:
        return self.used

    def peak_bytes(self) -> None:
        return None

    def lift(self) -> None:
        self.done.append("lifted")

    def lay(self) -> None:
        self.done.append("laid")

    def send(self, answer: object) -> None:
        self.done.append(answer)


def row(status: str) -> ConversationRecord:
    return ConversationRecord(cell_id=status, item_id="i", trace_id=None, status=status, recorded_at="now")  # type: ignore[arg-type]


def test_the_highest_use_of_a_conversation_and_its_context_are_left_behind() -> None:
    limit, signs, context = Limit(), Signs(), [40]
    cap = UnderCap(limit, signs, lambda: context[0])  # type: ignore[arg-type]
    assert (signs.peak_bytes, signs.context_reached) == (None, None)
    for limit.used, context[0] in ((10, 41), (30, 42), (20, 43)):
        cap.look()
    assert (signs.peak_bytes, signs.context_reached) == (30, 43)
    cap.begin()
    assert (signs.peak_bytes, cap.peak_bytes()) == (20, 20)


def test_records_say_what_held_the_cap_and_a_breach_how_far_it_came() -> None:
    limit = Limit()
    limit.used = 50
    cap = UnderCap(limit, Signs(), lambda: 12)  # type: ignore[arg-type]
    told = cap.signed(WorkResult(trace=None, conversations=(row("ok"), row("oom"))))
    fine, breach = told.conversations
    assert (fine.enforced_by, fine.peak_bytes, fine.context_reached) == ("rlimit_data", None, None)
    assert (breach.enforced_by, breach.peak_bytes, breach.context_reached) == ("rlimit_data", 50, 12)


def test_without_a_cap_nothing_is_added() -> None:
    cap, result = UnderCap(None, Signs(), lambda: 12), WorkResult(trace=None, conversations=(row("oom"),))
    assert cap.signed(result) is result
    assert cap.peak_bytes() is None


def test_telling_of_a_breach_is_not_denied_memory() -> None:
    limit = Limit()
    UnderCap(limit, Signs(), lambda: 0).send(limit, "answer")  # type: ignore[arg-type]
    assert limit.done == ["lifted", "answer", "laid"]


@pytest.mark.parametrize("limit", [None, Limit()])
def test_work_that_gets_no_memory_outside_of_a_drafter_is_answered(limit: Limit | None) -> None:
    """The target's own pass, for example; the worker takes the next piece of work."""

    class Runner:
        context_length = 33

        def run(self, work: object, conversation: object) -> None:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    suite = types.SimpleNamespace(
        items=lambda: [types.SimpleNamespace(item_id="i")], build=lambda item, chat: None
    )
    work, cap = types.SimpleNamespace(item_id="i", max_new_tokens=8), UnderCap(limit, Signs(), lambda: 33)  # type: ignore[arg-type]
    chat = types.SimpleNamespace(replying=lambda max_new_tokens: None)
    answer = _answer(work, suite, chat, Runner(), cap)  # type: ignore[arg-type]
    assert isinstance(answer, NoRoom)
    assert "you tried to allocate 9 bytes" in answer.message
    assert (answer.context_reached, answer.peak_bytes) == (33, None if limit is None else 0)


class Group:
    """Stands in for a cgroup in which the kernel has ended so many processes."""

    def __init__(self, num_kills: int) -> None:
        self.num_kills = num_kills
        self.peak_bytes = 990
        self.is_removed = False

    def remove(self) -> None:
        self.is_removed = True


def limit_by(group: Group | None) -> EnforcedLimit:
    kind = "rlimit_data" if group is None else "cgroup"
    return EnforcedLimit(kind, 900, 1000, 100, group=group)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("exit_code", "limit", "words", "details"),
    [
        (-9, None, "SIGKILL .* may have run out of memory", None),
        (-9, limit_by(None), "SIGKILL .* may have run out of memory", None),
        (-9, limit_by(Group(0)), "SIGKILL .* may have run out of memory", None),
        (-9, limit_by(Group(1)), r"SIGKILL .* under a cap of 900 B \(cgroup\)", (44, 890, "cgroup")),
        (-6, limit_by(None), r"SIGABRT .* \(rlimit_data\)", (44, 555, "rlimit_data")),
        (-11, limit_by(None), r"SIGSEGV .* \(rlimit_data\)", (44, 555, "rlimit_data")),
        (-6, None, "SIGABRT", None),
        (-15, limit_by(None), "SIGTERM", None),
        (3, limit_by(None), "exit code 3", None),
    ],
)
def test_a_death_is_the_caps_only_where_there_is_reason_to_think_so(
    exit_code: int, limit: EnforcedLimit | None, words: str, details: tuple[object, ...] | None
) -> None:
    """SIGKILL may be anybody's: it counts when the cgroup has counted it."""
    supervisor = Supervisor(Job(TargetSpec(), (), {}), 1.0, lambda event: None)
    supervisor._process = types.SimpleNamespace(join=lambda: None, exitcode=exit_code)  # type: ignore[assignment]
    supervisor._limit = limit
    supervisor._signs.note(555, 44)
    with pytest.raises(WorkerDied if details is None else OutOfMemory, match=words) as caught:
        raise supervisor._death("talk")
    if details is not None:
        error = caught.value
        assert (error.context_reached, error.peak_bytes, error.enforced_by) == details
    if limit is not None and limit.group is not None:
        assert limit.group.is_removed
