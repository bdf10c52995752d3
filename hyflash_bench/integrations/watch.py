"""How far the requests of all tasks have come."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hyflash_bench.integrations.keeping import Keeper
from hyflash_bench.integrations.likelihood import Scored
from hyflash_bench.integrations.prompts import Prompt
from hyflash_bench.integrations.replies import Answers, Round
from hyflash_bench.runner.events import ConversationFinished, Event, Log, Planned, WorkFinished
from hyflash_bench.runner.recording import turn_finished

__all__ = ["Watch"]

_MOST_LINES = 100
"""Of passes that only score texts; there may be thousands."""


class Watch:
    """A shelf that tells what is put there; what an earlier process put there is only counted.

    Args:
        keeper: The shelf itself.
        tell: Listens.
        tasks: Of lm-eval, all of whose requests are made before the first is answered.
    """

    def __init__(self, keeper: Keeper, tell: Callable[[Event], None], tasks: Iterable[Any]) -> None:
        self._keeper = keeper
        self._tell = tell
        self._tasks = tuple(tasks)
        self._num_requests = 0
        self._done: set[str] = set()
        self._num_recalled = 0
        self._num_told = 0
        self._is_telling = False
        self._started: float | None = None

    def expect(self, prompts: Sequence[Prompt]) -> None:
        """See :class:`~hyflash_bench.integrations.replies.Shelf`; so below."""
        self._begin()
        self._keeper.expect(prompts)

    def recall(self, prompt: Prompt) -> Answers:
        """What an earlier process kept."""
        return self._keeper.recall(prompt)

    def keep(self, played: Round) -> None:
        """Keep replies, and tell of each."""
        self._resume()
        for label, record in self._keeper.keep(played).items():
            if record.turns:
                self._tell(turn_finished(record.item_id, label, record.turns[0]))
            self._tell(ConversationFinished(record.item_id, label, record.status, record.message))
        self._is_telling = True

    def keep_scored(self, scored: Mapping[str, Scored]) -> None:
        """Keep likelihoods, and tell of a hundredth of all requests at a time."""
        self._begin()
        self._resume()
        self._keeper.keep_scored(scored)
        self._is_telling = (len(self._done) - self._num_told) * _MOST_LINES >= self._num_requests

    def done(self, name: str) -> None:
        """Count a request that has its answer; each drafter's turn brings it again."""
        if name in self._done:
            return
        self._done.add(name)
        self._num_recalled += self._started is None
        if self._is_telling or (self._started is not None and len(self._done) == self._num_requests):
            self._is_telling, self._num_told = False, len(self._done)
            self._tell(WorkFinished(name, len(self._done), self._num_requests, self._eta_s()))

    def _begin(self) -> None:
        if not self._num_requests:
            self._num_requests = sum(each.repeats for task in self._tasks for each in task.instances)
            self._tell(Planned(self._num_requests, 0, "requests"))

    def _resume(self) -> None:
        """Time counts from the first request that has no answer yet."""
        if self._started is None:
            self._started = time.perf_counter()
            if self._num_recalled:
                self._tell(Log(f"{self._num_recalled} of them were answered before."))

    def _eta_s(self) -> float | None:
        fresh = len(self._done) - self._num_recalled
        if self._started is None or not fresh:
            return None
        return (time.perf_counter() - self._started) / fresh * (self._num_requests - len(self._done))
