"""What other tools ask the target to write."""

from __future__ import annotations

from dataclasses import dataclass

from hyflash_bench.spec.sampling import GREEDY, Sampling

__all__ = ["CHUNK_SIZE", "Ask", "Origin", "Prompt"]

CHUNK_SIZE = 128
"""Tokens of a prompt that are taken over together: tasks' prompts begin alike, and are short."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What is wanted of a reply.

    Attributes:
        max_new_tokens: Most tokens.
        until: Strings that end it; none of them is part of the text.
        sampling: How its tokens are chosen.
        take: Counts repetitions of the same prompt, which differ when tokens are drawn.
    """

    max_new_tokens: int
    until: tuple[str, ...] = ()
    sampling: Sampling = GREEDY
    take: int = 0


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a prompt comes from.

    Attributes:
        task: Name of the task.
        item_id: Unique among all prompts.
        context_rung: Length that the task was made for, if it was made for one.
    """

    task: str
    item_id: str
    context_rung: int | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request for text.

    Attributes:
        tokens: Of the text that is to be continued, at least one.
        ask: What is wanted.
        origin: Where it comes from.
    """

    tokens: tuple[int, ...]
    ask: Ask
    origin: Origin

    @property
    def item_id(self) -> str:
        """Unique among all prompts; takes of the same one are told apart."""
        return self.origin.item_id + (f"#{self.ask.take}" if self.ask.take else "")

    @property
    def num_tokens(self) -> int:
        """Tokens with the longest reply."""
        return len(self.tokens) + self.ask.max_new_tokens
