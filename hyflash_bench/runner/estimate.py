"""How long conversations will take: guessed from their size, then learned from those that are done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hyflash_bench.runner.work import Work

__all__ = ["SMALL_CPU_CORES", "Effort", "Pace", "effort_of"]

SMALL_CPU_CORES = 2

READ_S, WRITE_S = 1 / 300, 0.03
"""Seconds per token on a CPU of so few cores: the guess before anything is measured."""
CHAT_TOKENS = 60
"""Prompt tokens of a turn where the suite fixes no length."""
REPLAY_SHARE = 0.15
"""What a token costs in a replay, against one that the target computes."""
CONTEXT_THAT_DOUBLES = 10_000
"""Tokens of context that make a decoding step twice as long."""


@dataclass(frozen=True, slots=True)
class Effort:
    """What a conversation asks of the machine.

    Attributes:
        read: Tokens that prefill passes take in.
        written: Tokens decoded step by step, by trace, replays and live loops; those behind a long
            context count more.
    """

    read: float
    written: float


@dataclass
class Pace:
    """Seconds per token read and per token written, as learned so far.

    The guess is first scaled to what was measured, then bent towards it by least squares; it weighs
    as much as one average conversation, so that one odd conversation does not decide.
    """

    _done: list[tuple[Effort, float]] = field(default_factory=list)

    def learn(self, effort: Effort, seconds: float) -> None:
        """Take in a conversation that is done."""
        self._done.append((effort, seconds))

    def seconds(self, efforts: Iterable[Effort]) -> float:
        """How long these conversations will take together."""
        read_s, write_s = self._rates()
        return sum(effort.read * read_s + effort.written * write_s for effort in efforts)

    def _rates(self) -> tuple[float, float]:
        """Seconds per token, neither below zero."""
        guessed = sum(effort.read * READ_S + effort.written * WRITE_S for effort, _ in self._done)
        if guessed <= 0:
            return READ_S, WRITE_S
        scale = sum(seconds for _, seconds in self._done) / guessed
        read_s, write_s = READ_S * scale, WRITE_S * scale
        # What the scaled guess leaves unexplained, explained by two corrections kept small.
        rr = rw = ww = rt = wt = 0.0
        for effort, seconds in self._done:
            rest = seconds - effort.read * read_s - effort.written * write_s
            rr += effort.read**2
            rw += effort.read * effort.written
            ww += effort.written**2
            rt += effort.read * rest
            wt += effort.written * rest
        rr, ww = rr * (1 + 1 / len(self._done)), ww * (1 + 1 / len(self._done))
        determinant = rr * ww - rw * rw
        if determinant > 0:
            read_s += (rt * ww - wt * rw) / determinant
            write_s += (wt * rr - rt * rw) / determinant
        return max(read_s, 0.0), max(write_s, 0.0)


def effort_of(work: Work) -> Effort:
    """What is known of a conversation before it is run: lengths asked for, turns, drafters, modes."""
    prompt = work.context_length or CHAT_TOKENS * work.num_turns
    replies = work.num_turns * work.max_new_tokens
    num_drafters, num_repeats = len(work.drafters), len({cell.repeat for cell in work.cells})
    passes = float(work.known is None)
    if work.mode != "live":
        passes += REPLAY_SHARE * num_drafters
    if work.mode != "replay":
        passes += num_drafters * num_repeats
    longer = 1 + (prompt + replies / 2) / CONTEXT_THAT_DOUBLES
    read = prompt + (0 if work.known is None else replies)
    return Effort(read, replies * passes * longer)
