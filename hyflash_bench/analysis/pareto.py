"""Which drafters no other beats in both speed and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hyflash_bench.analysis.groups import WORK
from hyflash_bench.analysis.metrics import metric_named

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["pareto"]


def pareto(
    frame: pd.DataFrame,
    metric: str = "acceptance_length",
    cost: str = "drafter_bytes",
    by: Sequence[str] = WORK,
) -> pd.DataFrame:
    """Mark the drafters on the front: no other has as good a metric for as little cost and is better in one.

    Args:
        frame: One row a drafter and group, such as :func:`hyflash_bench.analysis.summary.headline` or
            ``by_context`` (then with ``context_length`` in ``by``).
        metric: What should be good; its own direction says which way.
        cost: What should be good besides; likewise.
        by: Columns within which drafters compete; those that the frame lacks are left out.

    Returns:
        The frame's ``by``, ``drafter``, ``status``, metric and cost, the metric's interval where the
        frame has it, ``is_on_front`` (missing without both numbers) and ``dominated_by``, a drafter
        of the front that is better.

    Raises:
        UnknownName: No such metric.
    """
    names = [name for name in by if name in frame]
    ends = [f"{metric}{end}" for end in ("_low", "_high") if f"{metric}{end}" in frame]
    table = frame[[*names, "drafter", "status", metric, *ends, cost]].reset_index(drop=True)
    signs = [-1.0 if metric_named(name).better == "lower" else 1.0 for name in (metric, cost)]
    goods = [
        sign * table[name].astype("Float64").astype("float64")
        for sign, name in zip(signs, (metric, cost), strict=True)
    ]
    on_front: dict[int, bool] = {}
    better: dict[int, str] = {}
    for _, part in table.groupby(names or [""] * len(table), dropna=False, sort=False):
        rows = [
            row for row in part.index if goods[0][row] == goods[0][row] and goods[1][row] == goods[1][row]
        ]
        rows.sort(key=lambda row: (-goods[0][row], -goods[1][row]))
        front: list[int] = []
        for row in rows:
            above = next((one for one in front if _dominates(goods, one, row)), None)
            on_front[row] = above is None
            if above is None:
                front.append(row)
            else:
                better[row] = str(table["drafter"].iloc[above])
    return table.assign(
        is_on_front=_column(on_front, len(table), "boolean"), dominated_by=_column(better, len(table), "str")
    )


def _dominates(goods: Sequence[pd.Series[float]], one: int, other: int) -> bool:
    """Whether one is at least as good in both and better in one."""
    pairs = [(good[one], good[other]) for good in goods]
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def _column(known: dict[int, Any], length: int, dtype: str) -> pd.Series[Any]:
    import pandas as pd

    return pd.Series([known.get(row) for row in range(length)], dtype=dtype)
