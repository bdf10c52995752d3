"""The process that holds torch: loads the target and the drafters, then works off conversations.

Protocol over one pipe. Out: an :class:`~hyflash_bench.runner.events.Event`, :class:`Limited`,
:class:`Ready`, :class:`Failed`, :class:`NoRoom`, :class:`Crashed` or a
:class:`~hyflash_bench.runner.work.WorkResult`. In: a :class:`~hyflash_bench.runner.work.Work`, or
None to end.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from hyflash_bench import errors
from hyflash_bench.memory.limits import EnforcedLimit
from hyflash_bench.results.records import Status
from hyflash_bench.runner.events import Log, TargetLoaded, described
from hyflash_bench.runner.undercap import Signs, UnderCap, under_cap
from hyflash_bench.runner.work import Work, WorkResult
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.target import TargetSpec

if TYPE_CHECKING:
    from hyflash_bench.drafters.base import Drafter, LoadContext
    from hyflash_bench.runner.conversation import ConversationRunner
    from hyflash_bench.suites.chat import ChatTokenizer
    from hyflash_bench.suites.datafiles.choice import DataFiles
    from hyflash_bench.suites.suite import Suite

__all__ = ["Crashed", "DrafterFacts", "Failed", "Job", "Limited", "NoRoom", "Ready", "serve"]


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is started for; suites are named by file."""

    target: TargetSpec
    drafters: tuple[DrafterSpec, ...]
    suites: Mapping[str, str]
    data: DataFiles | None = None
    cap_bytes: int | None = None
    """Enforced on the worker once the target is loaded."""


@dataclass(frozen=True, slots=True)
class DrafterFacts:
    """What loading told about a drafter.

    Attributes:
        label: Name with the options that were given.
        options: All of them.
        is_reference: Whether it is plain decoding.
        problem: Why it cannot run on this target.
        status: Of its conversations, if there is a problem: ``incompatible`` if the drafter refused,
            else what kept it from loading.
    """

    label: str
    options: dict[str, Any]
    is_reference: bool
    problem: str | None
    status: Status = "incompatible"


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker can take work."""

    info: dict[str, Any]
    drafters: tuple[DrafterFacts, ...]


@dataclass(frozen=True, slots=True)
class Limited:
    """The cap is in force from here on."""

    limit: EnforcedLimit


@dataclass(frozen=True, slots=True)
class NoRoom:
    """A piece of work got no memory outside of any drafter; the worker takes the next one."""

    message: str
    context_reached: int
    peak_bytes: int | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The worker cannot start, or not do a piece of work; the user is told why."""

    error: str
    message: str

    def raised(self) -> errors.HyFlashError:
        """The error as the parent raises it."""
        kind = getattr(errors, self.error, errors.HyFlashError)
        error: errors.HyFlashError = kind.__new__(kind)
        Exception.__init__(error, self.message)
        return error


@dataclass(frozen=True, slots=True)
class Crashed:
    """The worker ends for a reason that nobody foresaw."""

    message: str
    is_out_of_memory: bool = False


class _ForwardLogs(logging.Handler):
    """Sends log lines to the parent, which alone prints."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(logging.INFO)
        self._connection = connection

    def emit(self, record: logging.LogRecord) -> None:
        self._connection.send(Log(record.getMessage()))


def serve(connection: Connection, job: Job, signs: Signs) -> None:
    """Run until told to end; Ctrl-C is the parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)  # stdout holds the parent's result, which a drafter that prints must not spoil
    logger = logging.getLogger("hyflash_bench")
    logger.setLevel(logging.INFO)
    logger.addHandler(_ForwardLogs(connection))
    with suppress(BrokenPipeError):  # the parent is gone
        try:
            _serve(connection, job, signs)
        except errors.HyFlashError as error:
            connection.send(Failed(type(error).__name__, str(error)))
        except (BrokenPipeError, EOFError):
            pass  # likewise
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - drafters may be anybody's code
            connection.send(Crashed(described(error), isinstance(error, MemoryError)))
            sys.exit(1)


def _serve(connection: Connection, job: Job, signs: Signs) -> None:
    from hyflash_bench.registry import build_drafter
    from hyflash_bench.runner.conversation import ConversationRunner
    from hyflash_bench.suites.catalog import load_suite
    from hyflash_bench.suites.chat import ChatTokenizer
    from hyflash_bench.targets.load import load_target

    drafters = {spec.label: build_drafter(spec) for spec in job.drafters}
    suites = {name: load_suite(path, job.data) for name, path in job.suites.items()}
    started = time.perf_counter()
    target = load_target(job.target)
    info = asdict(target.info)
    connection.send(TargetLoaded(info, time.perf_counter() - started))
    runner = ConversationRunner(target, drafters, connection.send)
    with under_cap(job.cap_bytes, target, signs, lambda: runner.context_length) as cap:
        if cap.limit is not None:
            connection.send(Limited(cap.limit))
        context = target.load_context()
        facts = tuple(_loaded(label, drafter, context) for label, drafter in drafters.items())
        cap.send(connection, Ready(info, facts))
        room = None if job.target.extrapolate else target.info.max_positions
        chat = ChatTokenizer(target.tokenizer, max_positions=room)
        while True:
            work: Work | None = connection.recv()
            if work is None:
                return
            cap.send(connection, _answer(work, suites[work.suite], chat, runner, cap))


def _answer(
    work: Work, suite: Suite, chat: ChatTokenizer, runner: ConversationRunner, cap: UnderCap
) -> WorkResult | Failed | NoRoom:
    from hyflash_bench.runner.entrant import is_out_of_memory

    cap.begin()
    item = next(item for item in suite.items() if item.item_id == work.item_id)
    try:
        return cap.signed(runner.run(work, suite.build(item, chat.replying(work.max_new_tokens))))
    except errors.HyFlashError as error:
        return Failed(type(error).__name__, str(error))
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return NoRoom(f"out of memory: {error}", runner.context_length, cap.peak_bytes())


def _loaded(label: str, drafter: Drafter, context: LoadContext) -> DrafterFacts:
    from hyflash_bench.runner.entrant import is_out_of_memory

    problem: str | None = None
    status: Status = "incompatible"
    try:
        drafter.load(context)
    except errors.HyFlashError as error:
        problem = str(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a drafter may be anybody's code
        problem = f"load() failed: {described(error)}"
        status = "oom" if is_out_of_memory(error) else "error"
    options = drafter.options.model_dump(mode="json")
    return DrafterFacts(label, options, drafter.is_reference, problem, status)
