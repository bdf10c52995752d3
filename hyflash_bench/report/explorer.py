"""Conversations to look into: what the target said, and which of its tokens each drafter had foreseen.

Along a trace, the counts of a step say where every token came from: of those that it committed, the first
were drafted and accepted, the rest is the target's own. What was drafted and rejected is a text of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hyflash_bench.report.text import visible

if TYPE_CHECKING:
    from hyflash_bench.report.sections import Numbers
    from hyflash_bench.results.records import TraceRecord, TraceTurn

__all__ = ["LONGEST_REJECTED", "LONGEST_TEXT", "MOST_BYTES", "explorer_of"]

MOST_BYTES: Final = 4_000_000
"""Bytes of conversations that a page takes along; those beyond are left out, and counted."""
LONGEST_TEXT: Final = 20_000
"""Characters of one reply that are shown."""
LONGEST_REJECTED: Final = 400
"""Characters of what one step rejected that are shown."""

Json = dict[str, Any]


class _Walk(NamedTuple):
    """A drafter's steps along a turn.

    Attributes:
        counts: Drafted, accepted and committed of each step, one after the other.
        rejected: Text of what each step rejected, None where it is not known.
    """

    counts: list[int]
    rejected: list[str | None]


def explorer_of(numbers: Numbers) -> Json | None:
    """What the page's explorer reads, or None where nothing was said.

    Returns:
        ``drafters``: labels. ``conversations``: each with ``name``, ``facts``, and ``turns``, which hold
        ``request``, ``pieces`` (the reply token by token, or whole where offsets were not stored) and, by
        drafter, ``steps`` (drafted, accepted and committed in turns) and ``rejected`` (a text a step, where
        any is known). ``left_out``: how many conversations found no room.
    """
    walks = _walks(numbers)
    drafters = sorted({drafter for walk in walks.values() for drafter in walk})
    conversations: list[Json] = []
    size, left_out = 0, 0
    for trace in numbers.run.replies.values():
        if size > MOST_BYTES:
            left_out += 1
            continue
        turns = [_turn(turn, walks.get((trace.trace_id, turn.turn), {}), drafters) for turn in trace.turns]
        conversations.append({"name": trace.item_id, "facts": _facts(trace), "turns": turns})
        size += len(json.dumps(conversations[-1], ensure_ascii=False).encode(errors="replace"))
    if not conversations:
        return None
    return {
        "drafters": [visible(drafter) for drafter in drafters],
        "conversations": conversations,
        "left_out": left_out,
    }


def _turn(turn: TraceTurn, walks: Mapping[str, _Walk], drafters: Sequence[str]) -> Json:
    pieces = list(_pieces(turn))
    numbered = {str(drafters.index(drafter)): walk for drafter, walk in walks.items()}
    return {
        "context": turn.context_length,
        "request": visible(turn.request) if turn.request else None,
        "pieces": pieces,
        "tokens": len(turn.tokens),
        "by_token": turn.offsets is not None,
        "steps": {number: walk.counts for number, walk in numbered.items()},
        "rejected": {number: walk.rejected for number, walk in numbered.items() if any(walk.rejected)},
    }


def _pieces(turn: TraceTurn) -> Iterator[str]:
    """The reply cut where tokens begin, up to the longest text that is shown."""
    text = turn.text[:LONGEST_TEXT]
    if turn.offsets is None:
        yield visible(text)
        return
    for start, end in zip(turn.offsets, [*turn.offsets[1:], len(turn.text)], strict=True):
        yield visible(text[start:end])


def _facts(trace: TraceRecord) -> Json:
    facts = {
        "suite": trace.suite,
        "kind": trace.kind,
        "category": trace.category,
        "sampling": trace.sampling,
        "context": trace.context_rung,
    }
    return {name: visible(value) if isinstance(value, str) else value for name, value in facts.items()}


def _walks(numbers: Numbers) -> dict[tuple[str, int], dict[str, _Walk]]:
    """Steps along each trace and turn, by drafter: those that count for acceptance, without a cap."""
    steps = numbers.steps
    shown = steps[steps["is_scored"] & steps["memory_cap_bytes"].isna() & (steps["status"] == "ok")]
    # Imported steps walk along no text that is known.
    traces = numbers.run.conversations[["cell_id", "item_id", "trace_id"]].dropna(subset="trace_id")
    shown = shown.merge(traces.drop_duplicates(["cell_id", "item_id"]), on=["cell_id", "item_id"])
    keys = ["cell_id", "trace_id", "turn"]
    shown = shown.sort_values([*keys, "step"], kind="stable")
    counts = shown[["drafted", "accepted", "committed"]].to_numpy(dtype="int64")
    rejected = [_rejected(text) for text in shown["rejected_text"]]
    sizes = shown.groupby([*keys, "drafter"], sort=False).size().reset_index(name="size")
    walks: dict[tuple[str, int], dict[str, _Walk]] = {}
    at = 0
    columns = (sizes[name].tolist() for name in ("trace_id", "turn", "drafter", "size"))
    for trace_id, turn, drafter, size in zip(*columns, strict=True):
        walk = _Walk(counts[at : at + size].ravel().tolist(), rejected[at : at + size])
        at += size
        # A repeat of the timed loop walks the same trace again: the first is shown.
        walks.setdefault((str(trace_id), int(turn)), {}).setdefault(str(drafter), walk)
    return walks


def _rejected(text: Any) -> str | None:
    return visible(text[:LONGEST_REJECTED]) if isinstance(text, str) else None
