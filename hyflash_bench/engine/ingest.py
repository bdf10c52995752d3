"""Giving a drafter a span of verified text, in chunks as a prefill would."""

from __future__ import annotations

from torch import Tensor

from hyflash_bench.drafters.base import Drafter, Features

__all__ = ["CHUNK", "ingest"]

CHUNK = 512


def ingest(drafter: Drafter, tokens: Tensor, features: Features) -> None:
    """Let a drafter observe a long span chunk by chunk.

    Args:
        drafter: Has observed everything before the span.
        tokens: ``[T]``.
        features: T rows.
    """
    for start in range(0, len(tokens), CHUNK):
        rows = slice(start, start + CHUNK)
        # A copy: what a drafter does to its tokens must not reach the trace, which is everybody's.
        drafter.observe(tokens[rows].clone(), features.rows(rows))
