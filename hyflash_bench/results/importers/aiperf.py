"""aiperf's ``profile_export.jsonl``: a line for each request, with the acceptance record if there is one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from hyflash_bench.errors import DataError
from hyflash_bench.results.importers.base import MAX_STEPS, Imported, Told, counted, counts, remark, rows_of
from hyflash_bench.results.importers.engine import EngineCounts, turn_of
from hyflash_bench.results.records import ReportedTurn
from hyflash_bench.suites.formats.base import BadRow, Row

__all__ = ["is_aiperf", "read_aiperf"]

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0}
_RECORD = "spec_decode_acceptance"


def is_aiperf(row: Row) -> bool:
    """Whether a row looks like a request's record."""
    return isinstance(row.fields.get("metadata"), Mapping) and isinstance(row.fields.get("metrics"), Mapping)


def read_aiperf(path: Path) -> Imported:
    """Read the requests.

    Raises:
        DataError: A line is wrong.
    """
    found: dict[str, Told] = {}
    notes = [
        "memory: null, not told",
        "acceptance_length: steps cut by the token limit are not told apart and are counted",
    ]
    num_warm_up = num_records = 0
    spans: list[tuple[int, int]] = []
    for number, (where, row) in enumerate(rows_of(path), start=1):
        try:
            if not is_aiperf(row):
                raise BadRow("metadata and metrics are missing: no request of aiperf")
            about = row.row("metadata")
            if about.text("benchmark_phase", "profiling") != "profiling":
                num_warm_up += 1
                continue
            name = about.name("conversation_id", "x_correlation_id", "x_request_id") or f"request-{number}"
            told = found.setdefault(name, Told(name, []))
            if row.has("error"):
                told.status, told.message = "error", _message(row.fields["error"])
                continue
            spans += _span(about)
            num_records += row.has(_RECORD)
            told.turns.append(_turn(row, counted(about, "turn_index"), len(told.turns), notes))
        except BadRow as reason:
            raise DataError(f"{where}: {reason}. Correct the file.") from None
    if not found:
        raise DataError(f"{path} has no request that was measured ({num_warm_up} of warm-up).")
    if num_warm_up:
        notes.append(f"{num_warm_up} requests of warm-up are left out")
    if not num_records:
        notes.append(f"acceptance: null, no request has {_RECORD}")
    conversations = list(found.values())
    if not spans or _overlap(spans):
        notes.append("ttft_s, decode_tok_per_s: null, since requests shared the server, or it is not told")
        conversations = [_untimed(told) for told in conversations]
    else:
        notes.append("ttft_s, decode_s: as a client saw them, the network included")
    return Imported("aiperf", conversations, notes=list(dict.fromkeys(notes)))


def _turn(row: Row, index: int | None, number: int, notes: list[str]) -> ReportedTurn:
    metrics = row.row("metrics")
    output, prompt = _count(metrics, "output_sequence_length"), _count(metrics, "input_sequence_length")
    ttft, latency = _seconds(metrics, "time_to_first_token"), _seconds(metrics, "request_latency")
    values: dict[str, Any] = {"num_committed": output - 1 if output else None}
    if row.has(_RECORD):
        record = row.row(_RECORD)
        made = _engine_counts(record, counted(record, "completion_tokens") or output)
        values = turn_of(made)
        # The same remark with another number for each request would fill the record.
        notes += {"tokens behind the ends of replies were taken off" for n in made.notes if "behind the" in n}
        notes += {"steps without a draft count as steps here" for n in made.notes if "without a" in n}
    return ReportedTurn(
        turn=number if index is None else index,
        num_prompt_tokens=prompt,
        num_output_tokens=output,
        ttft_s=ttft,
        decode_s=latency - ttft if latency is not None and ttft is not None and latency > ttft else None,
        **values,
    )


def _engine_counts(record: Row, num_output_tokens: int | None) -> EngineCounts:
    drafts, accepted = counted(record, "num_spec_steps"), counted(record, "num_accepted_draft_tokens")
    if drafts is None or accepted is None:
        raise BadRow(f"key {_RECORD!r} has no num_spec_steps or num_accepted_draft_tokens")
    drafted = counted(record, "num_draft_tokens")
    ordered = counts(record, "per_step_accepted") if record.has("per_step_accepted") else None
    steps = _steps(record) if ordered is None else ordered
    if steps is not None and (len(steps) != drafts or sum(steps) != accepted):
        raise BadRow(
            f"its steps ({len(steps)} with {sum(steps)} accepted) do not add up to {drafts} with {accepted}"
        )
    if drafted is not None and accepted > drafted:
        raise BadRow(f"{accepted} accepted of {drafted} drafted tokens cannot be")
    each = counts(record, "per_step_drafted") if record.has("per_step_drafted") else None
    longest = counted(record, "num_spec_tokens")
    if each is None and longest is not None and drafted == longest * drafts:
        each = [longest] * drafts
    if each is not None and len(each) != drafts:
        raise BadRow(f"per_step_drafted has {len(each)} entries for {drafts} steps")
    return EngineCounts(drafts, drafted, accepted, 1, num_output_tokens, steps, each, ordered is not None)


def _steps(record: Row) -> list[int] | None:
    """Accepted tokens of each step, in no order, from how many steps accepted how many."""
    if not record.has("acceptance_histogram"):
        return None
    histogram = record.row("acceptance_histogram")
    found: list[int] = []
    num_steps = 0
    for key in histogram.fields:
        number = counted(histogram, key)
        if not re.fullmatch(r"[0-9]{1,6}", key) or number is None:
            raise BadRow(f"acceptance_histogram: {key!r} is no number of tokens with a number of steps")
        num_steps += number
        if num_steps <= MAX_STEPS:
            found += [int(key)] * number
    return sorted(found) if num_steps <= MAX_STEPS else None


def _value(metrics: Row, key: str) -> tuple[float, str] | None:
    found = metrics.fields.get(key)
    if not isinstance(found, Mapping):
        return None
    value, unit = found.get("value"), found.get("unit", "")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value), str(unit)


def _seconds(metrics: Row, key: str) -> float | None:
    found = _value(metrics, key)
    if found is None or found[1] not in _SECONDS or not 0 <= found[0] < 1e15:
        return None
    return found[0] * _SECONDS[found[1]]


def _count(metrics: Row, key: str) -> int | None:
    found = _value(metrics, key)
    return int(found[0]) if found is not None and 0 <= found[0] < 1e15 else None


def _message(error: Any) -> str:
    said = error.get("message") if isinstance(error, Mapping) else error
    return remark(said or "failed")


def _span(about: Row) -> list[tuple[int, int]]:
    start, end = counted(about, "request_start_ns"), counted(about, "request_end_ns")
    return [] if start is None or end is None else [(start, end)]


def _overlap(spans: list[tuple[int, int]]) -> bool:
    """Whether two requests were under way at once."""
    ordered = sorted(spans)
    return any(after[0] < before[1] for before, after in pairwise(ordered))


def _untimed(told: Told) -> Told:
    told.turns = [turn.model_copy(update={"ttft_s": None, "decode_s": None}) for turn in told.turns]
    return told
