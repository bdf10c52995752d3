"""Bytes by owner and kind: ``owner_kind`` -> bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import psutil

from hyflash_bench.drafters.base import Drafter, MemoryKind, bytes_by_kind

if TYPE_CHECKING:
    from hyflash_bench.targets.cache import KVCache
    from hyflash_bench.targets.target import Target

__all__ = ["drafter_memory", "logits_bytes", "process_memory", "target_memory", "working_bytes"]

LOGIT_BYTES = 4
"""Logits leave the target as float32."""


def target_memory(target: Target, cache: KVCache, context_length: int) -> dict[str, int | None]:
    """Weights, and the KV cache: what the context needs and what is allocated for it."""
    return {
        "target_weights": target.info.weight_bytes,
        "target_kv": context_length * target.info.kv_bytes_per_token,
        "target_kv_allocated": cache.bytes(),
    }


def logits_bytes(target: Target, num_rows: int) -> int:
    """Logits of a pass over so many tokens."""
    return LOGIT_BYTES * num_rows * target.info.vocab_size


def drafter_memory(drafter: Drafter) -> dict[str, int | None]:
    """What a drafter holds now, by kind, read off its live tensors."""
    totals = bytes_by_kind(drafter.memory())
    return {f"drafter_{kind}": totals.get(kind, 0) for kind in get_args(MemoryKind)}


def working_bytes(drafter: Drafter) -> int:
    """Bytes that a drafter holds now, its weights apart."""
    totals = bytes_by_kind(drafter.memory())
    return sum(size for kind, size in totals.items() if kind != "weights")


def process_memory() -> dict[str, int | None]:
    """Resident bytes of this process."""
    return {"process_rss": psutil.Process().memory_info().rss}
