"""The cap policy ``window``: the conversation again, with a drafter that keeps less of the context.

The drafter gets what the cap leaves beside the target and its largest pass at the end of the
conversation, and the largest window within that (:meth:`~hyflash_bench.drafters.base.Drafter.within`).
It keeps that window from the first token on, so what is measured is exactly a drafter built with it. No
target pass is needed, since the trace is there; for the same reason there are no times, and turns of
the live loop are left out and every repeat shows the replay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hyflash_bench.drafters.base import Drafter
from hyflash_bench.memory.ledger_totals import TargetLedger
from hyflash_bench.results.records import ConversationRecord, TurnRecord
from hyflash_bench.runner.caps import apply_cap, first_breach, under
from hyflash_bench.runner.work import WorkCell
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.plan import Cap

__all__ = ["shrunk_record"]

Replay = Callable[[Drafter], list[TurnRecord]]


def shrunk_record(
    record: ConversationRecord, cell: WorkCell, drafter: Drafter, ledger: TargetLedger, replay: Replay
) -> ConversationRecord:
    """What a conversation measured without a cap becomes under one with policy ``window``.

    Args:
        record: Of the uncapped cell.
        cell: The capped cell.
        drafter: As asked for.
        ledger: Of the target as loaded.
        replay: Walks the conversation's trace with a drafter.

    Returns:
        The record as it was if the cap is never reached. Else the shrunk drafter's replay, with the moment
        at which the drafter as asked for would have reached the cap, and status ``oom`` if not even the
        smallest window fits; ``incompatible`` if the drafter cannot shrink.
    """
    cap = cell.cap
    assert cap is not None
    stopped = apply_cap(record, cell_id=cell.cell_id, cap=cap, ledger=ledger)
    moment = first_breach(record, cap, ledger) if stopped.status == "oom" else None
    if moment is None or drafter.is_reference:
        return stopped
    shrunk = drafter.within(_left_for_drafter(record, cap, ledger))
    if shrunk is None:
        message = (
            f"{drafter.name} cannot keep less of the context, so it cannot follow --cap-policy window, "
            f"which it would have to at {moment.context} tokens. Use --cap-policy stop or no-draft."
        )
        return stopped.model_copy(update={"status": "incompatible", "message": message, **_NO_BREACH})
    turns = replay(shrunk)
    again = apply_cap(
        record.model_copy(update={"turns": turns}), cell_id=cell.cell_id, cap=cap, ledger=ledger
    )
    noted = {name: getattr(stopped, name) for name in ("policy_turn", "policy_step", "policy_context")}
    label = _label(cell.drafter, drafter, shrunk)
    return again.model_copy(update={**noted, "policy_drafter": label})


_NO_BREACH: Mapping[str, Any] = {"context_reached": None, "peak_bytes": None, "turns": []}


def _left_for_drafter(record: ConversationRecord, cap: Cap, ledger: TargetLedger) -> int:
    """What the cap leaves beside the target and its largest pass, at the longest context of all turns."""
    kv = max(turn.memory.get("target_kv") or 0 for turn in record.turns)
    during = max((size for turn in record.turns for size in turn.steps.pass_bytes or ()), default=0)
    return cap.num_bytes - under(cap, ledger).weight_bytes - kv - during


def _label(asked: DrafterSpec, drafter: Drafter, shrunk: Drafter) -> str:
    before, after = (d.options.model_dump(mode="json") for d in (drafter, shrunk))
    changed = {name: value for name, value in after.items() if value != before[name]}
    return asked.model_copy(update={"options": {**asked.options, **changed}}).label
