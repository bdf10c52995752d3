"""Which worker a piece of work needs: the common one, or one that is limited to a cap.

Under an enforced cap a drafter has a worker for itself, since it must not pay for what the others
hold; so these pieces of work are done cap by cap and drafter by drafter, after all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hyflash_bench.errors import HyFlashError
from hyflash_bench.runner.events import Event, Log, WorkerRestarted
from hyflash_bench.runner.supervisor import OutOfMemory, Supervisor
from hyflash_bench.runner.work import Work
from hyflash_bench.runner.worker import DrafterFacts
from hyflash_bench.spec.units import format_bytes

__all__ = ["Crew", "NoWorker", "in_order"]


class NoWorker(HyFlashError):
    """No worker can be had for a piece of work, nor for others like it.

    Attributes:
        reason: What kept it from starting.
    """

    def __init__(self, reason: HyFlashError) -> None:
        super().__init__(str(reason))
        self.reason = reason


def in_order(works: Sequence[Work]) -> list[Work]:
    """Work without a cap first, so that its traces are there; then cap by cap, drafter by drafter."""
    free = [work for work in works if work.enforced_cap_bytes is None]
    capped = [work for work in works if work.enforced_cap_bytes is not None]
    return [*free, *sorted(capped, key=lambda work: (-(work.enforced_cap_bytes or 0), _labels(work)))]


class Crew:
    """One worker at a time, of the kind that is needed.

    Args:
        supervisor: With a worker that can take work without a cap.
        drafters: What loading told this worker about them, by label.
        weight_bytes: Of the target.
        tell: Told when a worker is replaced.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        drafters: Mapping[str, DrafterFacts],
        weight_bytes: int,
        tell: Callable[[Event], None],
    ) -> None:
        self.supervisor = supervisor
        self._drafters = drafters
        self._weight_bytes = weight_bytes
        self._tell = tell
        self._at_hand: tuple[int | None, tuple[str, ...]] = None, ()
        self._missing: HyFlashError | None = None

    def facts(self, work: Work) -> Mapping[str, DrafterFacts]:
        """What loading told the worker of this work about its drafters.

        Raises:
            NoWorker: There can be none: the target does not fit, or the worker did not start.
        """
        wanted = work.enforced_cap_bytes, () if work.enforced_cap_bytes is None else _labels(work)
        if wanted != self._at_hand:
            self._at_hand, self._missing = wanted, None
            self._require_room(work)
            common = self.supervisor.job
            self.supervisor.change(replace(common, drafters=work.drafters, cap_bytes=work.enforced_cap_bytes))
            self._drafters = self._started()
        if self._missing is not None:
            raise NoWorker(self._missing)
        return self._drafters

    def revive(self) -> None:
        """Replace a worker that is gone.

        Raises:
            NoWorker: There can be no other one for its cap.
            HyFlashError: There can be no other one at all.
        """
        if self.supervisor.ending is not None:
            self._tell(WorkerRestarted(self.supervisor.ending))
            if self._at_hand[0] is None:
                self.supervisor.start()
            else:
                self._started()

    def _require_room(self, work: Work) -> None:
        cap_bytes = work.enforced_cap_bytes or 0
        if self._weight_bytes > cap_bytes:
            self._missing = OutOfMemory(
                f"out of memory: the target's weights alone take {format_bytes(self._weight_bytes)}; the "
                f"cap is {format_bytes(cap_bytes)}",
                0,
                self._weight_bytes,
            )
            raise NoWorker(self._missing)

    def _started(self) -> dict[str, DrafterFacts]:
        try:
            ready = self.supervisor.start()
            cap_bytes, labels = self._at_hand
            held_by = f"held by {self.supervisor.enforced_by}"
            self._tell(Log(f"{', '.join(labels)} under a cap of {format_bytes(cap_bytes)}, {held_by}."))
            return {facts.label: facts for facts in ready.drafters}
        except HyFlashError as error:
            self._missing = error
            raise NoWorker(error) from error


def _labels(work: Work) -> tuple[str, ...]:
    return tuple(drafter.label for drafter in work.drafters)
