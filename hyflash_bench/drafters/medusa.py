"""Medusa-style heads propose several tokens from one hidden state (Cai et al., 2401.10774).

Heads do not know each other's tokens, so every path through their likeliest tokens costs the same
single pass: a tree of them is cheap to propose. Which paths to take is fixed beforehand by a rule.
"""

from __future__ import annotations

from heapq import heappop, heappush

import torch
from pydantic import Field
from torch import Tensor

from hyflash_bench.drafters.base import Draft, Features, Held, MemoryKind
from hyflash_bench.drafters.networks.medusa import MedusaNetwork
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.drafters.trained import TrainedDrafter, TrainedOptions
from hyflash_bench.footprint import medusa_held

__all__ = ["Medusa"]

Path = tuple[int, ...]


class Medusa(TrainedDrafter):
    """Heads on the target's last hidden state, one for each slot; chain or fixed tree.

    The state is that hidden state, a single row. A tree is the same deterministic proposal whatever
    the sampling; a chain is drawn from the heads' distributions when the target samples.
    """

    name = "medusa"
    network_kind = "medusa"
    default_checkpoint = "medusa"

    class Options(TrainedOptions):
        """What may be set."""

        tree: bool = Field(False, description="Propose a tree of likely tokens instead of a chain.")
        tree_nodes: int = Field(16, ge=1, le=256, description="Most tokens in a tree.")

    options: Options
    network: MedusaNetwork
    _row: Tensor
    _tree: Tensor

    def reset(self) -> None:
        """See :meth:`Drafter.reset`."""
        gain = self.network.head.norm.weight
        self._row = gain.new_zeros(1, len(gain))
        self._has_row = False
        config = self.network.config
        self._tree = _fixed_tree(self._num_nodes, config.num_slots, config.draft_vocab_size)

    @torch.inference_mode()
    def observe(self, tokens: Tensor, features: Features) -> None:
        """See :meth:`Drafter.observe`."""
        assert features.last_hidden is not None
        if len(tokens) > 0:
            self._row.copy_(features.last_hidden[-1:])
            self._has_row = True

    @torch.inference_mode()
    def draft(self, last_token: int, budget: int, sampler: Sampler, along: Tensor | None = None) -> Draft:
        """See :meth:`Drafter.draft`."""
        if not self._has_row:
            return Draft.empty()
        if self.options.tree:
            return self._draft_tree(budget)
        length = self._limit(budget) if along is None else min(self._limit(budget), len(along))
        if length == 0:
            return Draft.empty()
        head = self.network.head
        logits = self.network.logits(self._row, length)[0]
        if sampler.is_greedy:
            return Draft(head.draft_ids[logits.argmax(-1)].cpu())
        rows = head.spread(sampler.probabilities(logits))
        if along is not None:
            return Draft(along[:length], None, rows)
        return Draft.chain([sampler.draw(row) for row in rows.cpu()], rows)

    def memory(self) -> list[Held]:
        """See :meth:`Drafter.memory`."""
        return [*self._weights(), Held("state", self._row), Held("buffer", self._tree)]

    def memory_formula(self, context_length: int) -> dict[MemoryKind, int]:
        """A row of the target's width, and the tree's table; neither grows."""
        held = medusa_held(self.network.config, self._row.element_size(), self._tree.shape[1])
        return super().memory_formula(context_length) | held

    @property
    def _num_nodes(self) -> int:
        """Of the tree; none for a chain."""
        most = self.options.num_draft_tokens or self.options.tree_nodes
        return min(self.options.tree_nodes, most) if self.options.tree else 0

    def _draft_tree(self, budget: int) -> Draft:
        depths, ranks, parents = self._tree[:, :budget]
        network = self.network
        logits = network.logits(self._row, int(depths.max()) + 1)[0]
        likeliest = network.head.draft_ids[logits.topk(int(ranks.max()) + 1).indices].cpu()
        return Draft(likeliest[depths, ranks], parents.clone())


def _fixed_tree(num_nodes: int, num_heads: int, num_ranks: int) -> Tensor:
    """The most promising paths through the heads' ranked tokens, best first.

    The rule: a head's first token is right half the time, its token of rank r (from 0)
    ``1 / (1 + r)^2`` as often, and a path's promise is the product over its tokens. Ties go to the
    earlier ranks.

    Returns:
        ``[3, num_nodes]`` int64: head, rank and parent (-1 for none) of each node; fewer nodes if
        there are not as many paths.
    """
    nodes: list[tuple[int, int, int]] = []
    open_paths: list[tuple[float, Path, int]] = [(-0.5, (0,), -1)]
    while open_paths and len(nodes) < num_nodes:
        negative, path, parent = heappop(open_paths)
        depth, rank = len(path) - 1, path[-1]
        nodes.append((depth, rank, parent))
        if rank + 1 < num_ranks:
            sibling = negative * ((1 + rank) / (2 + rank)) ** 2
            heappush(open_paths, (sibling, (*path[:-1], rank + 1), parent))
        if depth + 1 < num_heads:
            heappush(open_paths, (negative / 2, (*path, 0), len(nodes) - 1))
    return torch.tensor(nodes, dtype=torch.int64).reshape(-1, 3).t().contiguous()
