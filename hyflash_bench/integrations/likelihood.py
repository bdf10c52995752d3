"""What the target thinks of given text: log-likelihoods, many continuations of a context in one pass."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from hyflash_bench.engine.prefix import Prefix
from hyflash_bench.errors import ContextTooLong
from hyflash_bench.integrations.branches import Branches
from hyflash_bench.integrations.prompts import CHUNK_SIZE
from hyflash_bench.targets.target import Target

__all__ = ["MAX_ROWS", "Likelihood", "Scored"]

MAX_ROWS = 256
"""Rows of a pass, and so of logits held at once."""

Pair = tuple[tuple[int, ...], tuple[int, ...]]
"""Context and continuation."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A continuation under the target.

    Attributes:
        logprob: Sum of log p(token | all before it), natural logarithm.
        is_greedy: Whether every token was the likeliest one.
    """

    logprob: float
    is_greedy: bool


@dataclass(frozen=True, slots=True)
class _Batch:
    context: tuple[int, ...]
    continuations: tuple[tuple[int, ...], ...]
    num_rows: int

    @property
    def keys(self) -> list[str]:
        return [_key((self.context, continuation)) for continuation in self.continuations]


class Likelihood:
    """Scores continuations of contexts; answers are remembered.

    Continuations of one context are scored together, as branches of a tree. Contexts come in the order in
    which they share most. Which continuations meet in a pass depends on what is asked for and not on its
    order, and neither do the answers, to the last bit. Passes of other sizes round differently, so another
    ``batch_size`` changes the last digits.

    Args:
        target: The model.
        batch_size: Most continuations of one pass; None for as many as fit, 1 for one by one.
        known: Answers of an earlier process, by key.
        on_scored: Told of every pass: the answers that it gave, by key.
    """

    def __init__(
        self,
        target: Target,
        *,
        batch_size: int | None = None,
        known: Mapping[str, Scored] | None = None,
        on_scored: Callable[[Mapping[str, Scored]], None] | None = None,
    ) -> None:
        self._target = target
        self._batch_size = batch_size
        self._known = dict(known or {})
        self._on_scored = on_scored
        self._prefix = Prefix(target, CHUNK_SIZE)

    def score(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Iterator[tuple[int, Scored]]:
        """Score many continuations; each answer comes with its place, in the order in which they are made.

        Args:
            pairs: Context of at least one token, and continuation.

        Raises:
            ContextTooLong: One of them does not fit the target.
        """
        places: dict[Pair, list[int]] = {}
        for index, (context, continuation) in enumerate(pairs):
            self._check(len(context) + len(continuation) - 1)
            if continuation:
                places.setdefault((tuple(context), tuple(continuation)), []).append(index)
            else:
                yield index, Scored(0.0, is_greedy=True)
        batches = list(_batches(sorted(places), self._batch_size))
        self._prefix.reserve(max((len(each.context) - 1 + each.num_rows for each in batches), default=1))
        for batch in batches:
            if any(key not in self._known for key in batch.keys):
                self._run(batch)
            for continuation, key in zip(batch.continuations, batch.keys, strict=True):
                yield from ((index, self._known[key]) for index in places[batch.context, continuation])

    def _run(self, batch: _Batch) -> None:
        """Score all of a batch, known or not: with others beside it, a row might be rounded otherwise."""
        root, rest = batch.context[-1], list(batch.continuations)
        self._prefix.read(batch.context[:-1])
        scored = [Scored(0.0, is_greedy=True)] * len(rest)
        while any(rest):  # once, but for a single continuation that is longer than a pass
            scored = [_joined(*both) for both in zip(scored, self._pass(root, rest), strict=True)]
            root, rest = rest[0][:MAX_ROWS][-1], [continuation[MAX_ROWS:] for continuation in rest]
        answers = dict(zip(batch.keys, scored, strict=True))
        self._known |= answers
        if self._on_scored is not None:
            self._on_scored(answers)

    def _pass(self, root: int, continuations: Sequence[Sequence[int]]) -> list[Scored]:
        branches = Branches(root)
        for continuation in continuations:
            branches.add(continuation[:MAX_ROWS])
        passed = self._target.forward(branches.tokens, self._prefix.cache, parents=branches.parents)
        said = branches.said_of(passed.logits.cpu())
        return [Scored(float(logprobs.double().sum()), bool(hits.all())) for logprobs, hits in said]

    def _check(self, length: int) -> None:
        info = self._target.info
        if length > info.max_positions and not info.extrapolate:
            raise ContextTooLong(
                f"A context with its continuation takes {length:,} tokens; {info.name} was made for "
                f"{info.max_positions:,}. Choose shorter texts or fewer shots, or allow extrapolation."
            )


def _batches(pairs: Sequence[Pair], batch_size: int | None) -> Iterator[_Batch]:
    """Pairs in order, those of a context together as far as they fit a pass."""
    for context, group in groupby(pairs, key=lambda pair: pair[0]):
        branches, members = Branches(context[-1]), list[tuple[int, ...]]()
        for _, continuation in group:
            is_full = len(members) == batch_size
            if members and (is_full or branches.num_rows + branches.num_new(continuation) > MAX_ROWS):
                yield _Batch(context, tuple(members), branches.num_rows)
                branches, members = Branches(context[-1]), []
            branches.add(continuation)
            members.append(continuation)
        yield _Batch(context, tuple(members), branches.num_rows)


def _joined(one: Scored, other: Scored) -> Scored:
    return Scored(one.logprob + other.logprob, one.is_greedy and other.is_greedy)


def _key(pair: Pair) -> str:
    return hashlib.sha256(repr(pair).encode()).hexdigest()[:32]
