"""Imported turns as rows of tables: what their files do not say stays missing."""

from __future__ import annotations

from typing import Any

from hyflash_bench.results.records import ReportedTurn, StepColumns

__all__ = ["reported_row", "reported_steps"]

_SUMS = ("steps", "drafted", "accepted", "committed")
_READ_OF_TURNS = ("drafter_bytes", "decode_s")
"""What the cells table reads off every turn."""
_STEP_COLUMNS = tuple(StepColumns.model_fields)


def reported_row(turn: ReportedTurn) -> dict[str, Any]:
    """What the turns table says of an imported turn."""
    return {
        **dict.fromkeys(_READ_OF_TURNS),
        **{name: value for name, value in turn if name not in _STEP_COLUMNS},
        **{f"num_uncut_{name}": getattr(turn, f"num_{name}") for name in _SUMS},
        "lossless": "not_judged",
    }


def reported_steps(turn: ReportedTurn) -> dict[str, list[Any]]:
    """What the steps table says of its steps; empty where only sums are known."""
    length = len(turn.committed or turn.accepted or ())
    cuts = dict.fromkeys(("eos_cut", "limit_cut"), [False] * length)
    told = {name: cuts.get(name, getattr(turn, name, None)) for name in _STEP_COLUMNS}
    return {name: [None] * length if column is None else column for name, column in told.items()}
