"""A run's tables for other programs: those stored, those made from them, and what their columns mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from hyflash_bench.analysis import summary
from hyflash_bench.analysis.breakdown import Breakdown, breakdown
from hyflash_bench.analysis.capacity import capacity
from hyflash_bench.analysis.crossover import crossover
from hyflash_bench.analysis.latency import latency
from hyflash_bench.analysis.metrics import METRICS
from hyflash_bench.analysis.pareto import pareto
from hyflash_bench.analysis.positions import position_acceptance, step_distribution
from hyflash_bench.errors import UnknownName
from hyflash_bench.results.schema import TABLES
from hyflash_bench.results.status import NUMBER_STATUSES

if TYPE_CHECKING:
    import pandas as pd

    from hyflash_bench.results.reader import Run

__all__ = ["ANALYSES", "DEFINITIONS", "definitions_of", "frames_of"]

DEFINITIONS: Final = "definitions"
"""Name of the table that explains the columns of the others."""


def frames_of(run: Run, names: Iterable[str] = ()) -> dict[str, pd.DataFrame]:
    """Tables by name: stored ones and :data:`ANALYSES`, and last what their columns mean.

    Args:
        run: The run.
        names: Which ones; all if there are none.

    Raises:
        UnknownName: No such table.
    """
    known = (*ANALYSES, *TABLES)
    chosen = tuple(names) or known
    for name in chosen:
        if name not in known:
            raise UnknownName("table", name, known)
    frames = {name: ANALYSES[name](run) if name in ANALYSES else run.table(name) for name in chosen}
    return frames | {DEFINITIONS: definitions_of(frames)}


def definitions_of(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """One row a table and column: what stands there, as metrics and schema define it.

    Returns:
        ``table``, ``column``, ``dtype``, and, where they are known, ``unit``, ``better``,
        ``definition``, ``formula`` and ``source``.
    """
    import pandas as pd

    rows = [
        {"table": table, "column": str(column), "dtype": str(frame[column].dtype)}
        | _meaning(table, str(column))
        for table, frame in frames.items()
        for column in frame.columns
    ]
    return pd.DataFrame(rows, columns=["table", "column", "dtype", *_MEANING], dtype="str")


_MEANING: Final = ("unit", "better", "definition", "formula", "source")
_ENDS: Final = {"_low": "Lower", "_high": "Upper"}
_COLUMNS: Final[Mapping[str, str]] = {
    column.name: column.meaning for columns in reversed(tuple(TABLES.values())) for column in columns
} | {
    "ahead_after": "The better drafter at longer contexts than the crossing.",
    "ahead_before": "The better drafter at shorter contexts than the crossing.",
    "committed": "Tokens that a step committed, bonus token counted.",
    "context_length": "Tokens before the reply; in tables by context, what the suite asked for.",
    "crossover_context": "Context length in tokens at which the two drafters' curves cross.",
    "crossover_high": "Upper end of the crossing's 95 % interval; missing where it lies beyond all lengths.",
    "crossover_low": "Lower end of the crossing's 95 % interval; missing where it lies below all lengths.",
    "dominated_by": "A drafter that is as good in both and better in one.",
    "first_context": "Shortest context length at which the cap was reached.",
    "interval_method": "How the interval was made.",
    "is_on_front": "Whether no other drafter is as good in both and better in one.",
    "num_conversations": "Conversations that count.",
    "metric": "What is compared.",
    "num_documents": "Documents that both drafters read.",
    "num_lengths": "Context lengths that both drafters were measured at.",
    "num_steps": "Steps.",
    "num_tokens": "Tokens that these steps committed.",
    "num_fitting": "Conversations that stayed under the cap.",
    "num_planned": "Conversations planned.",
    "num_reached": "Steps in which all slots before this one were accepted.",
    "outcome": "What became of the drafter under the cap.",
    "p_holm": "Chance of such a difference without one, corrected for all rows compared (Holm).",
    "reference": "What the drafter is compared with.",
    "reason": "Why a number, an interval or a verdict is missing.",
    "status": "What became of the conversations: the worst of them.",
    "verdict": "Against plain decoding: higher, lower or no clear difference.",
    "position": "Slot of the draft, from 1.",
}


def _meaning(table: str, column: str) -> dict[str, Any]:
    """What a column means: the schema's word for stored tables, a metric's for those made from them."""
    stored = {each.name: each.meaning for each in TABLES.get(table, ())}
    if column in stored:
        return {"definition": stored[column]}
    if column in METRICS:
        metric = METRICS[column]
        return {name: getattr(metric, name) for name in _MEANING}
    for suffix, end in _ENDS.items():
        if column.endswith(suffix) and (name := column.removesuffix(suffix)) in METRICS:
            return {"unit": METRICS[name].unit, "definition": f"{end} end of the 95 % interval of {name}."}
    return {"definition": _COLUMNS.get(column)}


def _of_steps(table: Callable[[pd.DataFrame, Sequence[str]], pd.DataFrame]) -> Callable[[Run], pd.DataFrame]:
    """A table of the steps without a memory cap."""

    def made(run: Run) -> pd.DataFrame:
        steps = run.steps
        counted = steps["cell_status"].isin(NUMBER_STATUSES) & steps["memory_cap_bytes"].isna()
        return table(steps[counted], ("drafter", "suite", "sampling"))

    return made


def _by(what: Breakdown) -> Callable[[Run], pd.DataFrame]:
    return lambda run: breakdown(run, what)


def _pareto(run: Run) -> pd.DataFrame:
    return pareto(summary.headline(run))


ANALYSES: Final[Mapping[str, Callable[[Run], pd.DataFrame]]] = MappingProxyType(
    {
        "headline": summary.headline,
        "by_context": summary.by_context,
        "by_kind": _by("kind"),
        "by_category": _by("category"),
        "by_turn": _by("turn"),
        "positions": _of_steps(position_acceptance),
        "step_distribution": _of_steps(step_distribution),
        "crossover": crossover,
        "latency": latency,
        "capacity": capacity,
        "pareto": _pareto,
        "failures": summary.failures,
    }
)
"""Tables made from the stored ones."""
