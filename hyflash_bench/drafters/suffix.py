"""Suffix decoding: continue the longest repeated suffix by counts.

After Oliaro et al., "SuffixDecoding" (2411.04975). Only the conversation's own text is looked
at: a tree over earlier conversations would make a result depend on the order of the prompts.
Differs from the paper's code in that the context grows with the draft, that it backs off to a
shorter one where the text ends, and that the end of the text does not count as an occurrence.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any, NamedTuple, Protocol

import torch
from pydantic import Field
from torch import Tensor

from hyflash_bench.drafters.automaton import SuffixAutomaton
from hyflash_bench.drafters.base import Draft, Drafter, DrafterOptions, Features, Held, MemoryKind
from hyflash_bench.drafters.recent import RecentText, widest
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.spec.base import MAX_COUNT

__all__ = ["Suffix"]


class Suffix(Drafter):
    """Continues the longest suffix seen before with the tokens that followed it most often."""

    name = "suffix"

    class Options(DrafterOptions):
        """What may be set."""

        max_depth: int = Field(
            64, ge=1, le=MAX_COUNT, description="Longest suffix that is matched, in tokens."
        )
        min_token_prob: float = Field(
            0.1, ge=0.0, le=1.0, description="Least estimated probability of a path; ends a draft."
        )
        max_spec_factor: float = Field(
            1.0, ge=0.0, le=1e6, description="Longest draft as a multiple of the matched length."
        )
        max_spec_offset: int = Field(
            0, ge=-MAX_COUNT, le=MAX_COUNT, description="Tokens added to that length."
        )
        num_draft_tokens: int = Field(16, ge=1, le=MAX_COUNT, description="Most tokens to propose in a step.")
        tree: bool = Field(
            False, description="Propose the likeliest paths as a tree instead of the best chain."
        )
        window: int = Field(
            0,
            ge=0,
            le=MAX_COUNT,
            description="Keep and look through so many of the last tokens only, without a tree; 0 for all.",
        )

    options: Options

    def __init__(self, options: DrafterOptions | None = None) -> None:
        super().__init__(options)
        self.reset()

    def reset(self) -> None:
        """See :meth:`Drafter.reset`."""
        depth, window = self.options.max_depth, self.options.window
        self._recent = RecentText(window, depth) if window else None
        self._automaton = SuffixAutomaton(depth)
        self._text: _Text = self._recent or self._automaton

    def observe(self, tokens: Tensor, features: Features) -> None:
        """See :meth:`Drafter.observe`."""
        if self._recent is None:
            self._automaton.extend(tokens.tolist())
        else:
            self._recent.extend(tokens)

    def draft(self, last_token: int, budget: int, sampler: Sampler, along: Tensor | None = None) -> Draft:
        """See :meth:`Drafter.draft`."""
        match = self._text.longest_match(last_token)
        num_tokens = min(budget, self.options.num_draft_tokens)
        longest_path = self._longest_path(match)
        if self.options.tree:
            return self._tree(match, longest_path, num_tokens)
        return self._chain(match, min(longest_path, num_tokens))

    def memory(self) -> list[Held]:
        """See :meth:`Drafter.memory`."""
        if self._recent is not None:
            return self._recent.held()
        return [Held("buffer", num_bytes=self._automaton.num_bytes)]

    def memory_formula(self, context_length: int) -> dict[MemoryKind, int] | None:
        """See :meth:`Drafter.memory_formula`; there is one with a window only."""
        return None if self._recent is None else self._recent.formula(context_length)

    def within(self, num_bytes: int) -> Suffix:
        """See :meth:`Drafter.within`."""
        window = widest(num_bytes, self.options.window)
        return Suffix(self.options.model_copy(update={"window": window}))

    def _longest_path(self, match: _Match) -> int:
        if match.length == 0:
            return 0
        return int(self.options.max_spec_factor * match.length) + self.options.max_spec_offset

    def _chain(self, match: _Match, length: int) -> Draft:
        tokens: list[int] = []
        probability = 1.0
        while len(tokens) < length and match.length > 0:
            best = self._text.best_continuation(match)
            if best is None:
                break
            token, count = best
            probability = probability * count / self._text.num_followed(match)
            if probability < self.options.min_token_prob:
                break
            tokens.append(token)
            match = self._text.follow(match, token)
        return Draft.chain(tokens)

    def _tree(self, match: _Match, longest_path: int, num_nodes: int) -> Draft:
        """The likeliest nodes, best first, so that a parent always comes before its children."""
        tokens: list[int] = []
        parents: list[int] = []
        waiting: list[_Node] = []
        num_seen = 0

        def grow(match: _Match, parent: int, depth: int, probability: float) -> None:
            nonlocal num_seen
            if depth >= longest_path:
                return
            for token, through in self._likely(match, probability):
                num_seen += 1
                following = self._text.follow(match, token)
                heappush(waiting, _Node(-through, num_seen, token, parent, depth + 1, following))

        grow(match, parent=-1, depth=0, probability=1.0)
        while waiting and len(tokens) < num_nodes:
            node = heappop(waiting)
            tokens.append(node.token)
            parents.append(node.parent)
            grow(node.match, len(tokens) - 1, node.depth, -node.cost)
        return Draft(torch.tensor(tokens, dtype=torch.int64), torch.tensor(parents, dtype=torch.int64))

    def _likely(self, match: _Match, probability: float) -> Iterator[tuple[int, float]]:
        """Continuations with the probability of the path through them, likeliest first."""
        best = self._text.best_continuation(match)
        if match.length == 0 or best is None:
            return
        total = self._text.num_followed(match)
        # The latest of the most frequent ones first, as in a chain.
        continuations = sorted(
            self._text.continuations(match),
            key=lambda one: (-one[1], one[0] != best[0], one[0]),
        )
        for token, count in continuations:
            through = probability * count / total
            if through < self.options.min_token_prob:
                return
            yield token, through


class _Match(Protocol):
    """A substring of the text."""

    @property
    def length(self) -> int: ...


class _Text(Protocol):
    """A text that says what follows what in it; matches are its own."""

    def longest_match(self, token: int) -> Any: ...

    def follow(self, match: Any, token: int) -> Any: ...

    def num_followed(self, match: Any) -> int: ...

    def best_continuation(self, match: Any) -> tuple[int, int] | None: ...

    def continuations(self, match: Any) -> Iterator[tuple[int, int]]: ...


class _Node(NamedTuple):
    """A proposed token that may still enter the tree; ordered by cost, then by age."""

    cost: float
    age: int
    token: int
    parent: int
    depth: int
    match: _Match
