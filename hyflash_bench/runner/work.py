"""A piece of work: one conversation with all the cells that meet on it. Plain data, no torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field

from hyflash_bench.results.records import ConversationRecord, TraceRecord
from hyflash_bench.spec.base import Spec
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.plan import Cap, CapKind, CapPolicy
from hyflash_bench.spec.sampling import Sampling

__all__ = ["Work", "WorkCell", "WorkResult"]


class WorkCell(Spec):
    """A cell that needs its conversation measured."""

    cell_id: str
    drafter: DrafterSpec
    memory_cap_bytes: int | None
    repeat: int
    cap_kind: CapKind = "simulated"
    cap_policy: CapPolicy = "stop"
    weight_bits: int = 32

    @classmethod
    def under(cls, cap: Cap | None, *, cell_id: str, drafter: DrafterSpec, repeat: int) -> Self:
        """The cell with a cap, or without one."""
        if cap is None:
            return cls(cell_id=cell_id, drafter=drafter, memory_cap_bytes=None, repeat=repeat)
        return cls(
            cell_id=cell_id,
            drafter=drafter,
            memory_cap_bytes=cap.num_bytes,
            repeat=repeat,
            cap_kind=cap.kind,
            cap_policy=cap.policy,
            weight_bits=cap.weight_bits,
        )

    @property
    def cap(self) -> Cap | None:
        """The cap, without the device whose it is: that does not matter to what is measured."""
        if self.memory_cap_bytes is None:
            return None
        return Cap(self.memory_cap_bytes, self.cap_kind, self.cap_policy, weight_bits=self.weight_bits)


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
    enforced_cap_bytes: int | None = Field(
        None, description="Done in a worker that is limited to so much; null for an unlimited one."
    )

    @property
    def drafters(self) -> tuple[DrafterSpec, ...]:
        """Each drafter once, in the order asked for."""
        return tuple({cell.drafter.label: cell.drafter for cell in self.cells}.values())


class WorkResult(Spec):
    """What a worker sends back."""

    trace: TraceRecord | None = Field(description="Null when the work was refused or the trace known.")
    conversations: tuple[ConversationRecord, ...]
