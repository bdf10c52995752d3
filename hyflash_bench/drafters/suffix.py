"""Suffix decoding: continue the longest repeated suffix by counts.

After Oliaro et al., "SuffixDecoding" (2411.04975). Only the conversation's own text is looked
at: a tree over earlier conversations would make a result depend on the order of the prompts.
Differs from the paper's code in that the context grows with the draft, that it backs off to a
shorter one where the text ends, and that the end of the text does not count as an occurrence.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from hyflash_bench.drafters.automaton import Match, SuffixAutomaton
from hyflash_bench.drafters.base import Draft, Drafter, DrafterOptions, Features, Held
from hyflash_bench.drafters.sampler import Sampler

__all__ = ["Suffix"]


class Suffix(Drafter):
    """Continues the longest suffix seen before with the tokens that followed it most often."""

    name = "suffix"

    class Options(DrafterOptions):
        """What may be set."""

        max_depth: int = Field(64, ge=1, description="Longest suffix that is matched, in tokens.")
        min_token_prob: float = Field(
            0.1, ge=0.0, le=1.0, description="Least estimated probability of a path; ends a draft."
        )
        max_spec_factor: float = Field(
            1.0, ge=0.0, description="Longest draft as a multiple of the matched length."
        )
        max_spec_offset: int = Field(0, description="Tokens added to that length.")
        num_draft_tokens: int = Field(16, ge=1, description="Most tokens to propose in a step.")
        tree: bool = Field(
            False, description="Propose the likeliest paths as a tree instead of the best chain."
        )

    options: Options

    def __init__(self, options: DrafterOptions | None = None) -> None:
        super().__init__(options)
        self.reset()

    def reset(self) -> None:
        """See :meth:`Drafter.reset`."""
        self._automaton = SuffixAutomaton(self.options.max_depth)

    def observe(self, tokens: Tensor, features: Features) -> None:
        """See :meth:`Drafter.observe`."""
        self._automaton.extend(tokens.tolist())

    def draft(self, last_token: int, budget: int, sampler: Sampler, along: Tensor | None = None) -> Draft:
        """See :meth:`Drafter.draft`."""
        match = self._automaton.longest_match(last_token)
        num_tokens = min(budget, self.options.num_draft_tokens)
        longest_path = self._longest_path(match)
        if self.options.tree:
            return self._tree(match, longest_path, num_tokens)
        return self._chain(match, min(longest_path, num_tokens))

    def memory(self) -> list[Held]:
        """See :meth:`Drafter.memory`."""
        return [Held("buffer", num_bytes=self._automaton.num_bytes)]

    def _longest_path(self, match: Match) -> int:
        if match.length == 0:
            return 0
        return int(self.options.max_spec_factor * match.length) + self.options.max_spec_offset

    def _chain(self, match: Match, length: int) -> Draft:
        tokens: list[int] = []
        probability = 1.0
        while len(tokens) < length and match.length > 0:
            best = self._automaton.best_continuation(match)
            if best is None:
                break
            token, count = best
            probability = probability * count / self._automaton.num_followed(match)
            if probability < self.options.min_token_prob:
                break
            tokens.append(token)
            match = self._automaton.follow(match, token)
        return Draft.chain(tokens)

    def _tree(self, match: Match, longest_path: int, num_nodes: int) -> Draft:
        """The likeliest nodes, best first, so that a parent always comes before its children."""
        tokens: list[int] = []
        parents: list[int] = []
        waiting: list[_Node] = []
        num_seen = 0

        def grow(match: Match, parent: int, depth: int, probability: float) -> None:
            nonlocal num_seen
            if depth >= longest_path:
                return
            for token, through in self._likely(match, probability):
                num_seen += 1
                following = self._automaton.follow(match, token)
                heappush(waiting, _Node(-through, num_seen, token, parent, depth + 1, following))

        grow(match, parent=-1, depth=0, probability=1.0)
        while waiting and len(tokens) < num_nodes:
            node = heappop(waiting)
            tokens.append(node.token)
            parents.append(node.parent)
            grow(node.match, len(tokens) - 1, node.depth, -node.cost)
        return Draft(torch.tensor(tokens, dtype=torch.int64), torch.tensor(parents, dtype=torch.int64))

    def _likely(self, match: Match, probability: float) -> Iterator[tuple[int, float]]:
        """Continuations with the probability of the path through them, likeliest first."""
        best = self._automaton.best_continuation(match)
        if match.length == 0 or best is None:
            return
        total = self._automaton.num_followed(match)
        # The latest of the most frequent ones first, as in a chain.
        continuations = sorted(
            self._automaton.continuations(match),
            key=lambda one: (-one[1], one[0] != best[0], one[0]),
        )
        for token, count in continuations:
            through = probability * count / total
            if through < self.options.min_token_prob:
                return
            yield token, through


class _Node(NamedTuple):
    """A proposed token that may still enter the tree; ordered by cost, then by age."""

    cost: float
    age: int
    token: int
    parent: int
    depth: int
    match: Match
