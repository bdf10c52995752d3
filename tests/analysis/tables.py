"""Tables made by hand, small enough to work out on paper."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from hyflash_bench.results.schema import conform


def turn(item: str = "one", **values: Any) -> dict[str, Any]:
    """A replayed turn of conversation ``item``; everything else as given."""
    known = {
        "suite": "s", "task": "t", "drafter": "d", "sampling": "greedy", "cell_id": "c",
        "status": "ok", "cell_status": "ok", "turn": 0, "mode": "replay", "is_scored": True,
        "is_reference": False,
    }  # fmt: skip
    return {**known, "item_id": item, **values}


def table(name: str, rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Rows as a table of a run, absent columns missing."""
    flags = {"is_reference": False, "is_scored": True, "eos_cut": False, "limit_cut": False}
    rows = [{**flags, **row} for row in rows]
    names = dict.fromkeys(name for row in rows for name in row)
    return conform(name, {key: [row.get(key) for row in rows] for key in names})


def turns(*rows: dict[str, Any]) -> pd.DataFrame:
    """A turns table."""
    return table("turns", list(rows))


@dataclass
class HandRun:
    """What the analysis asks of a run, from turns alone: each conversation is planned and done."""

    turns: pd.DataFrame
    run_id: str = "hand"
    environment: dict[str, Any] = field(default_factory=dict)

    @property
    def manifest(self) -> HandRun:
        """Stands in for the manifest."""
        return self

    @property
    def conversations(self) -> pd.DataFrame:
        """One row per cell and item of the turns."""
        rows = self.turns.drop_duplicates(["cell_id", "item_id"]).to_dict("records")
        return table("conversations", rows)

    @property
    def cells(self) -> pd.DataFrame:
        """One row per cell of the turns."""
        rows = self.turns.drop_duplicates("cell_id").to_dict("records")
        return table("cells", [{**row, "num_pending": 0, "status": row["cell_status"]} for row in rows])


def steps(*rows: tuple[int, int, int], **values: Any) -> pd.DataFrame:
    """A steps table of (drafted, accepted, committed)."""
    listed = [
        {
            **turn(),
            "drafted": drafted,
            "depth": drafted,
            "accepted": accepted,
            "committed": committed,
            **values,
        }
        for drafted, accepted, committed in rows
    ]
    return table("steps", listed)
