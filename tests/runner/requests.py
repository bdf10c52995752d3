"""Requests and tables that several tests of runs share."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from hyflash_bench.results.reader import load_run
from hyflash_bench.spec.run import RunSpec

DRAFTERS = ["autoregressive", "prompt-lookup:num_draft_tokens=4", "suffix", "suffix:tree=true"]
TIMINGS = (
    *("_s", "recorded_at", "process_rss", "tok_per_s", "measured_peak", "unexplained", "energy_j"),
    "power_w",
)


def request_for(target: Path, suite: Path, **more) -> RunSpec:
    values = {"target": str(target), "suites": [str(suite)], "drafters": DRAFTERS, "num_threads": 1}
    return RunSpec.parse({**values, **more})


def stable(frame: pd.DataFrame) -> list[str]:
    """Rows as text without what a clock or the process's memory put there, sorted."""
    kept = frame[[c for c in frame.columns if not any(mark in c for mark in TIMINGS)]]
    if "owner" in kept.columns:
        kept = kept[kept["owner"] != "process"]
    return sorted(kept.to_json(orient="records", lines=True).splitlines())


def tables(folder: Path) -> dict[str, list[str]]:
    loaded = load_run(folder)
    return {name: stable(getattr(loaded, name)) for name in ("cells", "turns", "steps", "traces", "memory")}
