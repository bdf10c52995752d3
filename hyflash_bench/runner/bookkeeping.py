"""From what was read off a drafter step by step to the ledger's columns of one turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import get_args

from hyflash_bench.drafters.base import Drafter, MemoryKind
from hyflash_bench.engine.steps import HeldBytes, TurnResult
from hyflash_bench.memory.ledger import cache_difference, formula_difference
from hyflash_bench.memory.ledger_totals import PassBytes, TargetLedger, feature_rows
from hyflash_bench.targets.cache import KVCache

__all__ = ["Booked", "book"]


@dataclass(frozen=True, slots=True)
class Booked:
    """The ledger of one turn.

    Attributes:
        columns: Of :class:`~hyflash_bench.results.records.StepColumns`, a number for each step.
        memory: Of :class:`~hyflash_bench.results.records.TurnRecord`, by owner and kind.
        prompt_ledger_bytes: The total after the prompt.
        formula_difference_bytes: Where tensors and formulas differ most; None without a formula.
    """

    columns: Mapping[str, list[int]]
    memory: Mapping[str, int | None]
    prompt_ledger_bytes: int
    formula_difference_bytes: int | None


def book(ledger: TargetLedger, drafter: Drafter, cache: KVCache, start: int, result: TurnResult) -> Booked:
    """Add up what target, drafter and passes hold, step by step, and compare tensors with formulas.

    Args:
        ledger: Of the target.
        drafter: As it stands after the turn.
        cache: The target's.
        start: Tokens in the cache before the reply.
        result: Read after the prompt and after every step.
    """
    steps, features = result.steps, _features(drafter)
    before = list(accumulate(steps.committed, initial=start))
    held = result.held or {}
    passes = [
        ledger.pass_bytes(1 + drafted, at, num_features=features, num_committed=committed)
        for drafted, at, committed in zip(steps.drafted, before, steps.committed, strict=False)
    ]
    prompt = ledger.pass_bytes(1, max(0, start - 1), num_features=features)
    return Booked(
        columns={
            **ledger.columns(before[1:], passes),
            **{f"drafter_{kind}_bytes": [step[kind] for step in steps.held] for kind in get_args(MemoryKind)},
        },
        memory={
            "target_weights": ledger.weight_bytes,
            "target_kv": before[-1] * ledger.kv_bytes_per_token,
            "target_kv_allocated": cache.bytes(),
            **{f"drafter_{kind}": size for kind, size in (steps.held or [held])[-1].items()},
            **_highest([prompt, *passes]),
        },
        prompt_ledger_bytes=ledger.total(start, prompt, sum(held.values())),
        formula_difference_bytes=_difference(drafter, cache, ledger, before, [held, *steps.held]),
    )


def _features(drafter: Drafter) -> int:
    requires = drafter.requires
    return feature_rows(len(requires.taps), requires.last_hidden)


def _highest(passes: list[PassBytes]) -> dict[str, int]:
    names = ("logits", "features", "workspace")
    return {name: max(getattr(during, name) for during in passes) for name in names}


def _difference(
    drafter: Drafter, cache: KVCache, ledger: TargetLedger, contexts: list[int], held: list[HeldBytes]
) -> int | None:
    """Of drafter and cache, after the prompt and after every step."""
    found = [formula_difference(drafter, *at) for at in zip(held, contexts, strict=True)]
    known = [difference for difference in found if difference is not None]
    if not known:
        return None
    return max([*known, cache_difference(cache, ledger.kv_bytes_per_token)], key=abs)
