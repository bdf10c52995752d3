"""An EAGLE-3-style drafter: one layer that runs ahead token by token (Li et al., 2503.01840).

It keeps keys and values of verified pairs, made from the target's own features. What it computes
while running ahead stands behind them and is written over by the next draft: accepted tokens are
taken in again with their true features. As a tree (EAGLE-2, 2406.16858) it goes on from the likeliest
nodes of each level and proposes the likeliest of all.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from hyflash_bench.drafters.base import Draft, Features, Held, MemoryKind
from hyflash_bench.drafters.draft_tree import DraftTree
from hyflash_bench.drafters.networks.copying import with_votes
from hyflash_bench.drafters.networks.eagle import EagleNetwork
from hyflash_bench.drafters.networks.public_eagle import PublicEagle
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.drafters.trained import TrainedDrafter, TrainedOptions
from hyflash_bench.footprint import eagle_held, eagle_rows, kv_row_bytes
from hyflash_bench.kv import KVRows
from hyflash_bench.spec.base import MAX_ROWS

__all__ = ["Eagle"]


class Eagle(TrainedDrafter):
    """One autoregressive layer on the target's features; chain or dynamic tree.

    A tree is a deterministic proposal whatever the sampling; a chain is drawn from the network's
    distributions when the target samples.
    """

    name = "eagle"
    network_kind = "eagle"
    default_checkpoint = "eagle"

    class Options(TrainedOptions):
        """What may be set."""

        tree: bool = Field(False, description="Propose a tree of likely tokens instead of a chain.")
        top_k: int = Field(
            4, ge=1, le=32, description="Nodes of a level to go on from, and children of each."
        )
        depth: int = Field(
            0, ge=0, le=32, description="Levels of a tree; 0 for as many as it was trained for."
        )
        total_tokens: int = Field(16, ge=1, le=256, description="Most tokens in a tree.")
        window: int = Field(
            0, ge=0, le=MAX_ROWS, description="Attend to so many of the last verified pairs only; 0 for all."
        )

    options: Options
    network: EagleNetwork | PublicEagle
    _cache: KVRows
    _last: Tensor

    def reset(self) -> None:
        """See :meth:`Drafter.reset`."""
        gain, target = self.network.mlp_norm.weight, self.network.config.target
        self._num_observed = self._num_held = 0
        self._copies = self._new_copies()
        self._last = gain.new_zeros(1, len(gain))
        self._cache = KVRows(
            num_layers=1,
            num_kv_heads=target.num_kv_heads,
            head_dim=target.head_dim,
            num_slots=self._capacity,
            dtype=gain.dtype,
            device=gain.device,
            kv_dtype=self.options.kv_dtype,
        )

    @torch.inference_mode()
    def observe(self, tokens: Tensor, features: Features) -> None:
        """See :meth:`Drafter.observe`.

        The pair of the last row waits for its token.
        """
        if len(tokens) == 0:
            return
        g = self.network.fuse(features)
        if self._num_observed > 0:
            following, before = tokens, torch.cat([self._last, g[:-1]])
        else:
            following, before = tokens[1:], g[:-1]
        if self.options.window:  # what no later token will see is not kept
            following, before = following[-self.options.window :], before[-self.options.window :]
        self._num_observed += len(tokens)
        self._make_room(len(following))
        if len(following) > 0:
            pairs = self.network.pair(following, before)
            tables = self._tables(self._num_pairs - len(following), len(following))
            self._cache.write(0, self._num_held, *self.network.keys_values(pairs, tables))
            self._num_held += len(following)
        self._last.copy_(g[-1:])
        if self._copies is not None:
            self._copies.extend(tokens, g)

    @torch.inference_mode()
    def draft(self, last_token: int, budget: int, sampler: Sampler, along: Tensor | None = None) -> Draft:
        """See :meth:`Drafter.draft`."""
        if self._num_observed == 0:
            return Draft.empty()
        if self.options.tree:
            return self._draft_tree(last_token, budget)
        length = self._limit(budget)
        if sampler.is_greedy:
            return self._likeliest(last_token, length)
        if along is None:
            return self._drawn(last_token, length, sampler)
        return self._scored(last_token, along[:length], sampler)

    def memory(self) -> list[Held]:
        """See :meth:`Drafter.memory`."""
        kv = [Held("kv", tensor) for tensor in self._cache.tensors()]
        return [*self._weights(), *kv, Held("state", self._last), *self._held_copies()]

    def memory_formula(self, context_length: int) -> dict[MemoryKind, int]:
        """Blocks of keys and values with room for running ahead, and the last row's features."""
        config, target = self.network.config, self.network.config.target
        row_bytes = kv_row_bytes(target.num_kv_heads, target.head_dim, self._cache.kv_dtype)
        size = self._last.element_size()
        held = eagle_held(
            config,
            context_length,
            size,
            self._most_ahead,
            limit=self.options.window,
            kv_row_bytes=row_bytes,
        )
        return super().memory_formula(context_length) | held

    def within(self, num_bytes: int) -> Eagle:
        """See :meth:`Drafter.within`."""
        return self._shrunk(num_bytes)

    # A chain

    def _likeliest(self, last_token: int, length: int) -> Draft:
        tokens, g, confidence = [last_token], self._last, 1.0
        tops: list[Tensor] = []
        votes = self._votes(self._anchor(last_token))
        for slot in range(length):
            g = self._run_ahead(tokens[-1:], g, slot, slot)
            logits = self._logits(g, votes, slot)[0]
            top, best = logits.max(-1)
            tops.append(top)
            confidence = self._confidence(confidence, logits, best)
            if confidence < self.options.min_confidence:
                break
            tokens.append(int(self.network.head.draft_ids[best]))
        if tops:
            self._require_numbers(torch.stack(tops))
        return Draft.chain(tokens[1:])

    def _drawn(self, last_token: int, length: int, sampler: Sampler) -> Draft:
        tokens, g = [last_token], self._last
        rows: list[Tensor] = []
        votes = self._votes(self._anchor(last_token))
        for slot in range(length):
            g = self._run_ahead(tokens[-1:], g, slot, slot)
            rows.append(self._probabilities(self._logits(g, votes, slot), sampler))
            tokens.append(sampler.draw(rows[-1][0].cpu()))
        return Draft.chain(tokens[1:], torch.cat(rows))

    def _scored(self, last_token: int, along: Tensor, sampler: Sampler) -> Draft:
        g, votes = self._last, self._votes(self._anchor(last_token))
        logits: list[Tensor] = []
        for slot, token in enumerate([last_token, *along.tolist()][: len(along)]):
            g = self._run_ahead([token], g, slot, slot)
            logits.append(self._logits(g, votes, slot))
        if not logits:
            return Draft.empty()
        return Draft(along, None, self._probabilities(torch.cat(logits), sampler))

    def _logits(self, hidden: Tensor, votes: Tensor | None, slot: int) -> Tensor:
        """``[R, V_d]`` of R rows that all stand at one slot."""
        logits: Tensor = self.network.head(hidden)
        # No token is copied from beyond the slots that the network has.
        return logits if votes is None or slot >= len(votes) else with_votes(logits, votes[slot])

    def _probabilities(self, logits: Tensor, sampler: Sampler) -> Tensor:
        return self.network.head.spread(sampler.probabilities(logits))

    # A tree

    def _draft_tree(self, last_token: int, budget: int) -> Draft:
        tree = DraftTree()
        children = min(self.options.top_k, self.network.config.draft_vocab_size)
        nodes, g = [-1], self._run_ahead([last_token], self._last, 0, 0)
        votes = self._votes(self._anchor(last_token))
        for level in range(1, self._depth + 1):
            logits = self._logits(g, votes, level - 1)
            scores, found = logits.float().log_softmax(-1).topk(children)
            self._require_numbers(scores)
            tree.add(nodes, self.network.head.draft_ids[found].tolist(), scores.tolist())
            if level == self._depth:
                break
            parents, nodes = nodes, tree.frontier(self.options.top_k)
            places = [parents.index(tree.parents[node]) for node in nodes]
            sees = tree.enter(nodes)
            tokens = [tree.tokens[node] for node in nodes]
            g = self._run_ahead(tokens, g[places], level, tree.num_entered - len(nodes) + 1, sees)
        return tree.best(min(budget, self._most_nodes))

    @property
    def _depth(self) -> int:
        return self.options.depth or self.network.config.num_slots

    @property
    def _most_nodes(self) -> int:
        return min(self.options.total_tokens, self.options.num_draft_tokens or self.options.total_tokens)

    # Running ahead

    def _run_ahead(
        self, tokens: Sequence[int], g: Tensor, step: int, offset: int, sees: Tensor | None = None
    ) -> Tensor:
        """Hidden states ``[R, d]`` after R tokens of one level.

        Args:
            tokens: R of them.
            g: ``[R, d]`` of the rows before them.
            step: Tokens between the last committed one and these.
            offset: Rows that this draft has put behind the verified ones.
            sees: ``[R, offset - 1 + R]``, which of the rows that the draft puts behind the first
                one each token sees; None for all.
        """
        network, start = self.network, self._num_held + offset
        pairs = network.pair(torch.tensor(tokens), g)
        tables = self._tables(self._num_pairs + step, 1)
        self._cache.write(0, start, *network.keys_values(pairs, tables))
        keys, values = self._cache.read(0, slice(self._num_held - self._num_seen, start + len(tokens)))
        num_kv_heads, _, head_dim = keys.shape
        queries = network.queries(pairs, tables).view(len(tokens), num_kv_heads, -1, head_dim)
        group_size = queries.shape[2]
        # Heads that share keys stand beside the rows, so that keys are not repeated.
        beside = queries.transpose(0, 1).reshape(1, num_kv_heads, -1, head_dim).to(keys.dtype)
        mask = None if sees is None else self._mask(sees, group_size)
        out = functional.scaled_dot_product_attention(beside, keys[None], values[None], mask)
        by_row = out.to(g.dtype).view(num_kv_heads, len(tokens), group_size, head_dim).transpose(0, 1)
        return network.settle(g, pairs, by_row.flatten(1))

    def _mask(self, sees: Tensor, group_size: int) -> Tensor:
        """Every row sees verified pairs and the first one ahead; ``[R * group_size, keys]``."""
        known = sees.new_ones(len(sees), self._num_seen + 1)
        return torch.cat([known, sees], dim=1).repeat_interleave(group_size, 0).to(self._last.device)

    def _tables(self, start: int, count: int) -> tuple[Tensor, Tensor]:
        return self.network.rotary(torch.arange(start, start + count))

    # The cache

    @property
    def _num_pairs(self) -> int:
        """Verified pairs; the next row is that of the last one, which waits for its token."""
        return max(self._num_observed - 1, 0)

    @property
    def _most_ahead(self) -> int:
        """Rows that a draft puts behind the verified ones."""
        if self.options.tree:
            return 1 + self.options.top_k * (self._depth - 1)
        return self.network.config.num_slots

    @property
    def _num_seen(self) -> int:
        """Verified pairs that are attended to, the last of those that are held."""
        return min(self._num_held, self.options.window or self._num_held)

    @property
    def _capacity(self) -> int:
        return eagle_rows(self._num_observed, self._most_ahead, self.options.window)

    def _make_room(self, num_rows: int) -> None:
        """For rows that arrive and those that a draft puts behind them."""
        if self._num_held + num_rows + self._most_ahead <= self._cache.num_slots:
            return
        window = self.options.window
        kept = min(self._num_held, window - num_rows) if window else self._num_held
        self._cache.resize(self._capacity, slice(self._num_held - kept, self._num_held))
        self._num_held = kept
