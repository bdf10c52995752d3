"""How long comparing and summing up takes on a run of about 100,000 steps.

Writes a made-up run of six drafters at five context lengths on 100 documents through the results
writer, and prints its size and the seconds of each task: the command as a user waits for it, and the
tables that a page is made from. ``--keep DIR`` leaves the run there.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from hyflash_bench.analysis.breakdown import breakdown
from hyflash_bench.analysis.crossover import crossover
from hyflash_bench.analysis.latency import latency
from hyflash_bench.analysis.summary import by_context, headline
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
KEEP = {
    "autoregressive": 0.0,
    "suffix": 0.4,
    "medusa": 0.5,
    "eagle": 0.6,
    "full-context": 0.6,
    "hyflash": 0.65,
}
"""Drafters, and the chance that a slot of theirs is accepted."""
RUNGS = (512, 1024, 2048, 4096, 7680)
NUM_STEPS = 34
KINDS = ("question", "summary", "continuation")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="Leave the run in this folder.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary) / "run"
        _report("write the run and its tables", lambda: _write(folder, arguments.documents))
        run = load_run(folder)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        print(f"{len(run.steps):,} steps, {len(run.turns):,} turns, {size / 2**20:.0f} MiB")
        command = [sys.executable, "-m", "hyflash_bench", "compare", str(folder)]
        conditions = ["--fail-if", "acceptance_length<0.1"]
        _report("hyflash-bench compare RUN", lambda: _call([*command, *conditions]))
        _report("hyflash-bench show RUN", lambda: _call([*command[:3], "show", str(folder)]))
        for name, table in {
            "headline": headline,
            "by context": by_context,
            "by kind": lambda run: breakdown(run, "kind"),
            "crossover of every pair": crossover,
            "latency": latency,
        }.items():
            fresh = load_run(folder)
            _report(name, lambda table=table, fresh=fresh: table(fresh))


def _report(name: str, task: Callable[[], Any]) -> None:
    start = time.perf_counter()
    task()
    print(f"{name:<32}{time.perf_counter() - start:>7.2f} s", flush=True)


def _call(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _write(folder: Path, num_documents: int) -> None:
    items = [(document, rung) for document in range(num_documents) for rung in RUNGS]
    cells = [_cell(drafter, len(items)) for drafter in KEEP]
    with RunWriter(folder, fresh=True) as writer:
        writer.write_manifest(
            Manifest(
                run_id="made-up",
                created_at=WHEN,
                finished_at=WHEN,
                package_version="0",
                command=["hyflash-bench", "run"],
                request={},
                resolved={},
                target={"name": "made-up"},
                cells=cells,
            )
        )
        for document, rung in items:
            item = f"documentation/{document}/{rung}"
            writer.append_trace(_trace(item, document, rung))
            for cell in cells:
                writer.append_conversation(_conversation(cell, item, document, rung))
        writer.write_tables()


def _cell(drafter: str, planned: int) -> CellRecord:
    return CellRecord(
        cell_id=drafter,
        target="made-up",
        target_id="made-up",
        drafter=drafter,
        drafter_name=drafter,
        drafter_options={},
        is_reference=drafter == "autoregressive",
        suite="longctx",
        suite_hash="made-up",
        task="documentation",
        memory_cap_bytes=None,
        cap_kind=None,
        temperature=0.0,
        top_k=None,
        top_p=None,
        sampling="greedy",
        seed=0,
        repeat=0,
        max_new_tokens=256,
        draft_budget=8,
        num_conversations=planned,
    )


def _trace(item: str, document: int, rung: int) -> TraceRecord:
    kind = KINDS[document % len(KINDS)]
    turn = TraceTurn(
        turn=0,
        context_length=rung,
        prompt_tokens=list(range(rung)),
        tokens=list(range(NUM_STEPS)),
        logprobs=[-1.0] * NUM_STEPS,
        gaps=[1.0] * NUM_STEPS,
        stop_reason="limit",
        text="made up",
        repeated_share=0.0,
        copied_share=0.0,
        degenerate=False,
        score=0.5 if kind == "question" else None,
    )
    return TraceRecord(
        trace_id=item,
        item_id=item,
        suite="longctx",
        task="documentation",
        kind=kind,
        category=kind,
        content_hash="made-up",
        sampling="greedy",
        temperature=0.0,
        seed=0,
        extrapolated=False,
        context_rung=rung,
        turns=[turn],
        prefill_s=1.0,
        decode_s=1.0,
        recorded_at=WHEN,
    )


def _conversation(cell: CellRecord, item: str, document: int, rung: int) -> ConversationRecord:
    rng = Random(f"{cell.cell_id} {item}")
    keep = KEEP[cell.drafter] * Random(document).uniform(0.8, 1.2) * (1 - rung / 20_000)
    steps = StepColumns(**_columns(list(_steps(rng, 0 if cell.is_reference else 7, keep))))
    draft_s, verify_s, observe_s = (steps.draft_s or [], steps.verify_s or [], steps.observe_s or [])
    turn = TurnRecord(
        turn=0,
        mode="live",
        context_length=rung,
        num_prompt_tokens=rung,
        num_output_tokens=1 + sum(steps.committed),
        stop_reason="limit",
        steps=steps,
        prefill_s=rung / 300,
        observe_prompt_s=rung / 3000,
        ttft_s=rung / 250,
        decode_s=sum(draft_s) + sum(verify_s) + sum(observe_s),
        lossless="identical",
        memory={
            "drafter_weights": 0,
            "drafter_kv": 1000 * rung * (cell.drafter == "full-context"),
            "drafter_state": 0,
            "drafter_buffer": 0,
        },
    )
    return ConversationRecord(
        cell_id=cell.cell_id, item_id=item, trace_id=item, status="ok", turns=[turn], recorded_at=WHEN
    )


def _steps(rng: Random, drafted: int, keep: float) -> Iterator[dict[str, Any]]:
    for _ in range(NUM_STEPS):
        accepted = 0
        while accepted < drafted and rng.random() < keep:
            accepted += 1
        yield {
            "drafted": drafted,
            "depth": drafted,
            "accepted": accepted,
            "committed": accepted + 1,
            "eos_cut": False,
            "limit_cut": False,
            "draft_s": 0.001 * drafted * rng.uniform(0.9, 1.1),
            "verify_s": 0.05 * rng.uniform(0.9, 1.1),
            "observe_s": 0.0005,
            "drafter_kv_bytes": 1000,
            "drafter_state_bytes": 0,
            "drafter_buffer_bytes": 0,
        }


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


if __name__ == "__main__":
    main()
