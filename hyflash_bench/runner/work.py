"""A piece of work: one conversation with all the cells that meet on it. Plain data, no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hyflash_bench.results.records import ConversationRecord, TraceRecord
from hyflash_bench.spec.base import Spec
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.sampling import Sampling

__all__ = ["Work", "WorkCell", "WorkResult"]


class WorkCell(Spec):
    """A cell that needs its conversation measured."""

    cell_id: str
    drafter: DrafterSpec
    memory_cap_bytes: int | None
    repeat: int


class Work(Spec):
    """What a worker is sent."""

    trace_id: str
    suite: str
    item_id: str
    sampling: Sampling
    seed: int
    max_new_tokens: int
    draft_budget: int
    mode: Literal["both", "replay", "live"]
    cells: tuple[WorkCell, ...] = Field(min_length=1)
    known: TraceRecord | None = Field(None, description="The trace, if an earlier pass recorded it.")
    num_turns: int = 1
    context_length: int | None = Field(None, description="Of the first prompt, where the suite fixes it.")

    @property
    def drafters(self) -> tuple[DrafterSpec, ...]:
        """Each drafter once, in the order asked for."""
        return tuple({cell.drafter.label: cell.drafter for cell in self.cells}.values())


class WorkResult(Spec):
    """What a worker sends back."""

    trace: TraceRecord | None = Field(description="Null when the work was refused or the trace known.")
    conversations: tuple[ConversationRecord, ...]
