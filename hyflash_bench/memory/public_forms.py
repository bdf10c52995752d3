"""Drafters of public checkpoints on paper; see :mod:`hyflash_bench.memory.forms`. No torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hyflash_bench import footprint
from hyflash_bench.errors import DrafterError
from hyflash_bench.memory.forms import DrafterForm, Kind, Precision
from hyflash_bench.memory.shapes import ModelShape, PassCost

if TYPE_CHECKING:
    from hyflash_bench.memory.shapes import Amount
    from hyflash_bench.spec.formats.layer import LayerSizes
    from hyflash_bench.spec.formats.sizes import PublicSizes

__all__ = ["PublicDFlashForm", "PublicEagleForm", "PublicMedusaForm", "check_target"]

_REPEATED = "counted with its own embedding and head; one that equals the target's is held once"

# See forms: operators that torch starts in one call, held to what is counted by a test.
_DFLASH_DRAFT, _DFLASH_DRAFT_LAYER, _DFLASH_MASK = 34, 82, 12
_DFLASH_OBSERVE, _DFLASH_OBSERVE_LAYER = 26, 29
_EAGLE_TOKEN, _EAGLE_LEVEL, _EAGLE_OBSERVE = 95, 112, 49
_EAGLE_NORMS, _NORM = 12, 5
_MEDUSA_DRAFT, _MEDUSA_HEAD, _MEDUSA_TREE, _MEDUSA_OBSERVE = 21, 3, 4, 4


class _Parameters(NamedTuple):
    """Of a network, by what they do.

    Attributes:
        fuse: Matrices over the target's features.
        pair: EAGLE-1's matrix over a token and its features.
        sides: Matrices of keys and values.
        layers: Other matrices of decoder layers.
        vectors: Norms and biases.
    """

    fuse: int
    pair: int
    sides: int
    layers: int
    vectors: int


class _PublicForm(DrafterForm):
    """What the families with decoder layers share."""

    def __init__(
        self, most_drafted: int, precision: Precision, sizes: PublicSizes, layer: LayerSizes
    ) -> None:
        note = _REPEATED if sizes.may_repeat_target else ""
        super().__init__(most_drafted, note, sizes.num_taps or 1)
        self._sizes, self._layer, self._element = sizes, layer, precision.element_bytes
        self._counts = _parameters(sizes, layer)
        self._head = sizes.draft_vocab_size * layer.hidden_size
        self._row = footprint.kv_row_bytes(layer.num_kv_heads, layer.head_dim, precision.kv_dtype)
        self._queries = layer.num_heads * layer.head_dim

    @property
    def _weights(self) -> int:
        embedding = self._sizes.vocab_size * self._layer.hidden_size
        held = sum(self._counts) + self._sizes.has_embedding * embedding + self._sizes.has_head * self._head
        return held * self._element + self._sizes.draft_vocab_size * footprint.ID_BYTES


class PublicDFlashForm(_PublicForm):
    """A whole block in one pass, in which every layer sees what its window holds."""

    def held(self, context_length: int) -> dict[Kind, int]:
        """See :meth:`DrafterForm.held`."""
        kv = footprint.dflash_held(self._sizes, context_length, kv_row_bytes=self._row)
        return {"weights": self._weights, **kv}

    def draft_cost(self, num_drafted: Amount, context_length: Amount) -> PassCost:
        """See :meth:`DrafterForm.draft_cost`."""
        counts, slots = self._counts, self._sizes.block_size
        block = counts.sides + counts.layers
        keys = sum(self._seen(window, context_length) + slots for window in self._sizes.windows)
        scores = 2 * self._queries * slots * keys
        cached = (keys + slots * self._sizes.num_layers) * self._row
        return PassCost(
            2 * (slots * block + num_drafted * self._head + scores),
            self._element * (block + self._head) + cached,
            num_layers=self._sizes.num_layers,
            score_flops=2 * scores,
            cache_bytes=cached,
            num_operators=_DFLASH_DRAFT
            + self._sizes.num_layers * _DFLASH_DRAFT_LAYER
            + sum(window is not None for window in self._sizes.windows) * _DFLASH_MASK,
        )

    def observe_cost(self, num_tokens: Amount, context_length: Amount) -> PassCost:
        """See :meth:`DrafterForm.observe_cost`."""
        taken = self._counts.fuse + self._counts.sides
        operators = _DFLASH_OBSERVE + self._sizes.num_layers * _DFLASH_OBSERVE_LAYER
        return PassCost(2 * num_tokens * taken, self._element * taken, num_operators=operators)

    def _seen(self, window: int | None, context_length: Amount) -> Amount:
        """Rows before a block."""
        return context_length if window is None else np.minimum(context_length, window - 1)


class PublicEagleForm(_PublicForm):
    """A pass of one row for each token of a chain; one for each level of a tree.

    Args:
        levels: Of a tree; 0 for a chain.
        width: Rows of one level.
        limit: So many of the last pairs only; 0 for all.
    """

    def __init__(
        self,
        most_drafted: int,
        precision: Precision,
        sizes: PublicSizes,
        layer: LayerSizes,
        levels: int = 0,
        width: int = 1,
        limit: int = 0,
    ) -> None:
        super().__init__(most_drafted, precision, sizes, layer)
        self._levels, self._width, self._limit = levels, width, limit

    def held(self, context_length: int) -> dict[Kind, int]:
        """See :meth:`DrafterForm.held`."""
        ahead = 1 + self._width * (self._levels - 1) if self._levels else self._sizes.num_slots
        return {
            "weights": self._weights,
            "kv": footprint.eagle_rows(context_length, ahead, self._limit) * self._row,
            "state": self._layer.hidden_size * self._element,
        }

    def draft_cost(self, num_drafted: Amount, context_length: Amount) -> PassCost:
        """See :meth:`DrafterForm.draft_cost`."""
        counts = self._counts
        layer = counts.pair + counts.sides + counts.layers + self._head
        # The first level has one row, the others as many as are gone on from.
        rows = (1 + self._width * (self._levels - 1)) / self._levels if self._levels else 1
        keys = np.minimum(context_length, self._limit) if self._limit else context_length
        scores = 2 * self._queries * rows * keys
        cached = keys * self._row
        return PassCost(
            2 * (rows * layer + scores),
            self._element * layer + cached,
            num_passes=self._levels or num_drafted,
            score_flops=2 * scores,
            cache_bytes=cached,
            num_operators=(_EAGLE_LEVEL if self._levels else _EAGLE_TOKEN) + self._norms,
        )

    def observe_cost(self, num_tokens: Amount, context_length: Amount) -> PassCost:
        """See :meth:`DrafterForm.observe_cost`."""
        taken = self._counts.fuse + self._counts.pair + self._counts.sides
        sizes = self._sizes
        operators = _EAGLE_OBSERVE + self._norms
        operators += _NORM * (sizes.norm_before_fc + sizes.fc_norm * sizes.num_taps)
        return PassCost(2 * num_tokens * taken, self._element * taken, num_operators=operators)

    @property
    def _norms(self) -> int:
        """Operators of what EAGLE-3 norms and its forerunners do not."""
        return _EAGLE_NORMS if self._sizes.format == "eagle3" else 0


class PublicMedusaForm(DrafterForm):
    """Heads on one row, each with a matrix over the vocabulary.

    Args:
        nodes: Of the tree; 0 for a chain.
    """

    def __init__(
        self, most_drafted: int, precision: Precision, sizes: PublicSizes, target: ModelShape, nodes: int
    ) -> None:
        super().__init__(most_drafted, num_features=1)
        self._sizes, self._nodes, self._element = sizes, nodes, precision.element_bytes
        self._width, self._vocab_size = target.hidden_size, target.vocab_size

    def held(self, context_length: int) -> dict[Kind, int]:
        """See :meth:`DrafterForm.held`."""
        biases = self._sizes.num_layers * self._width
        weights = self._sizes.num_slots * (self._matrices + biases) * self._element
        return {
            "weights": weights + self._vocab_size * footprint.ID_BYTES,
            "state": self._width * self._element,
            "buffer": 3 * self._nodes * footprint.ID_BYTES,
        }

    def draft_cost(self, num_drafted: Amount, context_length: Amount) -> PassCost:
        """See :meth:`DrafterForm.draft_cost`."""
        asked = min(self._sizes.num_slots, self._nodes) if self._nodes else num_drafted
        heads = asked * self._matrices
        return PassCost(
            2 * heads,
            self._element * heads,
            num_layers=self._sizes.num_layers,
            num_operators=_MEDUSA_DRAFT + asked * _MEDUSA_HEAD + (_MEDUSA_TREE if self._nodes else 0),
        )

    def observe_cost(self, num_tokens: Amount, context_length: Amount) -> PassCost:
        """See :meth:`DrafterForm.observe_cost`."""
        return PassCost(0.0, 0.0, num_operators=_MEDUSA_OBSERVE)

    @property
    def _matrices(self) -> int:
        """Numbers in the matrices of one head."""
        return self._width * (self._sizes.num_layers * self._width + self._vocab_size)


def check_target(sizes: PublicSizes, target: ModelShape, where: str) -> None:
    """Refuse a checkpoint of another target, as loading it would.

    Args:
        sizes: Of the checkpoint.
        target: That it is meant for.
        where: What it is, for the message.

    Raises:
        DrafterError: It was made for another one.
    """
    told = {"vocab_size": (sizes.vocab_size, target.vocab_size)}
    told["hidden_size"] = (sizes.target_hidden_size, target.hidden_size)
    for field, (own, given) in told.items():
        if own not in (0, given):
            raise DrafterError(
                f"{where} was made for another target: its {field} is {own}, that of {target.name} "
                f"is {given}. Use that target, or give a checkpoint that was made for this one."
            )


def _parameters(sizes: PublicSizes, layer: LayerSizes) -> _Parameters:
    size, is_third = layer.hidden_size, sizes.format == "eagle3"
    is_block = sizes.format == "dflash"
    queries, sides = layer.num_heads * layer.head_dim, 2 * layer.num_kv_heads * layer.head_dim
    inputs, features = (1 + is_third) * size, sizes.num_taps * sizes.target_hidden_size
    vectors = size * (1 + is_block)  # the MLP's norm, and the one before attention
    vectors += 2 * layer.head_dim if layer.qk_norm else 0
    vectors += (queries + sides if layer.qkv_bias else 0) + (size if layer.output_bias else 0)
    if is_block:
        besides = 2 * size  # norms of the fused features and of the head
    elif is_third:
        # Norms of token, features and head; then what later versions norm before they fuse.
        besides = 3 * size + features * (sizes.norm_before_fc + sizes.fc_norm)
    else:
        besides = size if sizes.fusion_bias else 0
    return _Parameters(
        fuse=features * size,
        pair=0 if sizes.num_taps else 2 * size * size,
        sides=sizes.num_layers * inputs * sides,
        layers=sizes.num_layers * (inputs * queries + queries * size + 3 * size * layer.intermediate_size),
        vectors=sizes.num_layers * vectors + besides,
    )
