"""How long a report of a large run takes, how big it is, and how soon a browser can use it.

Builds a run of 6 drafters, 5 context lengths and 100 conversations at each (about 100,000 steps) through the
writer, with made-up numbers, and prints what its report costs.

    python benchmarks/report.py [--conversations 100] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

from plotly.offline import get_plotlyjs

sys.path.insert(0, str(Path(__file__).parents[1]))

from hyflash_bench.report.page import write_report
from hyflash_bench.results import RunWriter, load_run
from hyflash_bench.results.records import (
    CellRecord,
    ConversationRecord,
    Manifest,
    StepColumns,
    TraceRecord,
    TraceTurn,
    TurnRecord,
)

WHEN = "2026-11-29T12:00:00Z"
RUNGS = (512, 1024, 2048, 4096, 8192)
KINDS = ("question", "summary", "continuation", "code", "needle")
WORDS = ("the", "a", "of", "draft", "token", "context", "memory", "window", "step", "document")
NUM_TOKENS = 32
DRAFTERS = {
    "autoregressive": (0, 0.0, 0.0),
    "prompt-lookup": (8, 0.35, 0.1),
    "suffix": (8, 0.40, 0.1),
    "full-context": (7, 0.55, 0.4),
    "hyflash": (7, 0.58, 0.1),
    "eagle": (5, 0.50, 0.3),
}
"""Slots of a draft, chance that one is accepted, and what 8k of context costs of it."""
BYTES = {
    "autoregressive": (0, 0),
    "prompt-lookup": (0, 8),
    "suffix": (0, 96),
    "full-context": (47_000_000, 3_072),
    "hyflash": (46_000_000, 48),
    "eagle": (31_000_000, 1_536),
}
"""Of its weights, and for each token of context."""


def main() -> None:
    """Build, report, load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=100)
    parser.add_argument("--keep", type=Path, help="Folder for the run and its report.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary)
        measure(folder, given.conversations)


def measure(folder: Path, num_conversations: int) -> None:
    """Print what a report of such a run costs."""
    run = write_run(folder / "run", num_conversations)
    num_steps = len(load_run(run).steps)
    started = time.perf_counter()
    page = write_report(load_run(run), folder / "report.html")
    took = time.perf_counter() - started
    size = page.stat().st_size
    own = size - len(get_plotlyjs().encode())
    print(f"{num_steps:,} steps of {len(DRAFTERS)} drafters")
    print(f"report: {took:.1f} s (wanted: under 15 s)")
    print(f"size: {size / 1e6:.1f} MB, besides plotly.js {own / 1e6:.1f} MB (wanted: under 8 MB)")
    seconds = seconds_to_use(page)
    if seconds is None:
        print("in a browser: not measured, no playwright or no Chromium")
    else:
        print(f"in a browser: usable after {seconds:.2f} s (wanted: under 2 s)")


def seconds_to_use(page: Path) -> float | None:
    """From opening the page to all its controls at work; the median of three."""
    try:
        from playwright.sync_api import sync_playwright

        from tests.report.browser import chromium_path
    except ImportError:
        return None
    chromium = chromium_path()
    if chromium is None:
        return None
    taken = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(3):
            tab = browser.new_page()
            started = time.perf_counter()
            tab.goto(page.resolve().as_uri())
            tab.wait_for_selector("html[data-ready]")
            taken.append(time.perf_counter() - started)
            tab.close()
        browser.close()
    return sorted(taken)[1]


def write_run(folder: Path, num_conversations: int) -> Path:
    """Make up a run and store it through the writer."""
    cells = {drafter: cell_of(drafter, num_conversations * len(RUNGS)) for drafter in DRAFTERS}
    with RunWriter(folder) as writer:
        writer.write_manifest(manifest_of([*cells.values()]))
        for rung in RUNGS:
            for number in range(num_conversations):
                trace = trace_of(rung, number)
                writer.append_trace(trace)
                for drafter, cell in cells.items():
                    writer.append_conversation(conversation_of(drafter, cell, trace))
        writer.write_tables()
    return folder


def cell_of(drafter: str, num_conversations: int) -> CellRecord:
    """One drafter on the made-up suite."""
    values: dict[str, Any] = {
        "cell_id": drafter,
        "target": "made-up",
        "target_id": "made-up",
        "drafter": drafter,
        "drafter_name": drafter,
        "drafter_options": {},
        "is_reference": drafter == "autoregressive",
        "suite": "ladder",
        "suite_hash": "made-up",
        "task": "documents",
        "memory_cap_bytes": None,
        "cap_kind": None,
        "temperature": 0.0,
        "top_k": None,
        "top_p": None,
        "sampling": "greedy",
        "seed": 0,
        "repeat": 0,
        "max_new_tokens": NUM_TOKENS,
        "draft_budget": 8,
        "num_conversations": num_conversations,
    }
    return CellRecord(**values)


def manifest_of(cells: list[CellRecord]) -> Manifest:
    """The run around the cells."""
    suite = {"name": "ladder", "version": 1, "title": "A made-up ladder", "licence": "CC0-1.0"}
    return Manifest(
        run_id="benchmark",
        created_at=WHEN,
        finished_at=WHEN,
        package_version="0",
        command=["hyflash-bench", "run", "ladder"],
        request={},
        resolved={"suites": ["ladder"]},
        target={"name": "made-up", "dtype": "float32"},
        suites=[suite],
        cells=cells,
    )


def trace_of(rung: int, number: int) -> TraceRecord:
    """What the made-up target says: words, one a token."""
    random = Random(f"{rung} {number}")
    words = [f" {random.choice(WORDS)}" for _ in range(NUM_TOKENS)]
    starts = [sum(len(word) for word in words[:place]) for place in range(NUM_TOKENS)]
    turn = TraceTurn(
        turn=0,
        context_length=rung,
        prompt_tokens=[random.randrange(49_152) for _ in range(rung)],
        tokens=[random.randrange(49_152) for _ in range(NUM_TOKENS)],
        logprobs=[-random.random() for _ in range(NUM_TOKENS)],
        gaps=[random.random() for _ in range(NUM_TOKENS)],
        stop_reason="eos",
        text="".join(words),
        offsets=starts,
        request=" ".join(random.choices(WORDS, k=60)),
        repeated_share=0.0,
        copied_share=0.0,
        degenerate=False,
    )
    return TraceRecord(
        trace_id=f"{number}/{rung}",
        item_id=f"ladder/documents/{number}/{rung}",
        suite="ladder",
        task="documents",
        kind=KINDS[number % len(KINDS)],
        category=f"category {number % 3}",
        content_hash="made-up",
        sampling="greedy",
        temperature=0.0,
        seed=0,
        extrapolated=False,
        context_rung=rung,
        turns=[turn],
        prefill_s=rung / 300,
        decode_s=NUM_TOKENS * 0.055,
        recorded_at=WHEN,
    )


def conversation_of(drafter: str, cell: CellRecord, trace: TraceRecord) -> ConversationRecord:
    """A drafter on it, replayed and live, as chance will have it."""
    turns = [turn_of(drafter, trace, mode) for mode in ("replay", "live")]
    return ConversationRecord(
        cell_id=cell.cell_id,
        item_id=trace.item_id,
        trace_id=trace.trace_id,
        status="ok",
        turns=turns,
        recorded_at=WHEN,
    )


def turn_of(drafter: str, trace: TraceRecord, mode: Any) -> TurnRecord:
    """One turn in one mode."""
    said, is_live = trace.turns[0], mode == "live"
    random = Random(f"{drafter} {trace.trace_id}")
    steps = steps_of(drafter, said.context_length, random, is_live)
    decode_s = len(steps.drafted) * 0.07
    return TurnRecord(
        turn=0,
        mode=mode,
        context_length=said.context_length,
        num_prompt_tokens=said.context_length,
        num_output_tokens=NUM_TOKENS,
        stop_reason="eos",
        steps=steps,
        prefill_s=said.context_length / 300 if is_live else None,
        observe_prompt_s=0.01 if is_live else None,
        ttft_s=said.context_length / 300 + 0.02 if is_live else None,
        decode_s=decode_s if is_live else None,
        lossless="identical" if is_live else "not_judged",
        memory={
            "target_weights": 538_000_000,
            "target_kv": 46_080 * said.context_length,
            "drafter_weights": BYTES[drafter][0],
            "drafter_kv": BYTES[drafter][1] * said.context_length,
            "drafter_state": 0,
            "drafter_buffer": 0,
        },
    )


def steps_of(drafter: str, context: int, random: Random, is_live: bool) -> StepColumns:
    """Steps until the reply is written."""
    drafted, keep, loss = DRAFTERS[drafter]
    chance = keep * (1 - loss * context / 8192)
    accepted, committed, left = [], [], NUM_TOKENS - 1
    while left:
        kept = 0
        while kept < min(drafted, left - 1) and random.random() < chance:
            kept += 1
        accepted.append(kept)
        committed.append(kept + 1)
        left -= kept + 1
    count = len(accepted)
    return StepColumns(
        drafted=[drafted] * count,
        depth=[drafted] * count,
        accepted=accepted,
        committed=committed,
        eos_cut=[False] * count,
        limit_cut=[False] * count,
        rejected_tokens=[[random.randrange(49_152) for _ in range(drafted - kept)] for kept in accepted],
        rejected_text=[" ".join(["", *random.choices(WORDS, k=drafted - kept)]) for kept in accepted],
        draft_s=[random.uniform(0.004, 0.006) for _ in accepted] if is_live else None,
        verify_s=[random.uniform(0.05, 0.06) for _ in accepted] if is_live else None,
        observe_s=[random.uniform(0.001, 0.002) for _ in accepted] if is_live else None,
        drafter_kv_bytes=[BYTES[drafter][1] * context] * count,
        drafter_state_bytes=[0] * count,
        drafter_buffer_bytes=[0] * count,
    )


if __name__ == "__main__":
    main()
