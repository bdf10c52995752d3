"""Which of a suite's items are wanted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from hyflash_bench.errors import UsageError
from hyflash_bench.suites.conversation import Item

__all__ = ["fits", "only_contexts", "only_kinds", "spread"]


def only_contexts(items: Sequence[Item], contexts: Iterable[int], suite: str) -> list[Item]:
    """Items of some context lengths.

    Raises:
        UsageError: A length that the suite has not got; the message names those it has.
    """
    wanted = set(contexts)
    known = {item.context_length for item in items} - {None}
    _refuse_unknown(wanted - known, known, "context length", suite)
    return [item for item in items if item.context_length in wanted]


def only_kinds(items: Sequence[Item], kinds: Iterable[str], suite: str) -> list[Item]:
    """Items of some kinds.

    Raises:
        UsageError: A kind that the suite has not got; the message names those it has.
    """
    wanted = set(kinds)
    known = {item.kind for item in items}
    _refuse_unknown(wanted - known, known, "kind", suite)
    return [item for item in items if item.kind in wanted]


def fits(item: Item, max_positions: int, max_new_tokens: int) -> bool:
    """Whether the prompt and the longest reply have room in the target."""
    return item.context_length is None or item.context_length + max_new_tokens <= max_positions


def spread(items: Sequence[Item], limit: int) -> list[Item]:
    """At most ``limit`` items, in turn from all kinds and context lengths.

    The order is fixed by hashes of the names, not by the order in the file. The same documents are
    taken at every context length, and a smaller limit takes a part of what a larger one takes.
    """
    groups: dict[tuple[str, int | None], list[Item]] = {}
    for item in items:
        groups.setdefault((item.kind, item.context_length), []).append(item)
    for group in groups.values():
        group.sort(key=lambda item: _rank(_without_length(item)))
    order = _diagonals(groups)
    taken: list[Item] = []
    depth = 0
    while len(taken) < min(limit, len(items)):
        taken += [groups[key][depth] for key in order if depth < len(groups[key])]
        depth += 1
    kept = {item.item_id for item in taken[:limit]}
    return [item for item in items if item.item_id in kept]


def _diagonals(groups: Iterable[tuple[str, int | None]]) -> list[tuple[str, int | None]]:
    """Groups in an order that goes on to another kind and another length at each step."""
    present = set(groups)
    kinds = sorted({kind for kind, _ in present}, key=_rank)
    lengths = sorted({length for _, length in present}, key=lambda length: _rank(str(length)))
    walk = [
        (kinds[(step + shift) % len(kinds)], lengths[step % len(lengths)])
        for shift in range(max(len(kinds), len(lengths)))
        for step in range(max(len(kinds), len(lengths)))
    ]
    return [key for key in dict.fromkeys(walk) if key in present]


def _without_length(item: Item) -> str:
    return item.item_id.removesuffix(f"/{item.context_length}")


def _rank(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _refuse_unknown(unknown: Iterable[object], known: Iterable[object], what: str, suite: str) -> None:
    missing = sorted(map(str, unknown))
    if missing:
        there = ", ".join(str(value) for value in sorted(known, key=lambda v: (len(str(v)), str(v))))
        raise UsageError(f"Suite {suite} has no {what} {missing[0]}. It has: {there or f'no fixed {what}s'}.")
