"""One drafter on its way through one conversation, and what becomes of it when it fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import torch

from hyflash_bench.drafters.base import Drafter, Requires
from hyflash_bench.errors import DrafterError, HyFlashError
from hyflash_bench.results.records import Status, TurnRecord
from hyflash_bench.runner.events import described

__all__ = ["Entrant", "Mode", "guarded", "is_out_of_memory", "requires_of", "rotated"]

Mode = Literal["replay", "live"]

_OUT_OF_MEMORY = (
    "DefaultCPUAllocator", "not enough memory", "out of memory", "bad_alloc", "can't start new thread",
)  # fmt: skip


@dataclass(slots=True)
class Entrant:
    """A drafter, its turns, and how it stands.

    Attributes:
        label: Of the drafter.
        drafter: Loaded.
        turns: By turn and mode, one for each repeat.
        skipped: Modes that the drafter cannot do, with its reason.
        status: So far.
        message: Why, when it is not ok.
        stands_before: The turn that its state is ready for.
        has_differed: Its tensors and its formula disagreed once.
    """

    label: str
    drafter: Drafter
    turns: dict[tuple[int, Mode], list[TurnRecord]] = field(default_factory=dict)
    skipped: dict[Mode, str] = field(default_factory=dict)
    status: Status = "ok"
    message: str | None = None
    stands_before: int | None = None
    has_differed: bool = False

    @property
    def is_running(self) -> bool:
        """Whether its turns count (a mismatch is measured to the end)."""
        return self.status in ("ok", "mismatch")

    def does(self, mode: Mode) -> bool:
        """Whether it is still running and can do this mode."""
        return self.is_running and mode not in self.skipped

    def keep(self, record: TurnRecord) -> None:
        """Add a turn."""
        self.turns.setdefault((record.turn, record.mode), []).append(record)

    def fail(self, status: Status, message: str) -> None:
        """Note what happened."""
        # A drafter's message may hold half characters, which no file takes.
        self.status, self.message = status, message.encode(errors="backslashreplace").decode()

    def turns_of(self, repeat: int, repeats: Sequence[int]) -> list[TurnRecord]:
        """What one repeat shows: its live turns; replayed ones belong to the first."""
        turns: list[TurnRecord] = []
        for (_, mode), repetitions in sorted(self.turns.items()) if self.is_running else ():
            if mode == "live":
                turns.append(repetitions[repeats.index(repeat)])
            elif repeat == 0:
                turns += repetitions
        return turns


@contextmanager
def guarded(entrant: Entrant) -> Iterator[None]:
    """A drafter's failure is a row of its own cell; the others go on."""
    try:
        yield
    except HyFlashError as error:
        entrant.fail("error", str(error))
    except Exception as error:  # noqa: BLE001 - a drafter may be anybody's code
        if is_out_of_memory(error):
            entrant.fail("oom", f"out of memory: {error}")
        else:
            entrant.fail("error", described(error))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out; torch's CPU allocator says so in words only."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)


def requires_of(entrants: Sequence[Entrant], num_layers: int) -> Requires:
    """What all of them read together; one that reads a layer that the target has not got fails."""
    together = Requires()
    for entrant in entrants:
        if entrant.is_running:
            with guarded(entrant):
                requires = entrant.drafter.requires
                absent = [layer for layer in requires.taps if not 0 <= layer < num_layers]
                if absent:
                    raise DrafterError(
                        f"Drafter {entrant.drafter.name} reads layer {absent[0]}; "
                        f"the target has 0 to {num_layers - 1}."
                    )
                together = together | requires
    return together


def rotated(entrants: Sequence[Entrant], by: int) -> list[Entrant]:
    """Another one goes first each time."""
    shift = by % len(entrants)
    return [*entrants[shift:], *entrants[:shift]]
