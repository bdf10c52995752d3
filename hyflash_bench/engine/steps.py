"""What happened in each step of a turn, and the pass over a turn that replay and live share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hyflash_bench.drafters.base import Draft, Drafter, MemoryKind
from hyflash_bench.engine.acceptance import Cut, depths, rejected_tokens

__all__ = ["HeldBytes", "ReadHeld", "Steps", "TurnResult"]

HeldBytes = dict[MemoryKind, int]
"""Bytes that a drafter holds, by kind."""
ReadHeld = Callable[[Drafter], HeldBytes]
"""Walks a drafter's live tensors; the engine says when, outside of what is timed."""


@dataclass(slots=True)
class Steps:
    """Columns of the steps of one turn; the clocked ones stay empty in a replay.

    ``rejected`` holds the drafted tokens behind the accepted ones, or None where they are not known.
    """

    drafted: list[int] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    eos_cut: list[bool] = field(default_factory=list)
    limit_cut: list[bool] = field(default_factory=list)
    rejected: list[list[int] | None] = field(default_factory=list)
    draft_s: list[float] = field(default_factory=list)
    verify_s: list[float] = field(default_factory=list)
    observe_s: list[float] = field(default_factory=list)
    held: list[HeldBytes] = field(default_factory=list)

    def add(self, draft: Draft, path: Sequence[int], step: Cut, *, is_own: bool = True) -> None:
        """Count one step. Accepted tokens that a cut threw away do not count as accepted.

        Args:
            draft: What was proposed.
            path: Indices into it of the accepted tokens, from the root down.
            step: What of them enters the text.
            is_own: Whether the draft holds what the drafter would have proposed by itself.
        """
        kept = path[: len(step.tokens)]
        self.drafted.append(len(draft))
        self.depth.append(len(draft) if draft.parents is None else max(depths(draft), default=0))
        self.accepted.append(len(kept))
        self.committed.append(len(step.tokens))
        self.eos_cut.append(step.ended)
        self.limit_cut.append(step.limited)
        self.rejected.append(rejected_tokens(draft, kept) if is_own else None)

    def time(self, draft_s: float, verify_s: float, observe_s: float) -> None:
        """Clock one step."""
        self.draft_s.append(draft_s)
        self.verify_s.append(verify_s)
        self.observe_s.append(observe_s)


@dataclass(slots=True)
class TurnResult:
    """A turn of one drafter, replayed or live.

    Attributes:
        steps: Its steps.
        tokens: The reply.
        observe_prompt_s: Seconds of the drafter's ingestion of the turn's prompt; None in a replay.
        choose_s: Seconds of choosing the first token; None in a replay.
        decode_s: Seconds of all steps; None in a replay.
        held: What the drafter held after the prompt, before the first step; None if nobody asked.
    """

    steps: Steps
    tokens: list[int]
    observe_prompt_s: float | None = None
    choose_s: float | None = None
    decode_s: float | None = None
    held: HeldBytes | None = None
