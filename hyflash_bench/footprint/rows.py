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


def kv_row_bytes(num_kv_heads: int, head_dim: int, dtype: KVDtype) -> int:
    """A token's key and value in one layer, scales included."""
    scale = KV_SCALE_BYTES if dtype == "int8" else 0
    return 2 * num_kv_heads * (head_dim * KV_DTYPES[dtype] + scale)


def rounded_up(rows: int, multiple: int) -> int:
    """The next multiple, or the number itself if it is one."""
    return -(-rows // multiple) * multiple


def widest_window(num_bytes: int, bytes_with: Callable[[int], int], num_ahead: int) -> int:
    """The widest window of rows within some bytes; at least the widest of the fewest blocks.

    Rows are held in blocks, with room for as many again as the window has and for what a draft puts
    behind them, so a window may as well fill its blocks.

    Args:
        num_bytes: Of all kinds.
        bytes_with: All that is held with a window of so many rows.
        num_ahead: Rows that a draft puts behind the verified ones.
    """

    def filling(num_blocks: int) -> int:
        return (num_blocks * BLOCK_ROWS - num_ahead) // 2

    first = rounded_up(num_ahead + 2, BLOCK_ROWS) // BLOCK_ROWS
    least = bytes_with(filling(first))
    a_block = bytes_with(filling(first + 1)) - least
    return filling(first + max(0, num_bytes - least) // a_block)
