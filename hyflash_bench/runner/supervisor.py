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
from hyflash_bench.runner.events import Event, TargetLoaded
from hyflash_bench.runner.work import Work, WorkResult
from hyflash_bench.runner.worker import Crashed, Failed, Job, Ready, serve

__all__ = ["Supervisor", "WorkRefused", "WorkerDied", "WorkerSilent"]


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


class WorkRefused(HyFlashError):
    """One conversation cannot be built or told to the target."""


class Supervisor:
    """One worker at a time.

    Args:
        job: What workers are started for.
        timeout_s: Longest silence, in seconds.
        listener: Gets the worker's events.

    Attributes:
        ending: Why the last worker is gone, if it died; :meth:`start` makes a new one.
    """

    def __init__(self, job: Job, timeout_s: float, listener: Callable[[Event], None]) -> None:
        self._job = job
        self._timeout_s = timeout_s
        self.listener = listener
        self.ending: str | None = None
        self._process: SpawnProcess | None = None
        self._connection: Connection | None = None

    def start(self) -> Ready:
        """Start a worker and wait until it can take work.

        Raises:
            HyFlashError: Whatever kept it from starting.
        """
        self.ending = None
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, self._job), daemon=True)
        with _undisturbed(), _without_main():
            process.start()
        theirs.close()
        self._process, self._connection = process, ours
        for message in self._messages("loading the target"):
            if isinstance(message, Ready):
                return message
            if isinstance(message, Failed):
                self.stop()
                raise message.raised()
            if not isinstance(message, WorkResult):
                self.listener(message)
        raise AssertionError("unreachable")

    def run(self, work: Work) -> WorkResult:
        """Have one conversation done.

        Raises:
            WorkRefused: The conversation cannot be had; the worker takes the next one.
            WorkerDied, WorkerSilent: It did not come back; :meth:`start` makes a new worker.
        """
        assert self._connection is not None
        try:
            self._connection.send(work)
        except OSError:
            self.ending = self._death(f"before {work.item_id}")
            raise WorkerDied(self.ending) from None
        try:
            for message in self._messages(work.item_id):
                if isinstance(message, WorkResult):
                    return message
                if isinstance(message, Failed):
                    raise WorkRefused(message.message)
                if not isinstance(message, Ready | TargetLoaded):
                    self.listener(message)
        except (WorkerDied, WorkerSilent) as error:
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

    def kill(self) -> None:
        """End the worker at once."""
        if self._process is not None:
            self._process.kill()
        self.stop()

    def _messages(self, doing: str) -> Iterator[Event | Ready | Failed | WorkResult]:
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
                raise WorkerDied(self._death(doing)) from None
            if isinstance(message, Crashed):
                self.stop()
                raise WorkerDied(f"The worker failed ({doing}): {message.message}.")
            yield message

    def _death(self, doing: str) -> str:
        process, self._process = self._process, None
        self._connection = None
        code = None
        if process is not None:
            process.join()
            code = process.exitcode
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            hint = "; the system may have run out of memory" if name == "SIGKILL" else ""
            return f"The worker was ended by {name} ({doing}){hint}."
        return f"The worker ended with exit code {code} ({doing})."
