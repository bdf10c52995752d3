"""From an engine's counts of drafts to this project's steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from hyflash_bench.results.importers.base import MAX_STEPS

__all__ = ["EngineCounts", "accepted_per_step", "turn_of"]


@dataclass(slots=True)
class EngineCounts:
    """What an engine counted. It counts steps with a draft only, and whole drafts past a reply's end.

    Attributes:
        num_drafts: Steps with a draft.
        num_drafted: Tokens proposed.
        num_accepted: Of these, kept by verification.
        num_replies: Replies that they belong to.
        num_output_tokens: Tokens of these replies, each with the first one, which is no step's.
        accepted: Accepted tokens of each step, if known.
        drafted: Proposed tokens of each step, if known.
        is_ordered: Whether these are in the order of the steps.
        is_chain: Whether drafts are known to be chains.
    """

    num_drafts: int
    num_drafted: int | None
    num_accepted: int
    num_replies: int | None = None
    num_output_tokens: int | None = None
    accepted: list[int] | None = None
    drafted: list[int] | None = None
    is_ordered: bool = False
    is_chain: bool = False
    notes: list[str] = field(default_factory=list)


def accepted_per_step(per_position: Sequence[int], num_steps: int) -> list[int] | None:
    """Accepted tokens of each step, in no order, from how many steps accepted each position.

    Steps with exactly j accepted tokens are those that accepted position j and not the next one. None if
    the counts are no such counts.
    """
    counts = [num_steps, *per_position, 0]
    if any(after > before for before, after in pairwise(counts)):
        return None
    return [length for length, (here, after) in enumerate(pairwise(counts)) for _ in range(here - after)]


def turn_of(counts: EngineCounts) -> dict[str, Any]:
    """Fields of the turn (or of all turns together) that these counts are of.

    Tokens of the replies beyond the engine's count came from steps without a draft, a token each; those
    that the engine counts beyond the replies lie behind their ends and were thrown away.
    """
    committed = counts.num_accepted + counts.num_drafts
    num_plain = num_lost = 0
    if counts.num_output_tokens is None or counts.num_replies is None:
        counts.notes.append("tokens of the replies are not told, so tokens behind their ends are counted")
    else:
        number = counts.num_output_tokens - counts.num_replies
        if number < counts.num_drafts:
            counts.notes.append(
                f"{number} output tokens in {counts.num_drafts} steps cannot be: the file counts something "
                "else, and the engine's count stands"
            )
        else:
            num_plain, num_lost = max(0, number - committed), max(0, committed - number)
    if num_plain:
        counts.notes.append(f"{num_plain} tokens came from steps without a draft, which count as steps here")
    if num_lost:
        counts.notes.append(
            f"{num_lost} tokens that the engine counted lie behind the ends of replies and were taken off "
            f"({num_lost / committed:.2%})"
        )
    is_one = counts.num_replies == 1
    # In the one step that ended a reply, all that was committed had been drafted.
    accepted = counts.num_accepted - (num_lost - 1 if num_lost and is_one else 0)
    steps = _steps(counts, num_plain, num_lost)
    return {
        "num_steps": counts.num_drafts + num_plain,
        "num_drafted": counts.num_drafted,
        "num_accepted": accepted,
        "num_committed": committed + num_plain - num_lost,
        **steps,
    }


def _steps(counts: EngineCounts, num_plain: int, num_lost: int) -> dict[str, Any]:
    """The steps themselves, where they are known."""
    accepted = counts.accepted
    if accepted is None or len(accepted) + num_plain > MAX_STEPS:
        return {}
    committed = [number + 1 for number in accepted]
    accepted = list(accepted)
    if num_lost:
        # Only a reply's last step can have lost tokens: it must be known which one that is.
        if not (counts.is_ordered and counts.num_replies == 1 and committed[-1] > num_lost):
            counts.notes.append("steps one by one: null, since it is not told which ones were cut")
            return {}
        committed[-1] -= num_lost
        accepted[-1] = committed[-1]
    plain = [0] * num_plain
    drafted = None if counts.drafted is None else [*counts.drafted, *plain]
    return {
        "drafted": drafted,
        "depth": drafted if counts.is_chain else None,
        "accepted": [*accepted, *plain],
        "committed": [*committed, *(1 for _ in plain)],
    }
