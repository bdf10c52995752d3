"""Bytes by owner and kind, read off live tensors."""

from __future__ import annotations

from typing import get_args

import psutil

from hyflash_bench.drafters.base import Drafter, MemoryKind, bytes_by_kind

__all__ = ["drafter_memory", "process_memory", "working_bytes"]


def working_bytes(drafter: Drafter) -> int:
    """Bytes that a drafter holds now, its weights apart."""
    totals = bytes_by_kind(drafter.memory())
    return sum(size for kind, size in totals.items() if kind != "weights")


def drafter_memory(drafter: Drafter) -> dict[str, int | None]:
    """``drafter_<kind>`` -> bytes."""
    totals = bytes_by_kind(drafter.memory())
    return {f"drafter_{kind}": totals.get(kind, 0) for kind in get_args(MemoryKind)}


def process_memory() -> dict[str, int | None]:
    """Resident bytes of this process."""
    return {"process_rss": psutil.Process().memory_info().rss}
