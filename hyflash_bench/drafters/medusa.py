"""Medusa-style heads propose several tokens from one hidden state (Cai et al., 2401.10774).

Heads do not know each other's tokens, so every path through their likeliest tokens costs the same
single pass: a tree of them is cheap to propose. Which paths to take is fixed beforehand by a rule.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from heapq import heappop, heappush
from pathlib import Path as FilePath

import torch
from pydantic import Field
from torch import Tensor

from hyflash_bench.data import expanded
from hyflash_bench.drafters.base import Draft, Features, Held, MemoryKind
from hyflash_bench.drafters.networks.copying import with_votes
from hyflash_bench.drafters.networks.medusa import MedusaNetwork
from hyflash_bench.drafters.networks.public_medusa import PublicMedusa
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.drafters.trained import TrainedDrafter, TrainedOptions
from hyflash_bench.errors import DrafterError
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
        tree_paths: str = Field(
            "",
            description="JSON file with the paths of the tree, as Medusa's authors list their choices: "
            "[[0], [0, 0], [1], ...], the rank of each head's token; empty for paths by a rule.",
        )

    options: Options
    network: MedusaNetwork | PublicMedusa
    _row: Tensor
    _tree: Tensor

    def reset(self) -> None:
        """See :meth:`Drafter.reset`."""
        weight = self.network.weight
        self._row = weight.new_zeros(1, weight.shape[-1])
        self._has_row = False
        self._copies = self._new_copies()
        config = self.network.config
        if self.options.tree and self.options.tree_paths:
            file = expanded(self.options.tree_paths)
            self._tree = _static_tree(file, config.num_slots, config.draft_vocab_size)
        else:
            self._tree = _fixed_tree(self._num_nodes, config.num_slots, config.draft_vocab_size)

    @torch.inference_mode()
    def observe(self, tokens: Tensor, features: Features) -> None:
        """See :meth:`Drafter.observe`."""
        assert features.last_hidden is not None
        if len(tokens) > 0:
            self._row.copy_(features.last_hidden[-1:])
            if self._copies is not None:
                self._copies.extend(tokens, features.last_hidden)
            self._has_row = True

    @torch.inference_mode()
    def draft(self, last_token: int, budget: int, sampler: Sampler, along: Tensor | None = None) -> Draft:
        """See :meth:`Drafter.draft`."""
        if not self._has_row:
            return Draft.empty()
        if self.options.tree:
            return self._draft_tree(last_token, budget)
        length = self._limit(budget) if along is None else min(self._limit(budget), len(along))
        if length == 0:
            return Draft.empty()
        return self._from_slots(self._logits(last_token, length), sampler, along)

    def memory(self) -> list[Held]:
        """See :meth:`Drafter.memory`."""
        held = [Held("state", self._row), Held("buffer", self._tree)]
        return [*self._weights(), *held, *self._held_copies()]

    def memory_formula(self, context_length: int) -> dict[MemoryKind, int]:
        """A row of the target's width, and the tree's table; neither grows."""
        held = medusa_held(self.network.config, self._row.element_size(), self._tree.shape[1])
        return super().memory_formula(context_length) | held

    @property
    def _num_nodes(self) -> int:
        """Of the tree; none for a chain."""
        most = self.options.num_draft_tokens or self.options.tree_nodes
        return min(self.options.tree_nodes, most) if self.options.tree else 0

    def _logits(self, last_token: int, length: int) -> Tensor:
        """``[length, V_d]`` of the first slots."""
        logits = self.network.logits(self._row, length)[0]
        votes = self._votes(self._anchor(last_token))
        return logits if votes is None else with_votes(logits, votes[:length])

    def _draft_tree(self, last_token: int, budget: int) -> Draft:
        depths, ranks, parents = self._tree[:, :budget]
        network = self.network
        logits = self._logits(last_token, int(depths.max()) + 1)
        scores, places = logits.topk(int(ranks.max()) + 1)
        self._require_numbers(scores)
        return Draft(network.head.draft_ids[places].cpu()[depths, ranks], parents.clone())


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


def _static_tree(file: FilePath, num_heads: int, num_ranks: int) -> Tensor:
    """Paths through the heads' ranked tokens, as a file lists them; see :func:`_fixed_tree`.

    Shorter paths come first, and among them those of better ranks, so that a small budget cuts the
    least likely ones.

    Raises:
        DrafterError: Not a tree, or one that needs more heads or tokens than there are.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DrafterError(
            f"tree_paths: {file} cannot be read: {error}. Give a JSON list of paths."
        ) from None
    problem = _problem_of(found, num_heads, num_ranks)
    if problem is not None:
        raise DrafterError(f"tree_paths: {file}: {problem}. Write for example [[0], [0, 0], [1]].")
    paths = sorted((tuple(path) for path in found), key=lambda path: (len(path), sum(path), path))
    places: dict[Path, int] = {(): -1} | {path: place for place, path in enumerate(paths)}
    nodes = [(len(path) - 1, path[-1], places[path[:-1]]) for path in paths]
    return torch.tensor(nodes, dtype=torch.int64).t().contiguous()


def _problem_of(found: object, num_heads: int, num_ranks: int) -> str | None:
    """What keeps a list of paths from being a tree."""
    if not isinstance(found, list) or not found or not all(isinstance(path, list) and path for path in found):
        return "it must be a list of paths, each a list of ranks"
    seen: set[Sequence[int]] = {()}
    for path in sorted(found, key=len):
        problem = None
        if any(isinstance(rank, bool) or not isinstance(rank, int) or rank < 0 for rank in path):
            problem = "must consist of ranks from 0 up"
        elif len(path) > num_heads:
            problem = f"has {len(path)} ranks, but there are {num_heads} heads"
        elif max(path) >= num_ranks:
            problem = f"has rank {max(path)}, but there are {num_ranks} tokens"
        elif tuple(path) in seen:
            problem = "is there twice"
        elif tuple(path[:-1]) not in seen:
            problem = f"goes on from {path[:-1]}, which is not among them"
        if problem is not None:
            return f"{path} {problem}"
        seen.add(tuple(path))
    return None
