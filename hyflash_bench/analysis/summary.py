"""The tables that a run is read by: headline, by context length, failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from hyflash_bench.analysis.groups import GROUP, Degenerate, Groups
from hyflash_bench.analysis.intervals import Interval, holm, verdicts
from hyflash_bench.analysis.metrics import METRICS, Metric
from hyflash_bench.results.schema import IDENTITY

if TYPE_CHECKING:
    import pandas as pd

    from hyflash_bench.results.reader import Run

__all__ = ["by_context", "failures", "headline", "summary"]

_WITH_INTERVAL: Final = ("acceptance_length", "decode_tok_per_s")
_PLAIN: Final = tuple(metric for metric in METRICS.values() if metric.above)


def summary(run: Run, by: Sequence[str] = GROUP, *, degenerate: Degenerate = "all") -> pd.DataFrame:
    """Every metric for every group, without intervals.

    Args:
        run: The run.
        by: Columns of the conversations table: drafter, suite, task, kind, context_rung ...
        degenerate: Whether turns in which the target repeats itself count.

    Returns:
        ``by``, status, message, num_conversations, num_planned, and a column per metric; a number
        is NaN where it was not measured or the status does not allow one.

    Raises:
        UnknownName: No such column.
    """
    return _with_numbers(Groups(run, by, degenerate))


def headline(run: Run, *, degenerate: Degenerate = "all") -> pd.DataFrame:
    """One row per drafter, suite, sampling and memory cap; nothing is left out.

    Beside :func:`summary`'s columns: 95 % intervals (``_low``, ``_high``) of acceptance_length and
    decode_tok_per_s; ``speedup`` over plain decoding in the same suite, sampling and cap, with
    interval; ``p_holm``, its p-value corrected for all comparisons of the table; the ``verdict``
    (higher, lower, no clear difference), which needs both; ``interval_method``, how the ends were
    found; and ``reason``, why an interval or the verdict is missing.

    Args:
        run: The run.
        degenerate: Whether turns in which the target repeats itself count.
    """
    return _with_everything(Groups(run, GROUP, degenerate))


def by_context(run: Run, *, degenerate: Degenerate = "all") -> pd.DataFrame:
    """One row per drafter, suite, sampling, memory cap and context length asked for by the suite.

    Columns as in :func:`headline`, with ``context_length``; suites without fixed lengths have no
    rows here. A group's status is that of its own conversations, so a drafter that ran out of
    memory at one length keeps its numbers at shorter ones.

    Args:
        run: The run.
        degenerate: Whether turns in which the target repeats itself count.
    """
    groups = Groups(run, (*GROUP, "context_rung"), degenerate)
    table = _with_everything(groups)
    table = table[table["context_rung"].notna()].rename(columns={"context_rung": "context_length"})
    return table.sort_values(
        [*GROUP[1:], "drafter", "context_length"], na_position="first", ignore_index=True
    )


def failures(run: Run) -> pd.DataFrame:
    """Everything that did not go well: one row per cell, status and message.

    Returns:
        Identity columns, ``status``, ``message``, ``num_conversations`` concerned,
        ``context_reached`` (the shortest breach) and ``peak_bytes`` (the largest).
    """
    import pandas as pd

    identity = [column.name for column in IDENTITY]
    bad = run.conversations[run.conversations["status"] != "ok"]
    done = bad.groupby([*identity, "status", "message"], dropna=False, sort=False, as_index=False).agg(
        num_conversations=("item_id", "size"),
        context_reached=("context_reached", "min"),
        peak_bytes=("peak_bytes", "max"),
    )
    waiting = run.cells[run.cells["num_pending"] > 0]
    unstarted = waiting[identity].assign(
        status="interrupted",
        message="not run yet; the same command goes on",
        num_conversations=waiting["num_pending"],
    )
    both = [part for part in (done, unstarted) if len(part)] or [done]
    return pd.concat(both, ignore_index=True)


def _with_numbers(groups: Groups) -> pd.DataFrame:
    return groups.table.assign(**{metric.name: groups.values(metric) for metric in _PLAIN})


def _with_everything(groups: Groups) -> pd.DataFrame:
    """Numbers, their intervals, the speedup, and why something is missing."""
    table = _with_numbers(groups)
    known = {name: groups.intervals(METRICS[name]) for name in _WITH_INTERVAL}
    for name, intervals in known.items():
        _insert_ends(table, name, intervals)
    speed = METRICS["decode_tok_per_s"]  # the ratio of speeds is the ratio of seconds per token
    speedups = [_against(groups, speed, row, reference) for row, reference in enumerate(_references(groups))]
    at = list(table).index("decode_tok_per_s_high")
    table.insert(at + 1, "speedup", _floats([interval.value for interval in speedups]))
    _insert_ends(table, "speedup", speedups)
    table.insert(at + 4, "p_holm", _floats(holm([interval.p_value for interval in speedups])))
    table.insert(at + 5, "verdict", _texts(verdicts(speedups)))
    known["speedup"] = speedups
    reasons = [
        own.reason or speedup.reason
        for own, speedup in zip(known["acceptance_length"], speedups, strict=True)
    ]
    return table.assign(interval_method=_texts(_methods(known)), reason=_texts(reasons))


def _methods(known: Mapping[str, Sequence[Interval]]) -> list[str | None]:
    """How each row's ends were found: ``BCa``, or by metric where they were found in several ways."""
    rows = [dict(zip(known, row, strict=True)) for row in zip(*known.values(), strict=True)]
    found = [{name: each.method for name, each in row.items() if each.method} for row in rows]
    return [
        ", ".join(f"{method} of {name}" for name, method in row.items())
        if len(set(row.values())) > 1
        else next(iter(row.values()), None)
        for row in found
    ]


def _insert_ends(table: pd.DataFrame, name: str, intervals: Sequence[Interval]) -> None:
    """Put ``x_low`` and ``x_high`` behind ``x``."""
    at = list(table).index(name)
    table.insert(at + 1, f"{name}_low", _floats([interval.low for interval in intervals]))
    table.insert(at + 2, f"{name}_high", _floats([interval.high for interval in intervals]))


def _against(groups: Groups, metric: Metric, row: int, reference: int | None) -> Interval:
    if reference is None:
        return Interval.missing("no plain decoding to compare with")
    if reference == row:
        return Interval.missing("this is the reference")
    return groups.paired(metric, row, groups, reference)


def _references(groups: Groups) -> list[int | None]:
    """For each row, the row of plain decoding on the same work."""
    cells = groups.run.cells
    is_plain = groups.table["drafter"].isin(set(cells.loc[cells["is_reference"], "drafter"]))
    assert groups.by[0] == "drafter"
    keys = [work for _, *work in groups.keys]
    found = {tuple(work): row for row, (work, plain) in enumerate(zip(keys, is_plain, strict=True)) if plain}
    return [found.get(tuple(work)) for work in keys]


def _floats(values: Sequence[float]) -> pd.Series[Any]:
    import pandas as pd

    return pd.Series(values, dtype="float64")


def _texts(values: Sequence[str | None]) -> pd.Series[Any]:
    import pandas as pd

    return pd.Series(values, dtype="str")
