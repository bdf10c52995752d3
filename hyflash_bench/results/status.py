"""What became of a cell, told from its conversations."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hyflash_bench.errors import DataError
from hyflash_bench.results.records import CellRecord, ConversationRecord, Manifest, Status

__all__ = ["NUMBER_STATUSES", "SEVERITY", "CellState", "cell_states", "worst"]

SEVERITY: tuple[Status, ...] = (
    "ok",
    "interrupted",
    "incompatible",
    "oom",
    "timeout",
    "error",
    "mismatch",
)
"""From best to worst. A mismatch is the worst: it puts the drafter's other output in doubt too."""

NUMBER_STATUSES: frozenset[Status] = frozenset({"ok", "interrupted"})
"""States of a cell that may show a number. Conversations missing because the run was stopped are
missing for a reason outside the drafter; with every other state the drafter itself chose which
conversations are left, and a number over those would flatter it."""


@dataclass(frozen=True, slots=True)
class CellState:
    """Status of a cell and why.

    Attributes:
        status: Worst of its conversations; ``interrupted`` if nothing is worse and some are missing.
        message: Why, when the status is not ok.
        counts: Conversations by status.
        num_pending: Conversations planned and never begun.
    """

    status: Status
    message: str | None
    counts: Mapping[Status, int] = field(default_factory=dict)
    num_pending: int = 0


def worst(statuses: Iterable[Status]) -> Status:
    """The last of them in :data:`SEVERITY`; ok if there are none."""
    return max(statuses, key=SEVERITY.index, default="ok")


def cell_states(manifest: Manifest, conversations: Iterable[ConversationRecord]) -> dict[str, CellState]:
    """State of every cell of a run.

    A drafter that proposed nothing in the whole run has not been measured: its finished cells are
    errors, since plain decoding under its name would look like a result of exactly 1.0.

    Raises:
        DataError: A conversation belongs to no cell of the manifest.
    """
    by_cell: dict[str, list[ConversationRecord]] = {cell.cell_id: [] for cell in manifest.cells}
    for conversation in conversations:
        if conversation.cell_id not in by_cell:
            raise DataError(
                f"Run {manifest.run_id}: conversation {conversation.item_id} belongs to cell "
                f"{conversation.cell_id}, which the manifest does not know. Restore manifest.json."
            )
        by_cell[conversation.cell_id].append(conversation)
    silent = _silent_drafters(manifest.cells, by_cell)
    return {
        cell.cell_id: _state(cell, by_cell[cell.cell_id], silent.get(cell.drafter)) for cell in manifest.cells
    }


def _state(cell: CellRecord, done: list[ConversationRecord], silence: str | None) -> CellState:
    counts = Counter(conversation.status for conversation in done)
    pending = max(0, cell.num_conversations - len(done))
    status = worst(counts)
    message = next((c.message for c in done if c.status == status != "ok"), None)
    if status in NUMBER_STATUSES and silence and counts["ok"]:
        return CellState("error", silence, counts, pending)
    if pending and status in NUMBER_STATUSES:
        status = "interrupted"
        message = message or f"{pending} of {cell.num_conversations} conversations not run yet"
    return CellState(status, message, counts, pending)


def _silent_drafters(
    cells: Iterable[CellRecord], by_cell: Mapping[str, list[ConversationRecord]]
) -> dict[str, str]:
    """Drafters that finished conversations without one proposal, with what to say about it."""
    conversations: dict[str, list[ConversationRecord]] = defaultdict(list)
    for cell in cells:
        if not cell.is_reference:
            finished = [c for c in by_cell[cell.cell_id] if c.status in ("ok", "mismatch")]
            conversations[cell.drafter] += finished
    messages = {}
    for drafter, finished in conversations.items():
        steps = [turn.steps for conversation in finished for turn in conversation.turns]
        if finished and not any(any(columns.drafted) for columns in steps):
            num_steps = sum(len(columns.drafted) for columns in steps)
            messages[drafter] = (
                f"proposed no token in {num_steps} steps; this is plain decoding, not a measurement"
                if num_steps
                else "was never asked for a draft: every reply ended with its first token"
            )
    return messages
