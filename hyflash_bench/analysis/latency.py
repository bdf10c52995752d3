"""How long people wait: time to the first token, time per token, time of a step, by percentile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from hyflash_bench.analysis.frames import COUNT, FLOAT, TEXT, frame_of
from hyflash_bench.analysis.groups import GROUP, ROW, Groups
from hyflash_bench.analysis.metrics import QUANTILES
from hyflash_bench.results.status import NUMBER_STATUSES

if TYPE_CHECKING:
    import pandas as pd

    from hyflash_bench.results.reader import Run

__all__ = ["latency"]

TIMED: Final = {"ttft": "turns", "time_per_output_token": "turns", "step": "steps"}
"""What is timed, and what each value is of."""


def latency(run: Run, by: Sequence[str] = GROUP) -> pd.DataFrame:
    """Percentiles of waiting times in the live loop, pooled over turns or steps.

    Args:
        run: The run.
        by: Columns of the conversations table, as in :func:`hyflash_bench.analysis.summary.summary`.

    Returns:
        ``by``, ``status``, ``num_turns`` and ``num_steps`` that were timed, and for ``ttft``,
        ``time_per_output_token`` and ``step`` a column ``x_p50_s``, ``x_p95_s`` and ``x_p99_s``; and
        ``reason``. A percentile that so few values cannot tell from their largest is missing: the
        95th needs 20, the 99th 100.
    """
    groups = Groups(run, by)
    values = {"ttft": _of_turns(groups, "ttft_s"), "time_per_output_token": _of_turns(groups, "decode_s")}
    values["step"] = _of_steps(groups)
    rows = [
        {**row, **_quantiles({name: known.get(at) for name, known in values.items()}, str(row["status"]))}
        for at, row in enumerate(groups.table[[*by, "status"]].to_dict("records"))
    ]
    names = [f"{name}_p{percent}_s" for name in TIMED for percent in QUANTILES]
    dtypes = {name: str(groups.table[name].dtype) for name in by}
    counts = dict.fromkeys(("num_turns", "num_steps"), COUNT)
    return frame_of(rows, {**dtypes, "status": TEXT, **counts, **dict.fromkeys(names, FLOAT), "reason": TEXT})


def _of_turns(groups: Groups, column: str) -> dict[int, pd.Series[float]]:
    """Seconds of every finished live turn by the group's row; those of decoding per committed token."""
    turns = groups.turns
    turns = turns[(turns["mode"] == "live") & (turns["status"] == "ok") & turns[column].notna()]
    seconds = turns[column]
    if column == "decode_s":
        turns = turns[turns["num_committed"] > 0]
        seconds = turns[column] / turns["num_committed"].astype("float64")
    return {int(row): part for row, part in seconds.groupby(turns[ROW])}


def _of_steps(groups: Groups) -> dict[int, pd.Series[float]]:
    """Seconds of every step of finished live turns, by the group's row."""
    keys = ["cell_id", "item_id", "turn"]
    steps = groups.run.steps
    steps = steps[(steps["mode"] == "live") & (steps["status"] == "ok") & steps["verify_s"].notna()]
    seconds = steps[["draft_s", "verify_s", "observe_s"]].sum(axis=1)
    turns = groups.turns.loc[groups.turns["mode"] == "live", [*keys, ROW]]
    timed = steps[keys].assign(seconds=seconds).merge(turns, on=keys)
    return {int(part[ROW].iloc[0]): part["seconds"] for _, part in timed.groupby(ROW)}


def _quantiles(known: Mapping[str, pd.Series[float] | None], status: str) -> dict[str, Any]:
    if status not in NUMBER_STATUSES:
        return {"num_turns": 0, "num_steps": 0, "reason": status}
    row: dict[str, Any] = {
        f"{name}_p{percent}_s": float(values.quantile(percent / 100))
        for name, values in known.items()
        for percent in QUANTILES
        if values is not None and len(values) >= _least(percent)
    }
    sizes = {name: 0 if values is None else len(values) for name, values in known.items()}
    row |= {"num_turns": sizes["ttft"], "num_steps": sizes["step"]}
    if not any(sizes.values()):
        return {**row, "reason": "not measured"}
    few = [
        f"{percent}th percentile of {size} {of}"
        for of, size in (("turns", sizes["ttft"]), ("steps", sizes["step"]))
        for percent in QUANTILES
        if size < _least(percent)
    ]
    return {**row, "reason": f"too few for the {' and the '.join(few)}" if few else None}


def _least(percent: int) -> int:
    """Values among which at least one lies beyond the percentile, or two for the median."""
    return max(1, round(100 / (100 - percent))) if percent > 50 else 1
