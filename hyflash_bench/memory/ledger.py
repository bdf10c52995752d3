"""Bytes by owner and kind, read off live tensors."""

from __future__ import annotations

from collections.abc import Iterable

import psutil

from hyflash_bench.drafters.base import Drafter, Held, MemoryKind

__all__ = ["bytes_by_kind", "drafter_memory", "process_memory", "working_bytes"]

KINDS: tuple[MemoryKind, ...] = ("weights", "kv", "state", "buffer")


def bytes_by_kind(held: Iterable[Held]) -> dict[MemoryKind, int]:
    """Add up what a drafter holds; a storage counts once however many views look at it.

    What is shared with the target counts for the target alone.
    """
    totals: dict[MemoryKind, int] = dict.fromkeys(KINDS, 0)
    seen: set[int] = set()
    for item in held:
        if item.shared:
            continue
        totals[item.kind] += item.num_bytes
        if item.tensor is not None:
            storage = item.tensor.untyped_storage()
            if storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                totals[item.kind] += storage.nbytes()
    return totals


def working_bytes(drafter: Drafter) -> int:
    """Bytes that a drafter holds now, its weights apart."""
    totals = bytes_by_kind(drafter.memory())
    return sum(size for kind, size in totals.items() if kind != "weights")


def drafter_memory(drafter: Drafter) -> dict[str, int | None]:
    """``drafter_<kind>`` -> bytes."""
    return {f"drafter_{kind}": size for kind, size in bytes_by_kind(drafter.memory()).items()}


def process_memory() -> dict[str, int | None]:
    """Resident bytes of this process."""
    return {"process_rss": psutil.Process().memory_info().rss}
