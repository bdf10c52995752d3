"""A plausible run folder: several drafters, suites, context lengths, samplings and every status.

Everything is drawn from a seed, so the same call writes the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from hyflash_bench.results.columns import TraceSteps
from hyflash_bench.results.records import (
    CellRecord,
    ConversationRecord,
    Manifest,
    Status,
    StepColumns,
    TraceRecord,
    TraceTurn,
    TurnRecord,
)

WHEN = "2026-11-29T12:00:00Z"
CAP_BYTES = 512 * 2**20
MAX_NEW_TOKENS = 48
WEIGHTS_BYTES = 538_000_000
KV_BYTES = 46_080


@dataclass(frozen=True)
class FakeDrafter:
    """How a made-up drafter behaves."""

    label: str
    num_draft_tokens: int = 0
    keep: float = 0.0  # chance that a slot is accepted
    decay: float = 0.0  # how much of it a context of 8k costs
    draft_s: float = 0.0
    weights_bytes: int = 0
    kv_bytes_per_token: int = 0
    state_bytes: int = 0
    failure: Status = "ok"

    @property
    def name(self) -> str:
        """The label without its options."""
        return self.label.partition(":")[0]

    @property
    def is_reference(self) -> bool:
        """Whether this is plain decoding."""
        return self.name == "autoregressive"


REFERENCE = FakeDrafter("autoregressive")
DRAFTERS = (
    REFERENCE,
    FakeDrafter("prompt-lookup", 8, keep=0.45, draft_s=0.0004),
    FakeDrafter("full-context", 8, 0.62, 0.35, 0.012, weights_bytes=14_000_000, kv_bytes_per_token=1536),
    FakeDrafter("hyflash:window=256", 8, 0.66, 0.05, 0.010, weights_bytes=14_500_000, state_bytes=400_000),
)
FAILING = (
    FakeDrafter("silent"),
    FakeDrafter("too-big", 8, 0.6, draft_s=0.02, kv_bytes_per_token=60_000, failure="oom"),
    FakeDrafter("short-sighted", 4, 0.5, draft_s=0.005, failure="incompatible"),
    FakeDrafter("leaky", 4, 0.7, draft_s=0.005, failure="mismatch"),
    FakeDrafter("slow", 4, 0.5, draft_s=0.5, failure="timeout"),
    FakeDrafter("crashing", 4, 0.5, draft_s=0.005, failure="error"),
    FakeDrafter("unplugged", 4, 0.5, draft_s=0.005, failure="interrupted"),
)


@dataclass(frozen=True)
class FakeItem:
    """A made-up conversation."""

    item_id: str
    suite: str
    task: str
    kind: str
    rung: int | None
    num_turns: int


def items(num_per_group: int = 6) -> list[FakeItem]:
    """A chat suite of two turns and a long-context suite of three lengths."""
    chats = [
        FakeItem(f"quick/chat/{kind}-{index}", "quick", "chat", kind, None, 2)
        for kind in ("question", "code")
        for index in range(num_per_group)
    ]
    documents = [
        FakeItem(f"longctx/documentation/{index}/{rung}", "longctx", "documentation", kind, rung, 1)
        for rung in (512, 2048, 8192)
        for index in range(num_per_group)
        for kind in [("question", "summary", "continuation")[index % 3]]
    ]
    return chats + documents


def steps_of(drafter: FakeDrafter, num_tokens: int, context: int, ends: str, rng: Random) -> StepColumns:
    """Walk a reply of ``num_tokens`` tokens, the first of which is no step."""
    keep = max(0.0, drafter.keep * (1 - drafter.decay * context / 8192))
    rows: list[dict[str, Any]] = []
    left, written = num_tokens - 1, 1
    while left > 0:
        drafted = drafter.num_draft_tokens
        accepted = 0
        while accepted < drafted and rng.random() < keep:
            accepted += 1
        committed = min(accepted + 1, left)
        last = committed == left
        rows.append(
            {
                "drafted": drafted,
                "depth": drafted,
                "accepted": accepted,
                "committed": committed,
                "eos_cut": last and ends == "eos",
                "limit_cut": ends == "limit" and committed < accepted + 1,
                "rejected_tokens": [*range(accepted, drafted)],
                "rejected_text": "".join(f" <i>slot{slot}</i>\n" for slot in range(accepted, drafted)),
                "draft_s": drafter.draft_s * rng.uniform(0.9, 1.1),
                "verify_s": (0.05 + context * 5e-6) * (1 + 0.02 * drafted) * rng.uniform(0.95, 1.05),
                "observe_s": drafter.draft_s * 0.1,
                **ledger_of(drafter, context + written, drafted, committed),
            }
        )
        left -= committed
        written += committed
    names = [name for name in StepColumns.model_fields if not rows or name in rows[0]]
    return StepColumns(**{name: [row[name] for row in rows] for name in names})


def ledger_of(drafter: FakeDrafter, context: int, drafted: int, committed: int) -> dict[str, int]:
    """What is held at the height of a step that starts with so many tokens of context."""
    return {
        "target_weights_bytes": WEIGHTS_BYTES,
        "target_kv_bytes": KV_BYTES * (context - 1 + committed),
        "drafter_weights_bytes": drafter.weights_bytes,
        "drafter_kv_bytes": drafter.kv_bytes_per_token * context,
        "drafter_state_bytes": drafter.state_bytes,
        "drafter_buffer_bytes": 0,
        "features_bytes": 0,
        "logits_bytes": 4000 * (1 + drafted),
        "workspace_bytes": 100 * context,
        "rejected_kv_bytes": KV_BYTES * (1 + drafted - committed),
    }


def trace_steps(context: int, num_tokens: int) -> TraceSteps:
    """The same of the target alone, pass by pass."""
    rows = [ledger_of(REFERENCE, context + step, 0, 1) for step in range(1, num_tokens)]
    names = [name for name in TraceSteps.model_fields if name in rows[0]]
    return TraceSteps(**{name: [row[name] for row in rows] for name in names})


def trace_of(item: FakeItem, temperature: float, rng: Random) -> TraceRecord:
    """What the made-up target says."""
    turns, context = [], item.rung or rng.randint(40, 90)
    for turn in range(item.num_turns):
        ends = "eos" if rng.random() < 0.5 else "limit"
        length = rng.randint(12, MAX_NEW_TOKENS - 1) if ends == "eos" else MAX_NEW_TOKENS
        repeated = rng.random() ** 3
        turns.append(
            TraceTurn(
                turn=turn,
                context_length=context,
                prompt_tokens=[rng.randrange(1000) for _ in range(min(context, 50))],
                tokens=[rng.randrange(1000) for _ in range(length)],
                logprobs=[-rng.random() for _ in range(length)],
                gaps=[rng.random() * 4 for _ in range(length)],
                stop_reason="eos" if ends == "eos" else "limit",
                text=f"<b>reply</b> to {item.item_id}, turn {turn}",
                offsets=[min(token, len(f"<b>reply</b> to {item.item_id}")) for token in range(length)],
                request=f"<i>please</i> reply to {item.item_id}",
                repeated_share=repeated,
                copied_share=rng.random(),
                degenerate=repeated > 0.7,
                score=round(rng.random(), 3) if item.kind == "question" else None,
                steps=trace_steps(context, length),
            )
        )
        context += length + 30
    label = "greedy" if temperature == 0 else f"T={temperature:g}"
    return TraceRecord(
        trace_id=f"{item.item_id}@{label}",
        item_id=item.item_id,
        suite=item.suite,
        task=item.task,
        kind=item.kind,
        category=item.kind,
        content_hash="c" * 64,
        sampling=label,
        temperature=temperature,
        seed=0,
        extrapolated=False,
        context_rung=item.rung,
        turns=turns,
        prefill_s=(item.rung or 100) / 300,
        decode_s=sum(len(turn.tokens) for turn in turns) * 0.055,
        recorded_at=WHEN,
    )


def turn_of(drafter: FakeDrafter, said: TraceTurn, mode: str, rng: Random) -> TurnRecord:
    """One turn of a made-up drafter along a trace."""
    live = mode == "live"
    steps = steps_of(drafter, len(said.tokens), said.context_length, said.stop_reason, rng)
    if not live:
        steps = steps.model_copy(update={"draft_s": None, "verify_s": None, "observe_s": None})
    parts = [steps.draft_s or [], steps.verify_s or [], steps.observe_s or []]
    end = said.context_length + len(said.tokens)
    prefill_s, observe_s = said.context_length / 320, said.context_length * drafter.draft_s / 200
    lossless = ("mismatch" if drafter.failure == "mismatch" else "identical") if live else "not_judged"
    return TurnRecord(
        turn=said.turn,
        mode="live" if live else "replay",
        context_length=said.context_length,
        num_prompt_tokens=len(said.prompt_tokens),
        num_output_tokens=len(said.tokens),
        stop_reason=said.stop_reason,
        steps=steps,
        prefill_s=prefill_s if live else None,
        observe_prompt_s=observe_s if live else None,
        ttft_s=prefill_s + observe_s + 0.002 if live else None,
        decode_s=sum(map(sum, parts)) * 1.03 if live else None,
        lossless=lossless,  # type: ignore[arg-type]
        divergence_position=5 if lossless == "mismatch" else None,
        divergence_gap=1.5 if lossless == "mismatch" else None,
        memory={
            "target_weights": WEIGHTS_BYTES,
            "target_kv": KV_BYTES * end,
            "features": 0,
            "drafter_weights": drafter.weights_bytes,
            "drafter_kv": drafter.kv_bytes_per_token * end,
            "drafter_state": drafter.state_bytes,
            "drafter_buffer": 0,
            "process_rss": WEIGHTS_BYTES + 300_000_000,
        },
    )


def cell_of(
    drafter: FakeDrafter, suite: str, task: str, cap: int | None, temperature: float, planned: int
) -> CellRecord:
    """Identity of a made-up cell."""
    label = "greedy" if temperature == 0 else f"T={temperature:g}"
    return CellRecord(
        cell_id=f"{drafter.label}.{suite}.{task}.{label}.{cap or 'uncapped'}",
        target="tiny",
        target_id="target-0001",
        drafter=drafter.label,
        drafter_name=drafter.name,
        drafter_options={"num_draft_tokens": drafter.num_draft_tokens},
        is_reference=drafter.is_reference,
        suite=suite,
        suite_hash=f"hash-{suite}",
        task=task,
        memory_cap_bytes=cap,
        cap_kind=None if cap is None else "simulated",
        temperature=temperature,
        top_k=None,
        top_p=None,
        sampling=label,
        seed=0,
        repeat=0,
        max_new_tokens=MAX_NEW_TOKENS,
        draft_budget=16,
        num_conversations=planned,
    )


def conversation_of(
    drafter: FakeDrafter, cell: CellRecord, item: FakeItem, trace: TraceRecord, rng: Random
) -> ConversationRecord:
    """One made-up conversation; failing drafters fail where they would."""
    context = item.rung or 0
    status: Status = "ok"
    if drafter.failure == "mismatch":
        status = "mismatch"
    elif drafter.failure != "ok" and (context >= 2048 or item.item_id.endswith("code-0")):
        status = drafter.failure
    if cell.memory_cap_bytes is not None and WEIGHTS_BYTES + KV_BYTES * context > 8e8:
        status = "oom"
    turns = [turn_of(drafter, said, mode, rng) for said in trace.turns for mode in ("replay", "live")]
    return ConversationRecord(
        cell_id=cell.cell_id,
        item_id=item.item_id,
        trace_id=trace.trace_id,
        status=status,
        message=None if status == "ok" else f"made up: {status} <script>",
        context_reached=context // 2 if status == "oom" else None,
        peak_bytes=800_000_000 if status == "oom" else None,
        turns=turns if status in ("ok", "mismatch") else [],
        recorded_at=WHEN,
    )


def records(
    drafters: Sequence[FakeDrafter] = DRAFTERS + FAILING, *, num_per_group: int = 6, seed: int = 0
) -> tuple[Manifest, list[TraceRecord], list[ConversationRecord]]:
    """The records of a run, nothing written."""
    work = items(num_per_group)
    cells, traces, conversations = [], [], []
    for suite, task, temperature, cap in _groups():
        chosen = [item for item in work if item.suite == suite]
        said = [trace_of(item, temperature, Random(f"{seed}{item.item_id}{temperature}")) for item in chosen]
        traces += [trace for trace in said if cap is None]
        for drafter in drafters:
            cell = cell_of(drafter, suite, task, cap, temperature, len(chosen))
            cells.append(cell)
            for item, trace in zip(chosen, said, strict=True):
                rng = Random(f"{seed}{cell.cell_id}{item.item_id}")
                conversations.append(conversation_of(drafter, cell, item, trace, rng))
    return manifest_of(cells), traces, conversations


def _groups() -> Iterator[tuple[str, str, float, int | None]]:
    yield "quick", "chat", 0.0, None
    yield "quick", "chat", 0.7, None
    yield "longctx", "documentation", 0.0, None
    yield "longctx", "documentation", 0.0, CAP_BYTES


def manifest_of(cells: Sequence[CellRecord], **changes: Any) -> Manifest:
    """A manifest around some cells."""
    values: dict[str, Any] = {
        "run_id": "20261129-1200-demo",
        "created_at": WHEN,
        "finished_at": "2026-11-29T13:00:00Z",
        "package_version": "0.1.0",
        "command": ["hyflash", "run", "--suite", "quick"],
        "request": {"suites": ["quick", "longctx"]},
        "resolved": {"suites": ["quick", "longctx"], "seed": 0},
        "target": {"name": "tiny", "fingerprint": "f" * 16, "dtype": "float32", "backend": "cpu"},
        "suites": [
            {
                "name": name,
                "version": 1,
                "title": f"The {name} suite",
                "description": "Made up.",
                "licence": "CC0-1.0",
                "suite_hash": f"hash-{name}",
                "spec": {},
            }
            for name in ("quick", "longctx")
        ],
        "environment": {"python": "3.11", "torch": "2.13.0", "cpu": "made up", "num_threads": 2},
        "cells": list(cells),
    }
    return Manifest(**{**values, **changes})


def make_run(
    folder: Path,
    drafters: Sequence[FakeDrafter] = DRAFTERS + FAILING,
    *,
    num_per_group: int = 6,
    seed: int = 0,
    **changes: Any,
) -> Path:
    """Write a run folder and return it.

    Args:
        folder: The run folder itself.
        drafters: What ran; :data:`DRAFTERS` alone is a run without a failure but for the cap.
        num_per_group: Conversations per kind of chat and per context length.
        seed: Of everything drawn.
        changes: Fields of the manifest to set otherwise.
    """
    manifest, traces, conversations = records(drafters, num_per_group=num_per_group, seed=seed)
    manifest = manifest.model_copy(update=changes)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps(manifest.model_dump(), indent=2), encoding="utf-8")
    _write_lines(folder / "traces.jsonl", traces)
    _write_lines(folder / "conversations.jsonl", conversations)
    return folder


def _write_lines(path: Path, lines: Sequence[TraceRecord | ConversationRecord]) -> None:
    text = "".join(json.dumps(line.model_dump()) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8", newline="\n")
