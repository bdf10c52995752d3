"""What a run says while it goes on; the console turns it into lines and bars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from hyflash_bench.engine.tally import Tally
from hyflash_bench.results.records import Status

__all__ = [
    "ConversationFinished",
    "Event",
    "Log",
    "PhaseStarted",
    "Planned",
    "TargetLoaded",
    "TurnFinished",
    "WorkFinished",
    "WorkStarted",
    "WorkerRestarted",
    "described",
]


@dataclass(frozen=True, slots=True)
class Log:
    """Something that takes a while, or is worth knowing."""

    message: str


@dataclass(frozen=True, slots=True)
class TargetLoaded:
    """The target answers."""

    info: dict[str, Any]
    seconds: float


@dataclass(frozen=True, slots=True)
class Planned:
    """How much there is to do; a piece of work is one conversation with all its drafters."""

    num_work: int
    num_done: int
    unit: str = "conversations"


@dataclass(frozen=True, slots=True)
class WorkStarted:
    """A conversation begins."""

    item_id: str
    drafters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PhaseStarted:
    """What is being done with it."""

    item_id: str
    phase: Literal["prefill", "trace", "replay", "live"]
    drafter: str | None


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """One turn of one drafter."""

    item_id: str
    drafter: str
    mode: Literal["replay", "live"]
    turn: int
    tally: Tally


@dataclass(frozen=True, slots=True)
class ConversationFinished:
    """One cell on one conversation has its record."""

    item_id: str
    drafter: str
    status: Status
    message: str | None


@dataclass(frozen=True, slots=True)
class WorkFinished:
    """A conversation is stored."""

    item_id: str
    num_done: int
    num_work: int
    eta_s: float | None


@dataclass(frozen=True, slots=True)
class WorkerRestarted:
    """The worker process died or was stopped, and a new one takes over."""

    reason: str


Event = (
    Log
    | TargetLoaded
    | Planned
    | WorkStarted
    | PhaseStarted
    | TurnFinished
    | ConversationFinished
    | WorkFinished
    | WorkerRestarted
)


def described(error: BaseException) -> str:
    """An error that nobody foresaw, in one line with the place where it was raised."""
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    line = f" ({where.tb_frame.f_code.co_qualname}, line {where.tb_lineno})" if where else ""
    return f"{type(error).__name__}: {error}{line}"
