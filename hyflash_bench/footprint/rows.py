"""Rows of keys and values: bytes of one, and how many there is room for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

__all__ = [
    "BLOCK_ROWS",
    "KV_DTYPES",
    "KVChoice",
    "KVDtype",
    "kv_row_bytes",
    "rounded_up",
    "slots_for",
    "widest_window",
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

WINDOW_SLACK = 32
"""Rows beyond a window that there is room for, so that those held move to the front once in so many."""


def kv_row_bytes(num_kv_heads: int, head_dim: int, dtype: KVDtype) -> int:
    """A token's key and value in one layer, scales included."""
    scale = KV_SCALE_BYTES if dtype == "int8" else 0
    return 2 * num_kv_heads * (head_dim * KV_DTYPES[dtype] + scale)


def rounded_up(rows: int, multiple: int) -> int:
    """The next multiple, or the number itself if it is one."""
    return -(-rows // multiple) * multiple


def slots_for(num_rows: int, num_ahead: int, limit: int | None = None) -> int:
    """Slots of keys and values that grow with the text, or hold its last rows.

    Args:
        num_rows: Verified ones so far.
        num_ahead: Rows that a draft puts behind them.
        limit: Keep so many of the last verified rows; None for all. Then the slots do not depend on the text.
    """
    if limit is None:
        return rounded_up(num_rows + num_ahead, BLOCK_ROWS)
    return limit + WINDOW_SLACK + num_ahead


def widest_window(num_bytes: int, bytes_with: Callable[[int], int]) -> int:
    """The widest window of rows within some bytes, at least one row.

    Args:
        num_bytes: Of all kinds.
        bytes_with: All that is held with a window of so many rows; each more costs the same.
    """
    least = bytes_with(1)
    return 1 + max(0, num_bytes - least) // (bytes_with(2) - least)
