"""The memory-cap matrix: every drafter, length and cap, with what became of it."""

from __future__ import annotations

from typing import Any

import pandas as pd

from hyflash_bench.analysis.capacity import OUTCOMES, capacity
from tests.analysis.tables import HandRun, table, turn


class CappedRun(HandRun):
    """A run from conversations alone."""

    @property
    def conversations(self) -> pd.DataFrame:
        """As given."""
        return self.turns


def run_of(*rows: dict[str, Any]) -> CappedRun:
    return CappedRun(
        table("conversations", [{"cap_kind": "simulated", "cap_policy": "stop", **row} for row in rows])
    )


def said(drafter: str, length: int, cap: int | None = 100, item: str = "a", **values: Any) -> dict[str, Any]:
    known = {"cell_id": f"{drafter}-{cap}", "memory_cap_bytes": cap, "context_rung": length}
    return {**turn(f"{item}/{length}", drafter=drafter), **known, **values}


def outcomes(run: CappedRun) -> dict[tuple[str, int, int], str]:
    found = capacity(run)
    assert set(found["outcome"]) <= set(OUTCOMES)
    return {
        (row["drafter"], row["context_length"], row["memory_cap_bytes"]): row["outcome"]
        for row in found.to_dict("records")
    }


def test_every_outcome_has_its_word() -> None:
    rows = [
        said("fits", 512),
        said("stops", 512, status="oom", context_reached=300, peak_bytes=120),
        said("shrinks", 512, cap_policy="window", policy_context=400),
        said("gives-up", 512, cap_policy="no-draft", policy_context=400),
        said("breaks", 512, status="error", message="boom"),
        said("lies", 512, status="mismatch"),
    ]
    found = capacity(run_of(*rows))
    words = {row["drafter"]: row["outcome"] for row in found.to_dict("records") if row["num_conversations"]}
    assert words == {
        "fits": "fits", "stops": "out of memory", "shrinks": "window", "gives-up": "no draft", "lies": "fits",
    }  # fmt: skip
    broken = found[(found["drafter"] == "breaks") & (found["cap_policy"] == "stop")].iloc[0]
    assert (broken["outcome"], broken["reason"]) == ("not run", "error: boom")
    stopped = found[(found["drafter"] == "stops") & (found["cap_policy"] == "stop")].iloc[0]
    assert (stopped["first_context"], stopped["peak_bytes"], stopped["num_fitting"]) == (300, 120, 0)


def test_the_matrix_has_no_holes() -> None:
    run = run_of(said("a", 512), said("a", 2048, cap=200), said("b", 512, cap=200), said("c", 4096, cap=None))
    found = outcomes(run)
    assert len(found) == 2 * 3 * 2  # drafters with a cap, lengths of the suite, caps
    assert found["a", 512, 100] == "fits"
    assert found["b", 2048, 100] == "not run"
    assert set(capacity(run).query("num_conversations == 0")["reason"]) == {"never begun"}


def test_the_worst_conversation_decides_and_the_others_are_counted() -> None:
    rows = [said("a", 512, item=item) for item in "xyz"]
    rows[1] |= {"status": "oom", "context_reached": 90}
    rows[2] |= {"status": "timeout"}
    row = capacity(run_of(*rows)).iloc[0]
    assert (row["outcome"], row["num_conversations"], row["num_fitting"]) == ("out of memory", 2, 1)


def test_policies_devices_and_kinds_of_a_cap_are_kept_apart() -> None:
    rows = [
        said("a", 512, cell_id="1"),
        said("a", 512, cell_id="2", cap_policy="no-draft", policy_context=5),
        said("a", 512, cell_id="3", device="phone", status="oom"),
        said("a", 512, cell_id="4", cap_kind="enforced"),
        said("a", 512, cell_id="5", weight_bits=4),
    ]
    assert capacity(run_of(*rows))["outcome"].tolist() == [
        "fits",
        "no draft",
        "out of memory",
        "fits",
        "fits",
    ]


def test_a_run_without_caps_has_no_matrix() -> None:
    assert capacity(run_of(said("a", 512, cap=None))).empty
