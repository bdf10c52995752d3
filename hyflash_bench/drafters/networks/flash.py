"""The gated delta rule by flash-linear-attention's kernels, in training on GPUs.

The kernels give outputs and the last state; a drafter in training needs the states in between. So
behind each chunk stand ``dk`` rows that write nothing and ask with the unit vectors: their outputs
are the rows of the state. Keys and values go in as bfloat16, the only precision that the kernels
take; states and gates stay in float32. Used where training runs in bfloat16 anyway; drafting always
takes the exact form.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from hyflash_bench.drafters.networks.delta import MemoryRule, Writes

__all__ = ["has_kernels", "states_by_asking", "states_by_kernels"]

_MOST_KEYS = 256
"""Largest ``dk`` that the kernels take."""


def has_kernels(rows: Tensor, rule: MemoryRule, key_dim: int) -> bool:
    """Whether the kernels serve for rows of this kind, here and now."""
    return (
        rule == "gated-delta"
        and rows.is_cuda
        and torch.is_autocast_enabled("cuda")
        and key_dim <= _MOST_KEYS
        and _is_installed()
    )


@cache
def _is_installed() -> bool:
    return find_spec("fla") is not None


def states_by_kernels(writes: Writes, chunk: int) -> Tensor:
    """As :func:`hyflash_bench.drafters.networks.delta.chunk_states` of the gated delta rule, from zeros."""
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    def outputs(queries: Tensor, keys: Tensor, values: Tensor, decays: Tensor, strengths: Tensor) -> Tensor:
        halves = (side.to(torch.bfloat16) for side in (queries, keys, values))
        found: Tensor = chunk_gated_delta_rule(*halves, g=decays, beta=strengths, scale=1.0)[0]
        return found.float()

    return states_by_asking(writes, chunk, outputs)


def states_by_asking(writes: Writes, chunk: int, outputs: Callable[..., Any]) -> Tensor:
    """States at the boundaries of chunks, read off a kernel that gives outputs only.

    Args:
        writes: T rows, T a multiple of ``chunk``.
        chunk: Rows in a chunk, C.
        outputs: From queries, keys, values, decays and strengths ``[1, R, H, ...]`` to what each
            row's query reads of the state after that row, ``[1, R, H, dv]``.

    Returns:
        ``[T/C + 1, H, dk, dv]``, the first one zeros.
    """
    length, heads, key_dim = writes.keys.shape
    num_chunks = length // chunk
    first = writes.values.new_zeros(1, heads, key_dim, writes.values.shape[-1])
    if not num_chunks:
        return first

    def followed(side: Tensor) -> Tensor:
        """By rows of zeros after each chunk: ``[1, T/C * (C + dk), H, ...]``."""
        chunked = side.view(num_chunks, chunk, *side.shape[1:])
        silent = chunked.new_zeros(num_chunks, key_dim, *side.shape[1:])
        return torch.cat([chunked, silent], dim=1).flatten(0, 1)[None]

    units = torch.eye(key_dim, dtype=writes.keys.dtype, device=writes.keys.device)
    asking = units[:, None].expand(key_dim, heads, key_dim)
    queries = torch.cat([asking.new_zeros(chunk, heads, key_dim), asking]).repeat(num_chunks, 1, 1)[None]
    keys, values, strengths, decays = (followed(side) for side in writes)
    read = outputs(queries, keys, values, decays, strengths)
    states = read.view(num_chunks, chunk + key_dim, heads, -1)[:, chunk:].transpose(1, 2)
    return torch.cat([first, states])
