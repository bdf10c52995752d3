"""The ledger's readings: live tensors walked, and held against the closed formulas.

Formulas are in :mod:`hyflash_bench.memory.ledger_totals` (target and passes) and with each drafter
(:meth:`~hyflash_bench.drafters.base.Drafter.memory_formula`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import torch

from hyflash_bench.drafters.base import Drafter, Held, MemoryKind, bytes_by_kind
from hyflash_bench.memory.ledger_totals import TargetLedger
from hyflash_bench.memory.shapes import shape_of

if TYPE_CHECKING:
    from hyflash_bench.targets.cache import KVCache
    from hyflash_bench.targets.target import Target

__all__ = ["cache_difference", "formula_difference", "held_by", "ledger_of", "workspace_measured"]


def ledger_of(target: Target) -> TargetLedger:
    """A loaded target's bytes in closed form, its weights as counted from the parameters.

    Raises:
        UnsupportedTarget: A family whose sizes are not known.
    """
    info = target.info
    return TargetLedger(
        shape=shape_of(target.model.config.to_dict(), info.name),
        weight_bytes=info.weight_bytes,
        kv_bytes_per_token=info.kv_bytes_per_token,
        kv_dtype=info.kv_dtype,
        element_bytes=torch.empty(0, dtype=target.dtype).element_size(),
    )


def held_by(drafter: Drafter) -> dict[MemoryKind, int]:
    """What a drafter holds now, by kind, read off its live tensors; a shared storage counts once."""
    totals = bytes_by_kind(drafter.memory())
    return {kind: totals.get(kind, 0) for kind in get_args(MemoryKind)}


def formula_difference(drafter: Drafter, held: dict[MemoryKind, int], context_length: int) -> int | None:
    """What was read off tensors less what the formula says, of the kind where they differ most.

    Args:
        drafter: Whose formula is asked.
        held: Read when it had observed so many tokens.
        context_length: Tokens.

    Returns:
        None if the drafter has no formula.
    """
    formula = drafter.memory_formula(context_length)
    if formula is None:
        return None
    return max((held.get(kind, 0) - formula.get(kind, 0) for kind in get_args(MemoryKind)), key=abs)


def cache_difference(cache: KVCache, kv_bytes_per_token: int) -> int:
    """The same of a target's cache: its storages against slots times bytes of a token."""
    walked = sum(bytes_by_kind(Held("kv", tensor) for tensor in cache.tensors()).values())
    return walked - cache.num_slots * kv_bytes_per_token


def workspace_measured(device: torch.device) -> int | None:
    """What passes needed for a moment, as torch's allocator saw it; None where it keeps no count.

    The peak since it was last reset (at the turn's start, by the meter) less what is allocated now:
    logits, features and workspace of the target's largest pass, or of the drafter's if that is more.
    """
    if device.type != "cuda":
        return None
    return torch.cuda.max_memory_allocated(device) - torch.cuda.memory_allocated(device)
