"""A tree of drafted tokens that grows level by level from its likeliest nodes (EAGLE-2, 2406.16858)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hyflash_bench.drafters.base import Draft

__all__ = ["DraftTree"]


class DraftTree:
    """Nodes in the order of levels: tokens, parents and the log-probabilities of their paths."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self._scores: list[float] = []
        self._level = range(0)
        self._entered: dict[int, list[int]] = {}

    @property
    def num_entered(self) -> int:
        """Nodes that were gone on from."""
        return len(self._entered)

    def add(self, parents: Sequence[int], tokens: list[list[int]], scores: list[list[float]]) -> None:
        """A level: the children of each parent, the likeliest first."""
        begin = len(self.tokens)
        for parent, row, values in zip(parents, tokens, scores, strict=True):
            base = self._scores[parent] if parent >= 0 else 0.0
            self.tokens += row
            self.parents += [parent] * len(row)
            self._scores += [base + value for value in values]
        self._level = range(begin, len(self.tokens))

    def frontier(self, count: int) -> list[int]:
        """The likeliest nodes of the last level."""
        return sorted(self._level, key=lambda node: -self._scores[node])[:count]

    def enter(self, nodes: Sequence[int]) -> Tensor:
        """Go on from some nodes: which of those entered so far each sees, ``[R, entered]``."""
        first = len(self._entered)
        for place, node in enumerate(nodes, start=first):
            self._entered[node] = [*self._entered.get(self.parents[node], []), place]
        sees = torch.zeros(len(nodes), len(self._entered), dtype=torch.bool)
        for row, node in zip(sees, nodes, strict=True):
            row[self._entered[node]] = True
        return sees

    def best(self, count: int) -> Draft:
        """The likeliest nodes of all; a parent is never less likely than its child."""
        chosen = sorted(sorted(range(len(self.tokens)), key=lambda node: -self._scores[node])[:count])
        places = {node: place for place, node in enumerate(chosen)} | {-1: -1}
        tokens = torch.tensor([self.tokens[node] for node in chosen])
        return Draft(tokens, torch.tensor([places[self.parents[node]] for node in chosen]))
