"""Drafters on paper: bytes held and cost of a step as functions of context length. No torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, NamedTuple

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
]

Kind = Literal["weights", "kv", "state", "buffer"]

_SMALL_MODEL_ROWS = 512
"""Tokens by which a small model's cache grows."""
_NOTHING = PassCost(0.0, 0.0, 0.0)


class Precision(NamedTuple):
    """Of a drafter's network: bytes of a number, and how keys and values are kept."""

    element_bytes: int
    kv_dtype: KVDtype


class DrafterForm(ABC):
    """A drafter on paper.

    Attributes:
        most_drafted: Most tokens that it proposes in one step, if it may.
        note: What the numbers rest on where that is not a checkpoint; empty otherwise.
    """

    def __init__(self, most_drafted: int, note: str = "") -> None:
        self.most_drafted = most_drafted
        self.note = note

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
    """No network: what it does on the processor is not counted."""

    def __init__(self, most_drafted: int, bytes_per_token: int, note: str = "") -> None:
        super().__init__(most_drafted, note)
        self._bytes_per_token = bytes_per_token

    def held(self, context_length: int) -> dict[Kind, int]:
        """See :meth:`DrafterForm.held`."""
        return {"buffer": self._bytes_per_token * context_length}

    def draft_cost(self, num_drafted: Amount, context_length: Amount) -> PassCost:
        """See :meth:`DrafterForm.draft_cost`."""
        return _NOTHING

    def observe_cost(self, num_tokens: Amount, context_length: Amount) -> PassCost:
        """See :meth:`DrafterForm.observe_cost`."""
        return _NOTHING


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
        return PassCost(cost.flops, cost.num_bytes, num_drafted, cost.num_layers)

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
    ) -> None:
        super().__init__(most_drafted, note)
        self._parts, self._element = parts, precision.element_bytes
        self._weights = footprint.weight_bytes(config, parts, self._element)
        self._head = config.draft_vocab_size * config.target.hidden_size
        self._row = kv_row_bytes(config.target.num_kv_heads, config.target.head_dim, precision.kv_dtype)
        self._queries = config.target.num_heads * config.target.head_dim

    def held(self, context_length: int) -> dict[Kind, int]:
        """See :meth:`DrafterForm.held`."""
        return {"weights": self._weights, **self._working(context_length)}

    @abstractmethod
    def _working(self, context_length: int) -> footprint.Held: ...

    def observe_cost(self, num_tokens: Amount, context_length: Amount) -> PassCost:
        """See :meth:`DrafterForm.observe_cost`."""
        taken = sum(self._parts.get(name, 0) for name in ("fuse", "sides", "writers"))
        return PassCost(2 * num_tokens * taken, self._element * taken)

    def _products(self, *parts: str) -> int:
        return sum(self._parts[name] for name in parts)


class BlockForm(_Trained):
    """All slots in one pass.

    Args:
        limit: With full attention, so many of the last rows only; 0 for all.
    """

    def __init__(
        self, most_drafted: int, note: str, precision: Precision, config: footprint.BlockSizes, limit: int
    ) -> None:
        super().__init__(most_drafted, note, precision, config, footprint.block_parts(config))
        self._config, self._limit = config, limit

    def _working(self, context_length: int) -> footprint.Held:
        return footprint.block_held(
            self._config, context_length, self._element, limit=self._limit, kv_row_bytes=self._row
        )

    def draft_cost(self, num_drafted: Amount, context_length: Amount) -> PassCost:
        """See :meth:`DrafterForm.draft_cost`."""
        config, slots = self._config, self._config.num_slots
        keys = self._attended(context_length) + slots
        block = self._products("input", "sides", "layers", "readers")
        scores = 2 * config.num_layers * self._queries * slots * keys
        # The correction looks one row of its table up and multiplies with the other half.
        markov = config.markov_rank * config.draft_vocab_size
        state = self._working(0).get("state", 0)
        return PassCost(
            2 * (slots * block + num_drafted * (self._head + markov) + scores),
            self._element * (block + self._head + markov) + config.num_layers * keys * self._row + state,
            num_layers=config.num_layers,
        )

    def _attended(self, context_length: Amount) -> Amount:
        config = self._config
        if config.attention == "full":
            return _at_most(context_length, self._limit) if self._limit else context_length
        # W to W + C - 1 rows in turn, so their mean.
        return _at_most(context_length, footprint.window_rows(config) - (config.chunk - 1) / 2)


class EagleForm(_Trained):
    """A pass of one row for each token.

    Args:
        ahead: Rows that a draft puts behind the verified ones.
    """

    def __init__(
        self, most_drafted: int, note: str, precision: Precision, config: footprint.EagleSizes, ahead: int
    ) -> None:
        super().__init__(most_drafted, note, precision, config, footprint.eagle_parts(config))
        self._config, self._ahead = config, ahead

    def _working(self, context_length: int) -> footprint.Held:
        return footprint.eagle_held(
            self._config, context_length, self._element, self._ahead, kv_row_bytes=self._row
        )

    def draft_cost(self, num_drafted: Amount, context_length: Amount) -> PassCost:
        """See :meth:`DrafterForm.draft_cost`."""
        layer = self._products("sides", "layers") + self._head
        scores = 2 * self._queries * context_length
        return PassCost(2 * (layer + scores), self._element * layer + context_length * self._row, num_drafted)


class MedusaForm(_Trained):
    """Heads on one row.

    Args:
        nodes: Of the tree; 0 for a chain.
    """

    def __init__(
        self, most_drafted: int, note: str, precision: Precision, config: footprint.MedusaSizes, nodes: int
    ) -> None:
        super().__init__(most_drafted, note, precision, config, footprint.medusa_parts(config))
        self._config, self._nodes = config, nodes

    def _working(self, context_length: int) -> footprint.Held:
        return footprint.medusa_held(self._config, self._element, self._nodes)

    def draft_cost(self, num_drafted: Amount, context_length: Amount) -> PassCost:
        """See :meth:`DrafterForm.draft_cost`."""
        heads = self._parts["layers"]
        flops = 2 * (heads + num_drafted * self._head)
        num_bytes = self._element * (heads + self._head)
        return PassCost(flops, num_bytes, num_layers=self._config.hidden_layers)

    def observe_cost(self, num_tokens: Amount, context_length: Amount) -> PassCost:
        """See :meth:`DrafterForm.observe_cost`."""
        return _NOTHING  # it keeps the last row


def _at_most(value: Amount, limit: float) -> Amount:
    if isinstance(value, int | float):
        return min(value, limit)
    return value.clip(max=limit)
