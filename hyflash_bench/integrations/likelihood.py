"""What the target thinks of given text: log-likelihoods, with the cache carried over shared prefixes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

import torch

from hyflash_bench.errors import ContextTooLong
from hyflash_bench.targets.cache import KVCache
from hyflash_bench.targets.target import Target

__all__ = ["Likelihood", "Scored"]

_Key = tuple[tuple[int, ...], int]

CHUNK = 256
"""Rows of logits held at once."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A continuation under the target.

    Attributes:
        logprob: Sum of log p(token | all before it), natural logarithm.
        is_greedy: Whether every token was the likeliest one.
    """

    logprob: float
    is_greedy: bool


class Likelihood:
    """Scores continuations; the answers are remembered.

    Args:
        target: The model.
        on_scored: Told how many of how many are done.
    """

    def __init__(self, target: Target, on_scored: Callable[[int, int], None] | None = None) -> None:
        self._target = target
        self._on_scored = on_scored
        self._cache: KVCache | None = None
        self._held: list[int] = []
        self._known: dict[_Key, Scored] = {}

    def score_all(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[Scored]:
        """Score many continuations in the order that shares most, whatever order they come in.

        Args:
            pairs: Context and continuation, at least one token each.

        Raises:
            ContextTooLong: One of them does not fit the target.
        """
        longest = max((len(context) + len(wanted) - 1 for context, wanted in pairs), default=1)
        self._check(longest)
        self._reserve(longest)
        in_order = sorted(pairs, key=lambda pair: [*pair[0], *pair[1]])
        for done, (context, wanted) in enumerate(in_order, start=1):
            key = _key(context, wanted)
            if key not in self._known:
                self._known[key] = self._score(context, wanted)
                if self._on_scored is not None:
                    self._on_scored(done, len(pairs))
        return [self._known[_key(context, wanted)] for context, wanted in pairs]

    def _score(self, context: list[int], wanted: list[int]) -> Scored:
        assert self._cache is not None
        rows = [*context, *wanted[:-1]]
        # The last token of the context is passed again: what follows it is asked for.
        shared = min(_num_shared(self._held, rows), len(context) - 1)
        self._cache.truncate(shared)
        if shared < len(context) - 1:
            self._target.prefill(torch.tensor(context[shared:-1]), self._cache)
        logprob, is_greedy = 0.0, True
        asked = torch.split(torch.tensor(rows[len(context) - 1 :]), CHUNK)
        for chunk, next_tokens in zip(asked, torch.split(torch.tensor(wanted), CHUNK), strict=True):
            logits = self._target.forward(chunk, self._cache).logits.cpu()
            said = logits.log_softmax(-1).gather(1, next_tokens[:, None])
            logprob += float(said.double().sum())
            is_greedy = is_greedy and bool((logits.argmax(-1) == next_tokens).all())
        self._held = rows
        return Scored(logprob, is_greedy)

    def _check(self, length: int) -> None:
        info = self._target.info
        if length > info.max_positions and not info.extrapolate:
            raise ContextTooLong(
                f"A context with its continuation takes {length:,} tokens; {info.name} was made for "
                f"{info.max_positions:,}. Choose shorter texts or fewer shots, or allow extrapolation."
            )

    def _reserve(self, capacity: int) -> None:
        if self._cache is None:
            self._cache = self._target.new_cache(capacity)
        elif self._cache.capacity < capacity:
            self._cache.grow(capacity)


def _key(context: Sequence[int], wanted: Sequence[int]) -> _Key:
    return (*context, *wanted), len(context)


def _num_shared(held: Sequence[int], rows: Sequence[int]) -> int:
    """Tokens with which both begin."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(held, rows, strict=False)))
