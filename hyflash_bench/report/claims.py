"""Claims as people read them, in the page and in the terminal."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from hyflash_bench.analysis.claims import OUTCOMES, evaluate
from hyflash_bench.errors import MissingDependency
from hyflash_bench.report.tables import Table, table_of
from hyflash_bench.report.text import cell_text, ratio_text
from hyflash_bench.spec.claims import read_claims, shipped_claims

if TYPE_CHECKING:
    import pandas as pd

    from hyflash_bench.results.reader import Run

__all__ = ["CLAIMS_NOTE", "claims_of", "claims_table", "compared_table", "readable", "tally"]

CLAIMS_NOTE: Final = (
    "Each claim is a ratio, held against what it should be: reproduced or not reproduced where the whole "
    "95 % interval lies on one side, bootstrapped over texts and paired on the same conversations, and "
    "inconclusive otherwise. Bytes are counted; their interval spans the conversations. What could not be "
    "tested here is listed with the reason. A small budget of training shows less than a large one."
)

_VERDICTS: Final = ("statement", "verdict", "ratio", "wanted", "num_conversations", "reason", "source")
_COMPARED: Final = (
    *("statement", "drafter", "value", "reference", "reference_value"),
    *("metric", "strata", "budget"),
)
_MEANINGS: Final = {
    "ratio": "The drafter's value over the reference's; of two gains, the first over the second.",
    "wanted": "What the claim says of the ratio.",
    "num_conversations": "Conversations that every side of the comparison has.",
    "budget": "Training of the drafters, as their checkpoints tell.",
    "source": "Who claims it.",
}


def claims_of(run: Run) -> pd.DataFrame | None:
    """The shipped claims held against a run; None where it has the drafters of none of them.

    Raises:
        SpecError: The claim file in the folder of the suites is damaged.
    """
    try:
        paths = shipped_claims()
    except MissingDependency:
        return None
    if not paths:
        return None
    claims = read_claims(*paths)
    labels = {cell.drafter for cell in run.manifest.cells}
    if not any(labels.issuperset(claim.drafters) for claim in claims.claims):
        return None
    return evaluate(claims, run)


def claims_table(frame: pd.DataFrame, caption: str) -> Table:
    """Lay out what :func:`hyflash_bench.analysis.claims.evaluate` found."""
    return table_of(readable(frame), caption, _VERDICTS, _MEANINGS)


def compared_table(frame: pd.DataFrame, caption: str) -> Table:
    """Lay out what each claim was tested on: the two sides with their numbers, and where."""
    return table_of(readable(frame), caption, _COMPARED, _MEANINGS)


def readable(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with its numbers as text, in the units of each claim's metric."""
    rows = frame.to_dict("records")
    texts = {
        name: [ratio_text(row[name]) for row in rows] for name in ("ratio", "ratio_low", "ratio_high")
    } | {name: [_value_text(row, name) for row in rows] for name in ("value", "reference_value")}
    return frame.assign(**texts)


def tally(frame: pd.DataFrame) -> str:
    """``7 reproduced, 2 not reproduced, 3 inconclusive, 1 not tested``."""
    counts = Counter(frame["verdict"])
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES)


def _value_text(row: dict[Any, Any], name: str) -> str:
    # Of two gains, the values are ratios themselves.
    is_gain = " / " in row["drafter"]
    return ratio_text(row[name]) if is_gain else cell_text(row["metric"], row[name])
