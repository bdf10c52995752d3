"""Everything that a run folder says, with what was concluded from it over the whole run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hyflash_bench.results.records import (
    CellRecord,
    ConversationRecord,
    Manifest,
    ReportedTurn,
    TraceRecord,
    TurnRecord,
)
from hyflash_bench.results.schema import CONTEXT, IDENTITY
from hyflash_bench.results.status import CellState, cell_states, judged

__all__ = ["Row", "RunRecords", "identity"]

Row = dict[str, Any]
"""A row of a table, by column."""


@dataclass(frozen=True)
class RunRecords:
    """Everything a run folder says.

    Attributes:
        manifest: Identity of the run and of its cells.
        traces: By trace id.
        stored: Conversations as written, by cell and item.
    """

    manifest: Manifest
    traces: Mapping[str, TraceRecord]
    stored: Mapping[tuple[str, str], ConversationRecord]

    @cached_property
    def conversations(self) -> dict[tuple[str, str], ConversationRecord]:
        """Conversations as judged over the whole run."""
        return judged(self.manifest, self.stored)

    @cached_property
    def cells(self) -> dict[str, CellRecord]:
        """Cells by id."""
        return {cell.cell_id: cell for cell in self.manifest.cells}

    @cached_property
    def states(self) -> dict[str, CellState]:
        """What became of each cell."""
        return cell_states(self.manifest, self.conversations.values())

    @cached_property
    def replayed(self) -> set[str]:
        """Cells with a replayed turn; only those turns count for acceptance, nothing twice."""
        return {
            conversation.cell_id
            for conversation in self.conversations.values()
            if any(turn.mode == "replay" for turn in conversation.turns)
        }

    @cached_property
    def contexts(self) -> dict[tuple[str, str], Row]:
        """What is known of each conversation, also for cells that failed before its trace."""
        return {
            (trace.suite, trace.item_id): {column.name: getattr(trace, column.name) for column in CONTEXT}
            for trace in self.traces.values()
        }

    def identify(self, conversation: ConversationRecord) -> Row:
        """The columns that every row about a conversation begins with."""
        state = self.states[conversation.cell_id]
        cell = self.cells[conversation.cell_id]
        unknown = {
            "item_id": conversation.item_id,
            "kind": conversation.kind,
            "category": conversation.category,
        }
        return {
            **identity(cell),
            **self.contexts.get((cell.suite, conversation.item_id), unknown),
            "status": conversation.status,
            "cell_status": state.status,
            "message": conversation.message,
        }

    def turns(self) -> Iterator[tuple[Row, TurnRecord]]:
        """Every turn with the identity of its conversation and what the trace says of it."""
        for conversation in self.conversations.values():
            known = self.identify(conversation)
            said = self._said(conversation)
            for turn in conversation.turns:
                scored = turn.mode == "replay" or conversation.cell_id not in self.replayed
                yield {**known, **said.get(turn.turn, {}), "is_scored": scored}, turn

    def reported(self) -> Iterator[tuple[Row, ReportedTurn]]:
        """Every imported turn with the identity of its conversation; what it was came from a real loop."""
        for conversation in self.conversations.values():
            known = self.identify(conversation)
            for turn in conversation.reported:
                yield {**known, "turn": turn.turn, "mode": "live", "is_scored": True}, turn

    def _said(self, conversation: ConversationRecord) -> dict[int, Row]:
        trace = self.traces.get(conversation.trace_id or "")
        names = ("degenerate", "repeated_share", "copied_share", "score")
        turns = trace.turns if trace else []
        return {turn.turn: {name: getattr(turn, name) for name in names} for turn in turns}


def identity(cell: CellRecord) -> Row:
    """The columns that say which cell it is."""
    return {column.name: getattr(cell, column.name) for column in IDENTITY}
