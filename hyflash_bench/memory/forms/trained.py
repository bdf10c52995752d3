"""Drafters that are trained for a target, from the sizes of their networks."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hyflash_bench import footprint
from hyflash_bench.memory.forms.base import DrafterForm, Kind, Precision, at_most
from hyflash_bench.memory.shapes import PassCost, kv_row_bytes

if TYPE_CHECKING:
    from hyflash_bench.memory.shapes import Amount

__all__ = ["BlockForm", "EagleForm", "MedusaForm"]

# About how many operators torch starts in one call of a drafter, as its dispatcher counts them: they
# take time whatever their size. What the compiled kernels do in one piece counts as none. A test holds
# these numbers to what is counted.
_BLOCK_DRAFT = 28
_BLOCK_OBSERVE, _BLOCK_OBSERVE_LAYER = 24, 33
_BLOCK_SHIFT, _BLOCK_SHIFT_LAYER, _BLOCK_WRITE = 19, 30, 85
_EAGLE_TOKEN, _EAGLE_LEVEL, _EAGLE_OBSERVE = 121, 139, 65
_MEDUSA_DRAFT, _MEDUSA_TREE, _MEDUSA_OBSERVE = 27, 5, 4
_COPY_DRAFT, _COPY_OBSERVE = 8, 39


class _Trained(DrafterForm):
    """A network: parts of it, and bytes of its numbers."""

    def __init__(
        self,
        most_drafted: int,
        note: str,
        precision: Precision,
        config: footprint.NetworkSizes,
        parts: dict[str, int],
        num_features: int,
    ) -> None:
        super().__init__(most_drafted, note, num_features)
        self._parts, self._element = parts, precision.element_bytes
        self._weights = footprint.weight_bytes(config, parts, self._element)
        self._head = config.draft_vocab_size * config.target.hidden_size
        self._row = kv_row_bytes(config.target.num_kv_heads, config.target.head_dim, precision.kv_dtype)
        self._queries = config.target.num_heads * config.target.head_dim
        self._copy_keys = (config.copy_window + config.recall_rows) * config.copy_size

    def held(self, context_length: int) -> dict[Kind, int]:
        """See :meth:`DrafterForm.held`."""
        return {"weights": self._weights, **self._working(context_length)}

    @abstractmethod
    def _working(self, context_length: int) -> footprint.Held: ...

    def draft_cost(self, num_drafted: Amount, context_length: Amount) -> PassCost:
        """See :meth:`DrafterForm.draft_cost`; looking for what to copy is done once a draft."""
        cost = self._draft_cost(num_drafted, context_length)
        if not self._copy_keys:
            return cost
        once = 1 / np.maximum(cost.num_passes, 1.0)
        looked_at = self._parts["copying"] + self._copy_keys
        return replace(
            cost,
            flops=cost.flops + 2 * looked_at * once,
            num_bytes=cost.num_bytes + self._element * looked_at * once,
            num_operators=cost.num_operators + _COPY_DRAFT * once,
        )

    def observe_cost(self, num_tokens: Amount, context_length: Amount) -> PassCost:
        """See :meth:`DrafterForm.observe_cost`."""
        taken, operators = self._products("fuse", "sides", "copying"), self._observe_operators(num_tokens)
        operators += _COPY_OBSERVE if self._copy_keys else 0
        return PassCost(2 * num_tokens * taken, self._element * taken, num_operators=operators)

    @abstractmethod
    def _draft_cost(self, num_drafted: Amount, context_length: Amount) -> PassCost: ...

    @abstractmethod
    def _observe_operators(self, num_tokens: Amount) -> Amount: ...

    def _products(self, *parts: str) -> int:
        return sum(self._parts.get(name, 0) for name in parts)


class BlockForm(_Trained):
    """All slots in one pass.

    Args:
        limit: With full attention, so many of the last rows only; 0 for all.
    """

    def __init__(
        self, most_drafted: int, note: str, precision: Precision, config: footprint.BlockSizes, limit: int
    ) -> None:
        num_features = len(config.taps) + config.last_hidden
        super().__init__(most_drafted, note, precision, config, footprint.block_parts(config), num_features)
        self._config, self._limit = config, limit

    def _working(self, context_length: int) -> footprint.Held:
        return footprint.block_held(
            self._config, context_length, self._element, limit=self._limit, kv_row_bytes=self._row
        )

    def _draft_cost(self, num_drafted: Amount, context_length: Amount) -> PassCost:
        config, slots = self._config, self._config.num_slots
        keys = self._attended(context_length) + slots
        # The input is made of one row: what all slots share, and a correction for each.
        single, block = self._products("input"), self._products("sides", "layers", "readers")
        scores = 2 * config.num_layers * self._queries * slots * keys
        # The correction looks one row of its table up and multiplies with the other half.
        markov = config.markov_rank * config.draft_vocab_size
        cached = config.num_layers * (keys + slots) * self._row
        return PassCost(
            2 * (single + slots * (block + self._num_state) + num_drafted * (self._head + markov) + scores),
            self._element * (single + block + self._head + markov)
            + footprint.STATE_BYTES * self._num_state
            + cached,
            num_layers=config.num_layers,
            score_flops=2 * scores,
            cache_bytes=cached,
            num_operators=_BLOCK_DRAFT,
        )

    def observe_cost(self, num_tokens: Amount, context_length: Amount) -> PassCost:
        """See :meth:`DrafterForm.observe_cost`.

        Memories are written when a chunk is full, so a token pays its share of one writing.
        """
        cost, written = super().observe_cost(num_tokens, context_length), self._products("writers")
        reads = self._element * written + 2 * footprint.STATE_BYTES * self._num_state
        return replace(
            cost,
            flops=cost.flops + 2 * num_tokens * written,
            num_bytes=cost.num_bytes + reads * num_tokens / self._config.chunk,
        )

    @property
    def _num_state(self) -> int:
        """Numbers of the memories that a draft reads: each layer reads one, a shared one again."""
        config = self._config
        if config.memory == "none":
            return 0
        return config.num_layers * config.memory_heads * config.memory_key_dim * config.memory_value_dim

    def _observe_operators(self, num_tokens: Amount) -> Amount:
        config = self._config
        each = _BLOCK_OBSERVE + config.num_layers * _BLOCK_OBSERVE_LAYER
        if config.attention == "full":
            return each
        shifts = _BLOCK_SHIFT + config.num_layers * _BLOCK_SHIFT_LAYER if config.attention == "window" else 0
        states = (1 if config.shared_memory else config.num_layers) if self._num_state else 0
        return each + (shifts + states * _BLOCK_WRITE) * num_tokens / config.chunk

    def _attended(self, context_length: Amount) -> Amount:
        config = self._config
        if config.attention == "full":
            return at_most(context_length, self._limit) if self._limit else context_length
        # W to W + C - 1 rows in turn, so their mean.
        return at_most(context_length, footprint.window_rows(config) - (config.chunk - 1) / 2)


class EagleForm(_Trained):
    """A pass of one row for each token of a chain; one for each level of a tree.

    Args:
        levels: Of a tree; 0 for a chain.
        width: Rows of one level.
        limit: So many of the last pairs only; 0 for all.
    """

    def __init__(
        self,
        most_drafted: int,
        note: str,
        precision: Precision,
        config: footprint.EagleSizes,
        levels: int = 0,
        width: int = 1,
        limit: int = 0,
    ) -> None:
        num_features = len(config.taps) + config.last_hidden
        super().__init__(most_drafted, note, precision, config, footprint.eagle_parts(config), num_features)
        self._config, self._levels, self._width, self._limit = config, levels, width, limit
        self._ahead = 1 + width * (levels - 1) if levels else config.num_slots

    def _working(self, context_length: int) -> footprint.Held:
        return footprint.eagle_held(
            self._config,
            context_length,
            self._element,
            self._ahead,
            limit=self._limit,
            kv_row_bytes=self._row,
        )

    def _draft_cost(self, num_drafted: Amount, context_length: Amount) -> PassCost:
        layer = self._products("sides", "layers") + self._head
        # The first level has one row, the others as many as are gone on from.
        rows = (1 + self._width * (self._levels - 1)) / self._levels if self._levels else 1
        keys = at_most(context_length, self._limit) if self._limit else context_length
        scores = 2 * self._queries * rows * keys
        cached = keys * self._row
        return PassCost(
            2 * (rows * layer + scores),
            self._element * layer + cached,
            num_passes=self._levels or num_drafted,
            score_flops=2 * scores,
            cache_bytes=cached,
            num_operators=_EAGLE_LEVEL if self._levels else _EAGLE_TOKEN,
        )

    def _observe_operators(self, num_tokens: Amount) -> Amount:
        return _EAGLE_OBSERVE


class MedusaForm(_Trained):
    """Heads on one row.

    Args:
        nodes: Of the tree; 0 for a chain.
    """

    def __init__(
        self, most_drafted: int, note: str, precision: Precision, config: footprint.MedusaSizes, nodes: int
    ) -> None:
        super().__init__(most_drafted, note, precision, config, footprint.medusa_parts(config), 1)
        self._config, self._nodes = config, nodes

    def _working(self, context_length: int) -> footprint.Held:
        return footprint.medusa_held(self._config, self._element, self._nodes)

    def _draft_cost(self, num_drafted: Amount, context_length: Amount) -> PassCost:
        asked = min(self._config.num_slots, self._nodes) if self._nodes else num_drafted
        heads = self._parts["layers"] / self._config.num_slots * asked
        return PassCost(
            2 * (heads + asked * self._head),
            self._element * (heads + self._head),
            num_layers=self._config.hidden_layers,
            num_operators=_MEDUSA_DRAFT + (_MEDUSA_TREE if self._nodes else 0),
        )

    def _observe_operators(self, num_tokens: Amount) -> Amount:
        return _MEDUSA_OBSERVE
