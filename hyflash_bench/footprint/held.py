"""What drafters hold of a text besides their weights, by kind."""

from __future__ import annotations

from typing import Literal

from hyflash_bench.footprint.parts import ID_BYTES, num_memories
from hyflash_bench.footprint.rows import BLOCK_ROWS, rounded_up, slots_for
from hyflash_bench.footprint.sizes import BlockSizes, DFlashSizes, MedusaSizes, NetworkSizes

__all__ = [
    "STATE_BYTES",
    "TOKEN_BYTES",
    "Held",
    "block_held",
    "dflash_held",
    "eagle_held",
    "eagle_rows",
    "last_shift",
    "medusa_held",
    "recent_held",
    "recent_rows",
    "window_rows",
]

STATE_BYTES = 4
"""Memories are kept in float32."""
PLACE_BYTES = 4
"""Places in the draft vocabulary are held as int32."""
TOKEN_BYTES = 4
"""Tokens of a text are held as int32."""

Held = dict[Literal["weights", "kv", "state", "buffer"], int]


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
        rows = slots_for(context_length, config.num_slots, limit or None)
        held: Held = {"kv": config.num_layers * rows * row_bytes, "buffer": last_row}
        return _with_copies(held, config, element_bytes)
    num_states, waiting = num_memories(config), window_rows(config)
    state = num_states * config.memory_heads * config.memory_key_dim * config.memory_value_dim
    held = {
        "kv": config.num_layers * (waiting + config.num_slots) * row_bytes,
        "state": STATE_BYTES * state,
        "buffer": (1 + (waiting if num_states else 0) + last_shift(config)) * last_row,
    }
    return _with_copies(held, config, element_bytes)


def window_rows(config: BlockSizes) -> int:
    """Most verified rows that a window holds, W + C - 1."""
    return (0 if config.attention == "none" else config.window) + config.chunk - 1


def last_shift(config: BlockSizes) -> int:
    """Rows that are kept behind the memory for its next keys."""
    return max(config.memory_shifts, default=0) if num_memories(config) else 0


def dflash_held(config: DFlashSizes, context_length: int, *, kv_row_bytes: int) -> Held:
    """Bytes by kind, weights apart, after so many tokens.

    Args:
        config: Of the network.
        context_length: Verified tokens.
        kv_row_bytes: A row's key and value in one layer.
    """
    limits = (None if window is None else window - 1 for window in config.windows)
    rows = sum(slots_for(context_length, config.block_size, limit) for limit in limits)
    return {"kv": rows * kv_row_bytes}


def eagle_held(
    config: NetworkSizes,
    context_length: int,
    element_bytes: int,
    num_ahead: int,
    *,
    limit: int = 0,
    kv_row_bytes: int = 0,
) -> Held:
    """Bytes by kind, weights apart, after so many tokens.

    Args:
        config: Of the network.
        context_length: Verified tokens.
        element_bytes: Of a number in the network's precision.
        num_ahead: Rows that a draft puts behind the verified ones.
        limit: Attend to so many of the last pairs; 0 for all.
        kv_row_bytes: A row's key and value; 0 for the network's own precision.
    """
    target = config.target
    row_bytes = kv_row_bytes or 2 * target.num_kv_heads * target.head_dim * element_bytes
    held: Held = {
        "kv": eagle_rows(context_length, num_ahead, limit) * row_bytes,
        "state": target.hidden_size * element_bytes,
    }
    return _with_copies(held, config, element_bytes)


def eagle_rows(context_length: int, num_ahead: int, limit: int = 0) -> int:
    """Rows allocated after so many tokens: pairs of them, and those it runs ahead by."""
    return slots_for(max(context_length - 1, 0), num_ahead, limit or None)


def medusa_held(config: MedusaSizes, element_bytes: int, num_nodes: int) -> Held:
    """Bytes by kind, weights apart, at any context length.

    Args:
        config: Of the network.
        element_bytes: Of a number in the network's precision.
        num_nodes: Of the tree; 0 for a chain.
    """
    held: Held = {"state": config.target.hidden_size * element_bytes, "buffer": 3 * num_nodes * ID_BYTES}
    return _with_copies(held, config, element_bytes)


def recent_held(context_length: int, window: int) -> Held:
    """Bytes by kind of the last tokens of a text."""
    return {"buffer": TOKEN_BYTES * recent_rows(context_length, window)}


def recent_rows(context_length: int, window: int) -> int:
    """Tokens that there is room for when only the last ones are kept and searched."""
    return min(rounded_up(context_length, BLOCK_ROWS), window)


def _with_copies(held: Held, config: NetworkSizes, element_bytes: int) -> Held:
    """Bytes by kind with those of the rows that are copied from and recalled."""
    if not config.copy_window:
        return held
    key = config.copy_size * element_bytes
    copied: Held = {
        "kv": config.copy_window * (key + PLACE_BYTES) + PLACE_BYTES,
        "state": config.recall_rows * (key + config.num_slots * PLACE_BYTES),
        "buffer": config.target.hidden_size * element_bytes,
    }
    return {**held, **{kind: held.get(kind, 0) + more for kind, more in copied.items() if more}}
