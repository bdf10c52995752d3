"""Columns of steps: a list a quantity, and the ledger's by owner and kind.

On disk a column of numbers that says the same at every step says it once; in memory it is a list like
the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from hyflash_bench.spec.base import Spec

__all__ = ["DRAFTER_KINDS", "PASS_PARTS", "Columns", "StepLedger", "TraceSteps", "added_up"]

DRAFTER_KINDS = ("drafter_kv_bytes", "drafter_state_bytes", "drafter_buffer_bytes")
"""Columns of what a drafter holds of the text."""
PASS_PARTS = ("features_bytes", "logits_bytes", "workspace_bytes", "rejected_kv_bytes")
"""Columns of what a pass of the target needs for a moment."""


class Columns(Spec):
    """Lists of one length; null for what was not measured."""

    length_of: ClassVar[str]
    """The column that is always written out, so that it says how many steps there are."""

    @model_validator(mode="before")
    @classmethod
    def _write_out(cls, values: Any) -> Any:
        steps = values.get(cls.length_of) if isinstance(values, Mapping) else None
        if not isinstance(steps, list):
            return values
        return {
            name: [column] * len(steps) if isinstance(column, int | float) else column
            for name, column in values.items()
        }

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        lengths = {name: len(column) for name, column in self if column is not None}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns differ in length: {lengths}")
        return self

    @model_serializer(mode="wrap")
    def _say_once(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        columns: dict[str, Any] = write(self)
        return {
            name: column[0] if column and name != self.length_of and _is_constant(column) else column
            for name, column in columns.items()
        }


class _TargetLedger(Columns):
    """What is held for the target, and what its passes need for a moment, in bytes."""

    target_weights_bytes: list[int] | None = Field(
        None, description="The target's weights, as loaded or of the bits that a cap counts them with."
    )
    target_kv_bytes: list[int] | None = Field(None, description="The target's cache in use, after the step.")
    logits_bytes: list[int] | None = Field(None, description="Logits of the step's pass.")
    workspace_bytes: list[int] | None = Field(
        None, description="Temporary tensors of the pass at the layer that needs most."
    )


class StepLedger(_TargetLedger):
    """The same with a drafter, at each of its steps."""

    features_bytes: list[int] | None = Field(None, description="Features that the drafter reads of the pass.")
    drafter_weights_bytes: list[int] | None = Field(
        None, description="The drafter's own weights; those that it shares with the target are not."
    )
    drafter_kv_bytes: list[int] | None = Field(None, description="Its keys and values, after the step.")
    drafter_state_bytes: list[int] | None = Field(None, description="Its state of fixed size.")
    drafter_buffer_bytes: list[int] | None = Field(None, description="All else that it holds.")
    rejected_kv_bytes: list[int] | None = Field(
        None, description="Rows of the target's cache that verification dropped again."
    )

    @property
    def drafter_bytes(self) -> list[int] | None:
        """All kinds of the drafter but weights."""
        return added_up(getattr(self, name) for name in DRAFTER_KINDS)

    @property
    def pass_bytes(self) -> list[int] | None:
        """What exists during the pass only."""
        return added_up(getattr(self, name) for name in PASS_PARTS)

    @property
    def ledger_bytes(self) -> list[int] | None:
        """All of it at the height of each step: what a cap is held against."""
        return added_up(getattr(self, name) for name in StepLedger.model_fields)


class TraceSteps(_TargetLedger):
    """The target's own passes after the first token, a token each."""

    length_of = "target_kv_bytes"

    features_held_bytes: list[int] | None = Field(
        None,
        description="Tensors of features that are kept of the conversation for the drafters to read, after "
        "the pass; the harness's own, no part of the ledger.",
    )

    @property
    def ledger_bytes(self) -> list[int] | None:
        """What plain decoding holds at the height of each pass."""
        return added_up(getattr(self, name) for name in _TargetLedger.model_fields)


def added_up(columns: Iterable[list[int] | None]) -> list[int] | None:
    """Sums by step; None if a column is not known, since a sum without it would pass for the whole."""
    known: list[list[int]] = []
    for column in columns:
        if column is None:
            return None
        known.append(column)
    return [sum(parts) for parts in zip(*known, strict=True)]


def _is_constant(column: list[Any]) -> bool:
    """Whether it is one number throughout; texts and lists are written out."""
    return isinstance(column[0], int | float) and all(value == column[0] for value in column)
