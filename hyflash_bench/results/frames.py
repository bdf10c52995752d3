"""Records made into frames; the columns are described in :mod:`hyflash_bench.results.schema`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hyflash_bench.results.headline import cell_numbers
from hyflash_bench.results.records import (
    StepColumns,
    TraceRecord,
    TraceTurn,
    TurnRecord,
)
from hyflash_bench.results.reported import reported_row, reported_steps
from hyflash_bench.results.run_records import Row, RunRecords, identity
from hyflash_bench.results.schema import TABLES, conform
from hyflash_bench.results.status import NUMBER_STATUSES, SEVERITY

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["build_table"]

_DRAFTER_KINDS = ("weights", "kv", "state", "buffer")
_STEP_COLUMNS = (*StepColumns.model_fields, "drafter_bytes", "pass_bytes", "ledger_bytes")
_MEASURED_PEAKS = ("cuda_allocated_peak", "process_peak_rss")
"""What stands for the measured peak: the first of these that was measured."""


def build_table(name: str, run: RunRecords) -> pd.DataFrame:
    """Make one of :data:`~hyflash_bench.results.schema.TABLES` from the records."""
    if name == "steps":
        return conform(name, _step_columns(run))
    rows = list(_ROWS[name](run))
    wanted = [column.name for column in TABLES[name]]
    return conform(name, {column: [row.get(column) for row in rows] for column in wanted})


def _cell_rows(run: RunRecords) -> Iterator[Row]:
    turns: dict[str, list[Row]] = {}
    for row in _turn_rows(run):
        if row["status"] == "ok":
            turns.setdefault(row["cell_id"], []).append(row)
    for cell in run.manifest.cells:
        state = run.states[cell.cell_id]
        shown = turns.get(cell.cell_id, []) if state.status in NUMBER_STATUSES else []
        yield {
            **identity(cell),
            "status": state.status,
            "message": state.message,
            "num_conversations": cell.num_conversations,
            "num_pending": state.num_pending,
            **{f"num_{status}": state.counts.get(status, 0) for status in SEVERITY},
            **cell_numbers(shown),
        }


def _conversation_rows(run: RunRecords) -> Iterator[Row]:
    for conversation in run.conversations.values():
        yield {
            **run.identify(conversation),
            "trace_id": conversation.trace_id,
            "context_reached": conversation.context_reached,
            "peak_bytes": conversation.peak_bytes,
            "enforced_by": conversation.enforced_by,
            "policy_turn": conversation.policy_turn,
            "policy_step": conversation.policy_step,
            "policy_context": conversation.policy_context,
            "policy_drafter": conversation.policy_drafter,
            "num_turns": len(conversation.turns) + len(conversation.reported),
        }


def _turn_rows(run: RunRecords) -> Iterator[Row]:
    for known, turn in run.turns():
        yield {
            **known,
            **{name: value for name, value in turn if name not in ("steps", "memory", "output_tokens")},
            **_counts(turn.steps),
            **_times(turn),
            **_drafter_memory(turn),
            **_ledger(turn),
            "is_pooled": False,
        }
    for known, reported in run.reported():
        yield {**known, **reported_row(reported)}


def _counts(steps: StepColumns) -> Row:
    uncut = [index for index, cut in enumerate(steps.limit_cut) if not cut]
    counts: Row = {
        "num_steps": len(steps.drafted),
        "num_uncut_steps": len(uncut),
        "num_eos_cut_steps": sum(steps.eos_cut),
    }
    for name in ("drafted", "accepted", "committed"):
        values = getattr(steps, name)
        counts[f"num_{name}"] = sum(values)
        counts[f"num_uncut_{name}"] = sum(values[index] for index in uncut)
    return counts


def _times(turn: TurnRecord) -> Row:
    steps = turn.steps
    parts = {"draft_s": steps.draft_s, "verify_s": steps.verify_s, "observe_s": steps.observe_s}
    sums = {name: None if values is None else sum(values) for name, values in parts.items()}
    known = [value for value in sums.values() if value is not None]
    if turn.decode_s is None or len(known) < len(sums):
        return {**sums, "overhead_s": None}
    return {**sums, "overhead_s": turn.decode_s - sum(known)}


def _drafter_memory(turn: TurnRecord) -> Row:
    kinds = {kind: turn.memory.get(f"drafter_{kind}") for kind in _DRAFTER_KINDS}
    known = [size for size in kinds.values() if size is not None]
    return {
        **{f"drafter_{kind}_bytes": size for kind, size in kinds.items()},
        # A sum that leaves out a kind nobody measured would pass for the whole.
        "drafter_bytes": sum(known) if len(known) == len(kinds) else None,
        "drafter_peak_bytes": max(turn.steps.drafter_bytes or [], default=None),
        "target_kv_bytes": turn.memory.get("target_kv"),
    }


def _ledger(turn: TurnRecord) -> Row:
    """What a token of context costs, and the ledger's total beside what was measured."""
    memory, end = turn.memory, turn.context_length + sum(turn.steps.committed)
    working = [memory.get(f"drafter_{kind}") for kind in _DRAFTER_KINDS if kind != "weights"]
    known = [size for size in working if size is not None]
    kv = memory.get("target_kv")
    totals = turn.steps.ledger_bytes
    total = None if totals is None else max([*totals, turn.prompt_ledger_bytes or 0]) or None
    measured = next((memory[name] for name in _MEASURED_PEAKS if memory.get(name) is not None), None)
    return {
        "drafter_bytes_per_context_token": sum(known) / end if end and len(known) == len(working) else None,
        "target_bytes_per_context_token": kv / end if end and kv is not None else None,
        "ledger_bytes": total,
        "measured_peak_bytes": measured,
        "unexplained_bytes": None if measured is None or total is None else measured - total,
    }


def _step_columns(run: RunRecords) -> Mapping[str, Any]:
    """Explode the steps; identity is repeated by index, since there may be a million rows."""
    import numpy as np
    import pandas as pd

    names = [c.name for c in TABLES["steps"] if c.name not in (*_STEP_COLUMNS, "step", "context_length")]
    known: list[Row] = []
    lengths: list[int] = []
    steps: list[int] = []
    contexts: list[int | None] = []
    values: dict[str, list[Any]] = {name: [] for name in _STEP_COLUMNS}
    for row, turn in run.turns():
        length = len(turn.steps.drafted)
        known.append({**row, "turn": turn.turn, "mode": turn.mode})
        lengths.append(length)
        steps += range(length)
        contexts += _positions(turn)
        for name in _STEP_COLUMNS:
            column = getattr(turn.steps, name)
            values[name] += [None] * length if column is None else column
    for row, reported in run.reported():
        columns = reported_steps(reported)
        length = len(columns["committed"])
        known.append(row)
        lengths.append(length)
        steps += range(length)
        contexts += [None] * length
        for name in _STEP_COLUMNS:
            values[name] += columns.get(name) or [None] * length
    # Lists find no place in CSV, and empty texts come back from it as missing.
    values["rejected_tokens"] = [" ".join(map(str, ids or ())) or None for ids in values["rejected_tokens"]]
    values["rejected_text"] = [text or None for text in values["rejected_text"]]
    index = np.repeat(np.arange(len(known)), lengths)
    dtypes = {column.name: column.dtype for column in TABLES["steps"]}
    identity = {
        name: pd.Series([row.get(name) for row in known], dtype=dtypes[name]).take(index).array
        for name in names
    }
    return {**identity, "step": steps, "context_length": contexts, **values}


def _positions(turn: TurnRecord) -> Iterator[int]:
    """Tokens before each step: the context, the first token, and what the steps before committed."""
    position = turn.context_length + 1
    for committed in turn.steps.committed:
        yield position
        position += committed


def _trace_rows(run: RunRecords) -> Iterator[Row]:
    own = [column.name for column in TABLES["traces"]]
    for trace in run.traces.values():
        shared = {name: getattr(trace, name) for name in own if name in TraceRecord.model_fields}
        for turn in trace.turns:
            said = {name: getattr(turn, name) for name in own if name in TraceTurn.model_fields}
            logprobs = turn.logprobs
            yield {
                **shared,
                **said,
                "num_prompt_tokens": len(turn.prompt_tokens),
                "num_output_tokens": len(turn.tokens),
                "mean_logprob": sum(logprobs) / len(logprobs) if logprobs else None,
            }


def _trace_step_rows(run: RunRecords) -> Iterator[Row]:
    own = [column.name for column in TABLES["trace_steps"]]
    for trace in run.traces.values():
        shared = {name: getattr(trace, name) for name in own if name in TraceRecord.model_fields}
        for turn in trace.turns:
            said = {name: getattr(turn.steps, name, None) for name in own}
            columns = {name: column for name, column in said.items() if column is not None}
            for step, values in enumerate(zip(*columns.values(), strict=True)):
                context = turn.context_length + 1 + step
                known = {**shared, "turn": turn.turn, "step": step, "context_length": context}
                yield {**known, **dict(zip(columns, values, strict=True))}


def _memory_rows(run: RunRecords) -> Iterator[Row]:
    for known, turn in run.turns():
        for key, size in turn.memory.items():
            owner, _, kind = key.partition("_")
            yield {
                **known,
                "turn": turn.turn,
                "mode": turn.mode,
                "context_length": turn.context_length,
                "end_length": turn.context_length + turn.num_output_tokens,
                "owner": owner,
                # features and logits have no kind of their own; both are work space.
                "memory_kind": kind or "buffer",
                "bytes": size,
            }


_ROWS: Mapping[str, Callable[[RunRecords], Iterable[Row]]] = {
    "cells": _cell_rows,
    "conversations": _conversation_rows,
    "turns": _turn_rows,
    "traces": _trace_rows,
    "trace_steps": _trace_step_rows,
    "memory": _memory_rows,
}
