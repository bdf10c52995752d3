"""A metric by kind of work, by category or by turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from hyflash_bench.analysis.groups import GROUP, Degenerate, Groups
from hyflash_bench.analysis.metrics import metric_named
from hyflash_bench.errors import UnknownName, UsageError

if TYPE_CHECKING:
    import pandas as pd

    from hyflash_bench.results.reader import Run

__all__ = ["Breakdown", "breakdown"]

Breakdown = Literal["kind", "category", "turn", "context_rung"]
BREAKDOWNS: Final[tuple[Breakdown, ...]] = get_args(Breakdown)


def breakdown(
    run: Run, by: Breakdown, metric: str = "acceptance_length", *, degenerate: Degenerate = "all"
) -> pd.DataFrame:
    """One row per drafter, suite, sampling, memory cap and what ``by`` tells apart; none is left out.

    Args:
        run: The run.
        by: ``kind`` or ``category`` of the conversation, ``turn`` (from 0; missing for conversations
            that failed before any), or ``context_rung``, the length its suite asked for.
        metric: A ratio such as acceptance_length, decode_tok_per_s or score.
        degenerate: Whether turns in which the target repeats itself count.

    Returns:
        Those columns, ``status``, ``message``, ``num_conversations``, ``num_planned``, the metric with
        ``_low`` and ``_high``, ``interval_method``, and ``reason`` why an interval is missing.

    Raises:
        UnknownName: No such metric, or another ``by``.
        UsageError: The metric has no interval.
    """
    if by not in BREAKDOWNS:
        raise UnknownName("breakdown", by, BREAKDOWNS)
    chosen = metric_named(metric)
    if not chosen.has_interval:
        raise UsageError(f"Metric {metric!r} is no ratio, so it has no interval to break down.")
    import pandas as pd

    groups = Groups(run, (*GROUP, by), degenerate)
    intervals = groups.intervals(chosen)
    columns: dict[str, Any] = {
        metric: groups.values(chosen),
        f"{metric}_low": pd.Series([each.low for each in intervals], dtype="float64"),
        f"{metric}_high": pd.Series([each.high for each in intervals], dtype="float64"),
        "interval_method": pd.Series([each.method for each in intervals], dtype="str"),
        "reason": pd.Series([each.reason for each in intervals], dtype="str"),
    }
    table = groups.table.assign(**columns)
    return table.sort_values([*GROUP[1:], by, "drafter"], na_position="first", ignore_index=True)
