"""What became of a cell, told from its conversations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hyflash_bench.errors import DataError
from hyflash_bench.results.records import CellRecord, ConversationRecord, Manifest, Status

__all__ = ["NUMBER_STATUSES", "SEVERITY", "CellState", "cell_states", "judged", "worst"]

Pair = tuple[str, str]  # cell_id, item_id

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


def judged(
    manifest: Manifest, conversations: Mapping[Pair, ConversationRecord]
) -> dict[Pair, ConversationRecord]:
    """The conversations of a run, those of silent drafters turned into errors.

    A drafter that proposed nothing in the whole run has not been measured: plain decoding under its
    name would look like a result of exactly 1.0.

    Raises:
        DataError: A conversation belongs to no cell of the manifest.
    """
    drafters = {cell.cell_id: cell.drafter for cell in manifest.cells if not cell.is_reference}
    known = {cell.cell_id for cell in manifest.cells}
    for conversation in conversations.values():
        if conversation.cell_id not in known:
            raise DataError(
                f"Run {manifest.run_id}: conversation {conversation.item_id} belongs to cell "
                f"{conversation.cell_id}, which the manifest does not know. Restore manifest.json."
            )
    silence = _silence(drafters, conversations.values())
    return {
        pair: conversation.model_copy(update={"status": "error", "message": message})
        if conversation.status == "ok" and (message := silence.get(drafters.get(pair[0], "")))
        else conversation
        for pair, conversation in conversations.items()
    }


def cell_states(manifest: Manifest, conversations: Iterable[ConversationRecord]) -> dict[str, CellState]:
    """State of every cell of a run, from its judged conversations."""
    by_cell: dict[str, list[ConversationRecord]] = {cell.cell_id: [] for cell in manifest.cells}
    for conversation in conversations:
        by_cell[conversation.cell_id].append(conversation)
    return {cell.cell_id: _state(cell, by_cell[cell.cell_id]) for cell in manifest.cells}


def _state(cell: CellRecord, done: list[ConversationRecord]) -> CellState:
    counts = Counter(conversation.status for conversation in done)
    pending = max(0, cell.num_conversations - len(done))
    status = worst([*counts, "interrupted"] if pending else counts)
    message = next((c.message for c in done if c.status == status != "ok"), None)
    if message is None and status == "interrupted":
        message = f"{pending} of {cell.num_conversations} conversations not run yet"
    return CellState(status, message, counts, pending)


def _silence(drafters: Mapping[str, str], conversations: Iterable[ConversationRecord]) -> dict[str, str]:
    """Drafters that finished conversations without one proposal, with what to say about it.

    Args:
        drafters: Drafter of each cell that is not a reference.
        conversations: All of the run.
    """
    num_steps: Counter[str] = Counter()
    num_drafted: Counter[str] = Counter()
    finished = [c for c in conversations if c.status in ("ok", "mismatch") and c.cell_id in drafters]
    for conversation in finished:
        drafter = drafters[conversation.cell_id]
        num_steps[drafter] += sum(len(turn.steps.drafted) for turn in conversation.turns)
        num_drafted[drafter] += sum(sum(turn.steps.drafted) for turn in conversation.turns)
        num_steps[drafter] += sum(turn.num_steps or 0 for turn in conversation.reported)
        # Not to know how much was drafted is no silence.
        num_drafted[drafter] += sum(
            1 if turn.num_drafted is None else turn.num_drafted for turn in conversation.reported
        )
    return {
        drafter: f"proposed no token in {num_steps[drafter]} steps; this is plain decoding, not a "
        "measurement (a threshold as min_confidence may be too high)"
        if num_steps[drafter]
        else "was never asked for a draft: every reply ended with its first token (see --max-new-tokens)"
        for drafter in num_steps
        if not num_drafted[drafter]
    }
