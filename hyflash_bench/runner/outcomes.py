"""What became of a conversation, cell by cell: as measured, or as a simulated cap would have it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from hyflash_bench.drafters.base import Drafter
from hyflash_bench.memory.ledger_totals import TargetLedger
from hyflash_bench.results.records import ConversationRecord, TurnRecord
from hyflash_bench.runner.caps import apply_cap
from hyflash_bench.runner.entrant import Entrant, guarded
from hyflash_bench.runner.recording import now
from hyflash_bench.runner.shrinking import shrunk_record
from hyflash_bench.runner.work import Work, WorkCell

__all__ = ["Replay", "records_of", "uncapped"]

Replay = Callable[[str, Drafter], list[TurnRecord]]
"""Walks the conversation's trace with a drafter, called by a label."""


def records_of(
    work: Work, entrants: Sequence[Entrant], ledger: TargetLedger, replay: Replay
) -> Iterator[ConversationRecord]:
    """One record for every cell of the work.

    Args:
        work: The conversation and its cells.
        entrants: Their drafters, with the turns that were measured.
        ledger: Of the target as loaded.
        replay: For a cap under which a drafter goes on with a window.
    """
    by_label = {entrant.label: entrant for entrant in entrants}
    for cell, record in zip(work.cells, uncapped(work, entrants), strict=True):
        # A cap that the worker itself is under needs no ledger.
        if cell.cap is None or cell.cap.kind == "enforced":
            yield record
        elif cell.cap.policy == "window":
            yield _shrunk(cell, by_label[cell.drafter.label], record, ledger, replay)
        else:
            yield apply_cap(record, cell_id=cell.cell_id, cap=cell.cap, ledger=ledger)


def uncapped(work: Work, entrants: Sequence[Entrant]) -> Iterator[ConversationRecord]:
    """What was measured, as the record of every cell, whatever its cap."""
    by_label = {entrant.label: entrant for entrant in entrants}
    repeats = sorted({cell.repeat for cell in work.cells})
    for cell in work.cells:
        entrant = by_label[cell.drafter.label]
        yield ConversationRecord(
            cell_id=cell.cell_id,
            item_id=work.item_id,
            trace_id=work.trace_id,
            status=entrant.status,
            message=entrant.message,
            turns=entrant.turns_of(cell.repeat, repeats),
            recorded_at=now(),
        )


def _shrunk(
    cell: WorkCell, entrant: Entrant, record: ConversationRecord, ledger: TargetLedger, replay: Replay
) -> ConversationRecord:
    shrinking = Entrant(entrant.label, entrant.drafter)
    with guarded(shrinking):
        return shrunk_record(
            record, cell, entrant.drafter, ledger, lambda drafter: replay(entrant.label, drafter)
        )
    failed = {"status": shrinking.status, "message": shrinking.message, "turns": []}
    return record.model_copy(update=failed)
