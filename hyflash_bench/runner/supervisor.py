"""The parent's side of a worker process: start, talk, notice its death."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import ModuleType

from hyflash_bench.errors import HyFlashError
from hyflash_bench.memory.limits import EnforcedLimit
from hyflash_bench.runner.events import Event, TargetLoaded
from hyflash_bench.runner.undercap import Signs
from hyflash_bench.runner.work import Work, WorkResult
from hyflash_bench.runner.worker import Crashed, Failed, Job, Limited, NoRoom, Ready, serve
from hyflash_bench.spec.units import format_bytes

__all__ = ["OutOfMemory", "RunEnded", "Supervisor", "WorkRefused", "WorkerDied", "WorkerSilent"]

_WANT_OF_MEMORY = ("SIGABRT", "SIGSEGV", "SIGBUS")
"""How native code ends that does not look whether it got the memory it asked for."""


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Start a process that Ctrl-C does not reach, not even before its first line has run.

    A blocked signal stays blocked in the child; to this process it is delivered at the end.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_main() -> Iterator[None]:
    """Start a process that does not run the user's script a second time.

    A spawned process imports the main module again; without an ``if __name__ == "__main__":`` a
    script that calls :func:`hyflash_bench.run` would call it there too. A worker needs nothing of it.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


class WorkerDied(HyFlashError):
    """The worker process ended while it was needed."""


class WorkerSilent(HyFlashError):
    """The worker said nothing for longer than the limit and was stopped."""


class OutOfMemory(HyFlashError):
    """Memory ran out; the worker is gone, or it takes the next piece of work.

    Attributes:
        context_reached: Tokens in the target's cache then, as far as known.
        peak_bytes: The most that counted against an enforced cap, as far as known.
        enforced_by: What held the cap; None without one.
    """

    def __init__(
        self,
        message: str,
        context_reached: int | None = None,
        peak_bytes: int | None = None,
        enforced_by: str | None = None,
    ) -> None:
        super().__init__(message)
        self.context_reached = context_reached
        self.peak_bytes = peak_bytes
        self.enforced_by = enforced_by


class RunEnded(HyFlashError):
    """The run is being ended; what its workers were doing is not stored."""


class WorkRefused(HyFlashError):
    """One conversation cannot be built or told to the target."""


class Supervisor:
    """One worker at a time.

    Args:
        job: What workers are started for.
        timeout_s: Longest silence, in seconds.
        listener: Gets the worker's events.

    Attributes:
        job: What the worker is for.
        ending: Why the last worker is gone, if it died; :meth:`start` makes a new one.
    """

    def __init__(self, job: Job, timeout_s: float, listener: Callable[[Event], None]) -> None:
        self.job = job
        self._timeout_s = timeout_s
        self.listener = listener
        self.ending: str | None = None
        self._process: SpawnProcess | None = None
        self._connection: Connection | None = None
        self._signs = Signs()
        self._limit: EnforcedLimit | None = None
        self._is_ended = False

    @property
    def enforced_by(self) -> str | None:
        """What holds the cap of the worker; None without one."""
        return None if self._limit is None else self._limit.kind

    def start(self) -> Ready:
        """Start a worker and wait until it can take work.

        Raises:
            OutOfMemory: It ran out of memory before it could take any.
            RunEnded: :meth:`end` was called.
            HyFlashError: Whatever else kept it from starting.
        """
        self._require_going()
        self.ending, self._limit, self._signs = None, None, Signs()
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, self.job, self._signs), daemon=True)
        with _undisturbed(), _without_main():
            process.start()
        theirs.close()
        self._process, self._connection = process, ours
        if self._is_ended:  # while it was being started
            process.kill()
        for message in self._messages("loading target and drafters"):
            if isinstance(message, Ready):
                self._require_going()
                return message
            if isinstance(message, Failed):
                self.stop()
                raise message.raised()
            if not isinstance(message, WorkResult | NoRoom):
                self.listener(message)
        raise AssertionError("unreachable")

    def change(self, job: Job) -> None:
        """End the worker; the next one is for another job."""
        self.stop()
        self.job, self.ending = job, None

    def run(self, work: Work) -> WorkResult:
        """Have one conversation done.

        Raises:
            WorkRefused: The conversation cannot be had; the worker takes the next one.
            OutOfMemory: It needs more memory than there is; if :attr:`ending` is set, so is the worker's.
            RunEnded: :meth:`end` was called.
            WorkerDied, WorkerSilent: It did not come back; :meth:`start` makes a new worker.
        """
        assert self._connection is not None
        try:
            self._connection.send(work)
        except OSError:
            error = self._death(f"before {work.item_id}")
            self.ending = str(error)
            raise error from None
        try:
            for message in self._messages(work.item_id):
                if isinstance(message, WorkResult):
                    return message
                if isinstance(message, Failed):
                    raise WorkRefused(message.message)
                if isinstance(message, NoRoom):
                    raise OutOfMemory(
                        message.message, message.context_reached, message.peak_bytes, self.enforced_by
                    )
                if not isinstance(message, Ready | TargetLoaded):
                    self.listener(message)
        except (OutOfMemory, WorkerDied, WorkerSilent) as error:
            if self._process is None:
                self.ending = str(error)
            raise
        raise AssertionError("unreachable")

    def stop(self) -> None:
        """End the worker, by force if it must be."""
        process, self._process = self._process, None
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OSError):
                connection.send(None)
            connection.close()
        if process is not None:
            process.join(timeout=2.0)
            if process.is_alive():
                process.kill()
                process.join()
        self._clear_up()

    def end(self) -> None:
        """Have the thread that waits for the worker, and any that asks for one later, find the run ended."""
        self._is_ended = True
        process = self._process
        if process is not None:
            process.kill()

    def kill(self) -> None:
        """End the worker at once."""
        if self._process is not None:
            self._process.kill()
        self.stop()

    def _messages(self, doing: str) -> Iterator[Event | Ready | Failed | NoRoom | WorkResult]:
        connection = self._connection
        assert connection is not None
        while True:
            try:
                if not connection.poll(self._timeout_s):
                    self.kill()
                    raise WorkerSilent(
                        f"The worker said nothing for {self._timeout_s:g} s ({doing}) and was stopped. "
                        "Raise --timeout-s if the machine is only slow."
                    )
                message = connection.recv()
            except (EOFError, ConnectionResetError):
                self._require_going()
                raise self._death(doing) from None
            if isinstance(message, Crashed):
                enforced_by = self.enforced_by
                self.stop()
                told = f"The worker failed ({doing}): {message.message}."
                if message.is_out_of_memory:
                    raise OutOfMemory(told, self._signs.context_reached, self._signs.peak_bytes, enforced_by)
                raise WorkerDied(told)
            if isinstance(message, Limited):
                self._limit = message.limit
                continue
            yield message

    def _require_going(self) -> None:
        if self._is_ended:
            raise RunEnded("The run was ended.")

    def _death(self, doing: str) -> WorkerDied | OutOfMemory:
        """Why the worker is gone; under an enforced cap this may be what the cap did."""
        process, self._process = self._process, None
        self._connection = None
        code = None
        if process is not None:
            process.join()
            code = process.exitcode
        limit, peak_bytes = self._limit, self._peak_bytes()
        was_killed = self._clear_up()
        if code is None or code >= 0:
            return WorkerDied(f"The worker ended with exit code {code} ({doing}).")
        ended_by = signal.Signals(-code)
        if limit is not None and (was_killed or ended_by.name in _WANT_OF_MEMORY):
            return OutOfMemory(
                f"out of memory: the worker was ended by {ended_by.name} ({doing}) under a cap of "
                f"{format_bytes(limit.cap_bytes)} ({limit.kind})",
                self._signs.context_reached,
                peak_bytes,
                limit.kind,
            )
        hint = "; the system may have run out of memory" if ended_by.name == "SIGKILL" else ""
        return WorkerDied(f"The worker was ended by {ended_by.name} ({doing}){hint}.")

    def _peak_bytes(self) -> int | None:
        """By the kernel's count if there is one, else as the worker saw it last."""
        counted = self._limit.peak_bytes() if self._limit is not None and self._limit.group else None
        return self._signs.peak_bytes if counted is None else counted

    def _clear_up(self) -> bool:
        """Remove what a worker that is gone cannot remove itself.

        Returns:
            Whether the kernel ended it for want of memory.
        """
        limit, self._limit = self._limit, None
        if limit is None or limit.group is None:
            return False
        was_killed = limit.group.num_kills > 0
        limit.group.remove()
        return was_killed
