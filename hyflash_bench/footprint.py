"""What trained drafters weigh and hold, in closed form from their configurations alone. No torch.

The drafters' own ``memory_formula`` and the planning of what fits use the same functions, so a
drafter that is too large to load is measured by the same rule as one that runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from typing import Literal, Protocol

__all__ = [
    "BLOCK_ROWS",
    "KV_DTYPES",
    "BlockSizes",
    "DFlashSizes",
    "EagleSizes",
    "KVChoice",
    "KVDtype",
    "MedusaSizes",
    "NetworkSizes",
    "TargetSizes",
    "block_held",
    "block_parts",
    "dflash_held",
    "eagle_held",
    "eagle_parts",
    "eagle_rows",
    "kv_row_bytes",
    "medusa_held",
    "medusa_parts",
    "rounded_up",
    "weight_bytes",
    "window_rows",
]

KVDtype = Literal["float32", "bfloat16", "float16", "int8"]
KVChoice = Literal["auto", "float32", "bfloat16", "float16", "int8"]
"""What may be asked for; ``auto`` is the precision of the weights."""

KV_DTYPES: Mapping[KVDtype, int] = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}
"""Bytes of a number in a KV cache."""
KV_SCALE_BYTES = 2
"""Of int8: each vector of a key or value has one float16 scale."""

BLOCK_ROWS = 256
"""Rows by which keys and values of the whole text grow."""
STATE_BYTES = 4
"""Memories are kept in float32."""
PLACE_BYTES = 4
"""Places in the draft vocabulary are held as int32."""
ID_BYTES = 8
"""Token ids are held as int64."""

Held = dict[Literal["weights", "kv", "state", "buffer"], int]


class TargetSizes(Protocol):
    """What a drafter takes over of its target's shape."""

    @property
    def hidden_size(self) -> int: ...  # noqa: D102 - named as in every configuration
    @property
    def intermediate_size(self) -> int: ...  # noqa: D102
    @property
    def num_heads(self) -> int: ...  # noqa: D102
    @property
    def num_kv_heads(self) -> int: ...  # noqa: D102
    @property
    def head_dim(self) -> int: ...  # noqa: D102


class NetworkSizes(Protocol):
    """What all networks' configurations say."""

    @property
    def target(self) -> TargetSizes: ...  # noqa: D102
    @property
    def num_slots(self) -> int: ...  # noqa: D102
    @property
    def draft_vocab_size(self) -> int: ...  # noqa: D102
    @property
    def copy_window(self) -> int: ...  # noqa: D102
    @property
    def copy_size(self) -> int: ...  # noqa: D102


class BlockSizes(NetworkSizes, Protocol):
    """Configuration of a block drafter's network."""

    @property
    def num_layers(self) -> int: ...  # noqa: D102
    @property
    def taps(self) -> Sized: ...  # noqa: D102
    @property
    def last_hidden(self) -> bool: ...  # noqa: D102
    @property
    def attention(self) -> str: ...  # noqa: D102
    @property
    def window(self) -> int: ...  # noqa: D102
    @property
    def chunk(self) -> int: ...  # noqa: D102
    @property
    def memory(self) -> str: ...  # noqa: D102
    @property
    def memory_heads(self) -> int: ...  # noqa: D102
    @property
    def memory_key_dim(self) -> int: ...  # noqa: D102
    @property
    def memory_value_dim(self) -> int: ...  # noqa: D102
    @property
    def memory_shifts(self) -> Sequence[int]: ...  # noqa: D102
    @property
    def shared_memory(self) -> bool: ...  # noqa: D102
    @property
    def intermediate_size(self) -> int: ...  # noqa: D102
    @property
    def slot_rank(self) -> int: ...  # noqa: D102
    @property
    def markov_rank(self) -> int: ...  # noqa: D102


class EagleSizes(NetworkSizes, Protocol):
    """Configuration of an EAGLE-style network."""

    @property
    def taps(self) -> Sized: ...  # noqa: D102
    @property
    def last_hidden(self) -> bool: ...  # noqa: D102
    @property
    def intermediate_size(self) -> int: ...  # noqa: D102
    @property
    def token_residual(self) -> bool: ...  # noqa: D102


class MedusaSizes(NetworkSizes, Protocol):
    """Configuration of Medusa-style heads."""

    @property
    def hidden_layers(self) -> int: ...  # noqa: D102


def weight_bytes(config: NetworkSizes, parts: dict[str, int], element_bytes: int) -> int:
    """Bytes of a network's weights: parameters, the head's rows of the target and their ids.

    Args:
        config: Of the network.
        parts: Its parameters, as ``block_parts`` and the others count them.
        element_bytes: Of a number in the network's precision.
    """
    rows = config.draft_vocab_size * config.target.hidden_size
    return element_bytes * (sum(parts.values()) + rows) + ID_BYTES * config.draft_vocab_size


def kv_row_bytes(num_kv_heads: int, head_dim: int, dtype: KVDtype) -> int:
    """A token's key and value in one layer, scales included."""
    scale = KV_SCALE_BYTES if dtype == "int8" else 0
    return 2 * num_kv_heads * (head_dim * KV_DTYPES[dtype] + scale)


def rounded_up(rows: int, multiple: int) -> int:
    """The next multiple, or the number itself if it is one."""
    return -(-rows // multiple) * multiple


def copying_part(config: NetworkSizes) -> int:
    """Parameters of the head that copies."""
    inputs = 2 * config.target.hidden_size
    return (inputs + 1) * config.copy_size + 2 + config.num_slots if config.copy_window else 0


def with_copies(held: Held, config: NetworkSizes, element_bytes: int) -> Held:
    """Bytes by kind with those of the rows that are copied from."""
    if not config.copy_window:
        return held
    keys = config.copy_window * (config.copy_size * element_bytes + PLACE_BYTES)
    last_row = config.target.hidden_size * element_bytes
    return {**held, "kv": held.get("kv", 0) + keys, "buffer": held.get("buffer", 0) + last_row}


# Block drafters


def block_parts(config: BlockSizes) -> dict[str, int]:
    """Parameters by part; ``fuse``, ``writers`` and ``sides`` work on verified rows."""
    target, size, slots = config.target, config.target.hidden_size, config.num_slots
    num_states, heads = _num_states(config), config.memory_heads
    keys, values = heads * config.memory_key_dim, heads * config.memory_value_dim
    queries, kv = target.num_heads * target.head_dim, target.num_kv_heads * target.head_dim
    width = config.intermediate_size or target.intermediate_size
    layer = size * queries * 2 + 3 * size * width + 2 * size
    reader = size * (keys + values) + slots * keys + config.memory_value_dim + values * size
    writer = size * (keys + values) + 2 * heads * (size + 1) + heads
    return {
        "head": size,
        "fuse": (len(config.taps) + config.last_hidden) * size * size,
        "input": 2 * size * size + slots * size + config.slot_rank * (2 * size + slots * size),
        "sides": config.num_layers * 2 * size * kv,
        "layers": config.num_layers * layer,
        "readers": config.num_layers * reader if num_states else 0,
        "writers": num_states * writer,
        "markov": config.markov_rank * (2 * config.draft_vocab_size + 1),
        "copying": copying_part(config),
    }


def window_rows(config: BlockSizes) -> int:
    """Most verified rows that a window holds, W + C - 1."""
    return (0 if config.attention == "none" else config.window) + config.chunk - 1


def block_held(
    config: BlockSizes, context_length: int, element_bytes: int, *, limit: int = 0, kv_row_bytes: int = 0
) -> Held:
    """Bytes by kind, weights apart, after so many tokens.

    Args:
        config: Of the network.
        context_length: Verified tokens.
        element_bytes: Of a number in the network's precision.
        limit: With full attention, attend to so many of the last rows; 0 for all.
        kv_row_bytes: A row's key and value in one layer; 0 for the network's own precision.
    """
    target = config.target
    row_bytes = kv_row_bytes or 2 * target.num_kv_heads * target.head_dim * element_bytes
    last_row = target.hidden_size * element_bytes
    if config.attention == "full":
        # With a limit, there is room for as many rows again, so that rows move now and then only.
        rows = rounded_up((2 * limit or context_length) + config.num_slots, BLOCK_ROWS)
        held: Held = {"kv": config.num_layers * rows * row_bytes, "buffer": last_row}
        return with_copies(held, config, element_bytes)
    num_states, waiting = _num_states(config), window_rows(config)
    state = num_states * config.memory_heads * config.memory_key_dim * config.memory_value_dim
    held = {
        "kv": config.num_layers * (waiting + config.num_slots) * row_bytes,
        "state": STATE_BYTES * state,
        "buffer": (1 + (waiting if num_states else 0) + last_shift(config)) * last_row,
    }
    return with_copies(held, config, element_bytes)


def last_shift(config: BlockSizes) -> int:
    """Rows that are kept behind the memory for its next keys."""
    return max(config.memory_shifts, default=0) if _num_states(config) else 0


def _num_states(config: BlockSizes) -> int:
    if config.memory == "none":
        return 0
    return 1 if config.shared_memory else config.num_layers


# DFlash of others


class DFlashSizes(Protocol):
    """Configuration of a public DFlash checkpoint."""

    @property
    def block_size(self) -> int: ...  # noqa: D102
    @property
    def windows(self) -> Sequence[int | None]: ...  # noqa: D102


def dflash_held(config: DFlashSizes, context_length: int, *, kv_row_bytes: int) -> Held:
    """Bytes by kind, weights apart, after so many tokens.

    Args:
        config: Of the network.
        context_length: Verified tokens.
        kv_row_bytes: A row's key and value in one layer.
    """
    rows = 0
    for window in config.windows:
        # With a window, there is room for as many rows again, so that rows move now and then only.
        held = context_length if window is None else 2 * (window - 1)
        rows += rounded_up(held + config.block_size, BLOCK_ROWS)
    return {"kv": rows * kv_row_bytes}


# EAGLE-style


def eagle_parts(config: EagleSizes) -> dict[str, int]:
    """Parameters by part; ``fuse`` and ``sides`` work on verified rows."""
    target, size = config.target, config.target.hidden_size
    queries, kv = target.num_heads * target.head_dim, target.num_kv_heads * target.head_dim
    layer = 3 * size * queries + 3 * size * config.intermediate_size + 3 * size
    return {
        "head": size,
        "fuse": (len(config.taps) + config.last_hidden) * size * size,
        "sides": 2 * size * 2 * kv,
        "layers": layer + (2 * size * size if config.token_residual else 0),
        "copying": copying_part(config),
    }


def eagle_rows(context_length: int, num_ahead: int) -> int:
    """Rows allocated after so many tokens: pairs of them, and those it runs ahead by."""
    return rounded_up(max(context_length - 1, 0) + num_ahead, BLOCK_ROWS)


def eagle_held(
    config: NetworkSizes, context_length: int, element_bytes: int, num_ahead: int, *, kv_row_bytes: int = 0
) -> Held:
    """Bytes by kind, weights apart, after so many tokens.

    Args:
        config: Of the network.
        context_length: Verified tokens.
        element_bytes: Of a number in the network's precision.
        num_ahead: Rows that a draft puts behind the verified ones.
        kv_row_bytes: A row's key and value; 0 for the network's own precision.
    """
    target = config.target
    row_bytes = kv_row_bytes or 2 * target.num_kv_heads * target.head_dim * element_bytes
    held: Held = {
        "kv": eagle_rows(context_length, num_ahead) * row_bytes,
        "state": target.hidden_size * element_bytes,
    }
    return with_copies(held, config, element_bytes)


# Medusa-style


def medusa_parts(config: MedusaSizes) -> dict[str, int]:
    """Parameters by part."""
    size = config.target.hidden_size
    layers = config.hidden_layers * config.num_slots * size * (size + 1)
    return {"head": size, "layers": layers, "copying": copying_part(config)}


def medusa_held(config: MedusaSizes, element_bytes: int, num_nodes: int) -> Held:
    """Bytes by kind, weights apart, at any context length.

    Args:
        config: Of the network.
        element_bytes: Of a number in the network's precision.
        num_nodes: Of the tree; 0 for a chain.
    """
    held: Held = {"state": config.target.hidden_size * element_bytes, "buffer": 3 * num_nodes * ID_BYTES}
    return with_copies(held, config, element_bytes)
