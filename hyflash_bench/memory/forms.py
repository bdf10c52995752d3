"""Drafters on paper: bytes held and cost of a step as functions of context length. No torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from hyflash_bench import footprint
from hyflash_bench.memory.shapes import KVDtype, ModelShape, PassCost, WeightBits, kv_row_bytes

if TYPE_CHECKING:
    from hyflash_bench.memory.shapes import Amount

__all__ = [
    "BlockForm",
    "DrafterForm",
    "EagleForm",
    "MedusaForm",
    "PlainForm",
    "Precision",
    "SmallModelForm",
    "is_exact",
]

Kind = Literal["weights", "kv", "state", "buffer"]

_SMALL_MODEL_ROWS = 512
"""Tokens by which a small model's cache grows."""
_NOTHING = PassCost(0.0, 0.0, 0.0)

# About how many operators torch starts in one call of a drafter, as its dispatcher counts them: they
# take time whatever their size. A test holds these numbers to what is counted.
_BLOCK_DRAFT, _BLOCK_DRAFT_LAYER, _BLOCK_READER, _MARKOV_TOKEN = 60, 86, 28, 5
_BLOCK_OBSERVE, _BLOCK_OBSERVE_LAYER = 24, 33
_BLOCK_SHIFT, _BLOCK_SHIFT_LAYER, _BLOCK_WRITE = 19, 30, 85
_EAGLE_TOKEN, _EAGLE_LEVEL, _EAGLE_OBSERVE = 120, 137, 65
_MEDUSA_DRAFT, _MEDUSA_TREE, _MEDUSA_OBSERVE = 25, 5, 4
_COPY_DRAFT, _COPY_OBSERVE = 62, 39


class Precision(NamedTuple):
    """Of a drafter's network: bytes of a number, and how keys and values are kept."""

    element_bytes: int
    kv_dtype: KVDtype


class DrafterForm(ABC):
    """A drafter on paper.

    Attributes:
        most_drafted: Most tokens that it proposes in one step, if it may.
        num_features: Rows of the target's hidden size that it reads of each token.
        note: What the numbers rest on where that is not a checkpoint; empty otherwise.
    """

    def __init__(self, most_drafted: int, note: str = "", num_features: int = 0) -> None:
        self.most_drafted = most_drafted
        self.note = note
        self.num_features = num_features

    @abstractmethod
    def held(self, context_length: int) -> dict[Kind, int]:
        """Bytes by kind after so many tokens; what is not held may be left out."""

    @abstractmethod
    def draft_cost(self, num_drafted: Amount, context_length: Amount) -> PassCost:
        """To propose so many tokens."""

    @abstractmethod
    def observe_cost(self, num_tokens: Amount, context_length: Amount) -> PassCost:
        """To take in so many verified tokens."""


class PlainForm(DrafterForm):
    """No network: what it does on the processor is known where a device's profile says it.

    Args:
        name: Of the routine in profiles; empty where there is nothing to do.
    """

    def __init__(self, most_drafted: int, bytes_per_token: int, note: str = "", name: str = "") -> None:
        super().__init__(most_drafted, note)
        self._bytes_per_token, self._name = bytes_per_token, name

    def held(self, context_length: int) -> dict[Kind, int]:
        """See :meth:`DrafterForm.held`."""
        return {"buffer": self._bytes_per_token * context_length}

    def draft_cost(self, num_drafted: Amount, context_length: Amount) -> PassCost:
        """See :meth:`DrafterForm.draft_cost`."""
        return PassCost(0.0, 0.0, routine=f"{self._name}.draft") if self._name else _NOTHING

    def observe_cost(self, num_tokens: Amount, context_length: Amount) -> PassCost:
        """See :meth:`DrafterForm.observe_cost`."""
        return PassCost(0.0, 0.0, num_tokens, routine=f"{self._name}.observe") if self._name else _NOTHING


def is_exact(form: DrafterForm) -> bool:
    """Whether what is held follows from a checkpoint, or is nothing; no estimate and no plan."""
    return not form.note


class SmallModelForm(DrafterForm):
    """Another model with a cache of its own."""

    def __init__(self, most_drafted: int, shape: ModelShape, bits: WeightBits, kv: KVDtype) -> None:
        super().__init__(most_drafted, "sizes of its configuration; a loaded one holds a few tables besides")
        self._shape, self._bits, self._kv = shape, bits, kv

    def held(self, context_length: int) -> dict[Kind, int]:
        """See :meth:`DrafterForm.held`."""
        rows = footprint.rounded_up(context_length + self.most_drafted, _SMALL_MODEL_ROWS)
        return {
            "weights": self._shape.weight_bytes(self._bits),
            "kv": rows * self._shape.kv_bytes_per_token(self._kv),
        }

    def draft_cost(self, num_drafted: Amount, context_length: Amount) -> PassCost:
        """See :meth:`DrafterForm.draft_cost`."""
        cost = self._shape.pass_cost(1, context_length, bits=self._bits, kv_dtype=self._kv)
        return replace(cost, num_passes=num_drafted)

    def observe_cost(self, num_tokens: Amount, context_length: Amount) -> PassCost:
        """See :meth:`DrafterForm.observe_cost`."""
        # Verified tokens that it drafted itself are in its cache already.
        return _NOTHING


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
        self._copy_keys = config.copy_window * config.copy_size

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
            num_operators=self._draft_operators(num_drafted),
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

    def _draft_operators(self, num_drafted: Amount) -> Amount:
        config = self._config
        layer = _BLOCK_DRAFT_LAYER + (_BLOCK_READER if self._num_state else 0)
        markov = _MARKOV_TOKEN * num_drafted if config.markov_rank else 0
        return _BLOCK_DRAFT + config.num_layers * layer + markov

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
            return _at_most(context_length, self._limit) if self._limit else context_length
        # W to W + C - 1 rows in turn, so their mean.
        return _at_most(context_length, footprint.window_rows(config) - (config.chunk - 1) / 2)


class EagleForm(_Trained):
    """A pass of one row for each token of a chain; one for each level of a tree.

    Args:
        levels: Of a tree; 0 for a chain.
        width: Rows of one level.
    """

    def __init__(
        self,
        most_drafted: int,
        note: str,
        precision: Precision,
        config: footprint.EagleSizes,
        levels: int = 0,
        width: int = 1,
    ) -> None:
        num_features = len(config.taps) + config.last_hidden
        super().__init__(most_drafted, note, precision, config, footprint.eagle_parts(config), num_features)
        self._config, self._levels, self._width = config, levels, width
        self._ahead = 1 + width * (levels - 1) if levels else config.num_slots

    def _working(self, context_length: int) -> footprint.Held:
        return footprint.eagle_held(
            self._config, context_length, self._element, self._ahead, kv_row_bytes=self._row
        )

    def _draft_cost(self, num_drafted: Amount, context_length: Amount) -> PassCost:
        layer = self._products("sides", "layers") + self._head
        # The first level has one row, the others as many as are gone on from.
        rows = (1 + self._width * (self._levels - 1)) / self._levels if self._levels else 1
        scores = 2 * self._queries * rows * context_length
        cached = context_length * self._row
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


def _at_most(value: Amount, limit: float) -> Amount:
    if isinstance(value, int | float):
        return min(value, limit)
    return value.clip(max=limit)
