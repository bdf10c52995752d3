"""A worker under an enforced cap: what it used at most, how far it came, and how it tells of a breach."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from hyflash_bench.memory.limits import EnforcedLimit, enforce
from hyflash_bench.memory.meters import Looking
from hyflash_bench.runner.work import WorkResult

if TYPE_CHECKING:
    from hyflash_bench.targets.target import Target

__all__ = ["Signs", "UnderCap", "under_cap"]

LOOK_S = 0.01
"""Seconds between two looks at what is used: a peak that is shorter is missed."""
_WARM_UP = (1, 32)


class Signs:
    """What a worker leaves behind even if it is killed: memory shared with the parent.

    Attributes:
        shared: Peak bytes and context length; -1 for not known.
    """

    def __init__(self) -> None:
        self.shared = multiprocessing.get_context("spawn").RawArray("q", [-1, -1])

    @property
    def peak_bytes(self) -> int | None:
        """The most that counted against the cap, as far as it was seen."""
        return self._known(0)

    @property
    def context_reached(self) -> int | None:
        """Tokens in the target's cache when it was last looked at."""
        return self._known(1)

    def note(self, peak_bytes: int, context_length: int) -> None:
        """Leave word of where the work is."""
        self.shared[0], self.shared[1] = peak_bytes, context_length

    def _known(self, index: int) -> int | None:
        value = int(self.shared[index])
        return None if value < 0 else value


class UnderCap:
    """The cap of a worker, or none: then all of this does nothing.

    Args:
        limit: In force, or None.
        signs: Where peak and context length are left for the parent.
        context_length: Tells how far the conversation is.
    """

    def __init__(self, limit: EnforcedLimit | None, signs: Signs, context_length: Callable[[], int]) -> None:
        self.limit = limit
        self._signs = signs
        self._context_length = context_length
        self._peak = 0

    def begin(self) -> None:
        """A conversation begins: peaks of those before are forgotten, where the system lets them."""
        self._peak = 0
        self.look()

    def look(self) -> None:
        """Take in what counts against the cap at this moment."""
        limit = self.limit  # taken away by the other thread when the worker ends
        if limit is not None:
            self._peak = max(self._peak, limit.used_bytes())
            self._signs.note(self._peak, self._context_length())

    def peak_bytes(self) -> int | None:
        """The most that counted against the cap in this conversation; None without a cap."""
        if self.limit is None:
            return None
        self.look()
        return max(self._peak, self.limit.peak_bytes() or 0)

    def signed(self, result: WorkResult) -> WorkResult:
        """The result with what held the cap, and with how far a conversation came that ran out of memory."""
        if self.limit is None:
            return result
        held: dict[str, Any] = {"enforced_by": self.limit.kind}
        breach = held | {"context_reached": self._context_length(), "peak_bytes": self.peak_bytes()}
        return result.model_copy(
            update={
                "conversations": tuple(
                    record.model_copy(update=breach if record.status == "oom" else held)
                    for record in result.conversations
                )
            }
        )

    def send(self, connection: Connection, answer: object) -> None:
        """Tell the parent, which takes memory that the cap is not there to deny."""
        if self.limit is None:
            connection.send(answer)
            return
        self.limit.lift()
        try:
            connection.send(answer)
        finally:
            self.limit.lay()


@contextmanager
def under_cap(
    cap_bytes: int | None, target: Target, signs: Signs, context_length: Callable[[], int]
) -> Iterator[UnderCap]:
    """Lay a cap on this process, which has loaded the target and no drafter yet; None lays none.

    Raises:
        UsageError: Nothing here can enforce it.
    """
    if cap_bytes is None:
        yield UnderCap(None, signs, context_length)
        return
    _warm_up(target)
    cap = UnderCap(None, signs, context_length)
    with Looking(cap.look, LOOK_S):  # the thread is there before the limit
        limit = cap.limit = enforce(cap_bytes, target.info.weight_bytes, target.info.backend)
        try:
            yield cap
        finally:
            cap.limit = None
            limit.lift()


def _warm_up(target: Target) -> None:
    """Have passes allocate now what they allocate once: threads, kernels, buffers of libraries."""
    import torch

    from hyflash_bench.drafters.networks.native import load_kernels

    load_kernels()  # drafters come later, when the compiler would stand under the cap
    cache = target.new_cache(max(_WARM_UP))
    for num_tokens in _WARM_UP:
        target.prefill(torch.zeros(num_tokens, dtype=torch.int64), cache)
        cache.truncate(0)
