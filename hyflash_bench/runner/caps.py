"""Simulated memory caps: the ledger decides, after the fact and deterministically.

A cap changes nothing of what target and drafter compute until it is reached, so one uncapped pass
serves a whole ladder of caps.
"""

from __future__ import annotations

from hyflash_bench.results.records import ConversationRecord, TurnRecord
from hyflash_bench.spec.units import format_bytes

__all__ = ["apply_cap"]


def apply_cap(
    record: ConversationRecord, *, cell_id: str, cap_bytes: int, kv_bytes_per_token: int
) -> ConversationRecord:
    """What a conversation measured without a cap becomes under one (policy ``stop``).

    Args:
        record: Of the uncapped cell.
        cell_id: Of the capped cell.
        cap_bytes: The cap.
        kv_bytes_per_token: Of the target.

    Returns:
        The same record under the capped cell's name, or status ``oom`` with the turns that were
        finished before the breach, the context length and the total at the breach.
    """
    renamed = record.model_copy(update={"cell_id": cell_id})
    if record.status not in ("ok", "mismatch"):
        return renamed
    breaches = [
        (turn.turn, context, total)
        for turn in record.turns
        for context, total in _totals(turn, kv_bytes_per_token)
        if total > cap_bytes
    ]
    if not breaches:
        return renamed
    first_turn, context, total = min(breaches)
    message = (
        f"{format_bytes(total)} needed at {context} tokens of context; the cap is {format_bytes(cap_bytes)}"
    )
    return renamed.model_copy(
        update={
            "status": "oom",
            "message": message,
            "context_reached": context,
            "peak_bytes": total,
            "turns": [turn for turn in record.turns if turn.turn < first_turn],
        }
    )


def _totals(turn: TurnRecord, kv_bytes_per_token: int) -> list[tuple[int, int]]:
    """(context length, ledger total) after the prompt and after every step."""
    fixed = sum(turn.memory.get(name) or 0 for name in ("target_weights", "drafter_weights", "logits"))
    working = sum(turn.memory.get(f"drafter_{kind}") or 0 for kind in ("kv", "state", "buffer"))
    per_step = turn.steps.drafter_bytes or [working] * len(turn.steps.committed)
    context = turn.context_length
    totals = [(context, fixed + context * kv_bytes_per_token + (per_step[0] if per_step else working))]
    for committed, held in zip(turn.steps.committed, per_step, strict=True):
        context += committed
        totals.append((context, fixed + context * kv_bytes_per_token + held))
    return totals
