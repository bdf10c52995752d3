"""The few numbers that the cells table shows; all others are in :mod:`hyflash_bench.analysis`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["cell_numbers"]

Row = dict[str, Any]


def cell_numbers(turns: Sequence[Row]) -> Row:
    """Pooled numbers over a cell's turns; None where there is nothing to divide."""
    scored = [turn for turn in turns if turn["is_scored"]]
    timed = [turn for turn in turns if turn["mode"] == "live" and turn["decode_s"]]
    sizes = [turn["drafter_bytes"] for turn in turns if turn["drafter_bytes"] is not None]
    return {
        "num_steps": _sum(scored, "num_uncut_steps"),
        "acceptance_length": _ratio(scored, "num_uncut_committed", "num_uncut_steps"),
        "acceptance_rate": _ratio(scored, "num_uncut_accepted", "num_uncut_drafted"),
        "decode_tok_per_s": _ratio(timed, "num_committed", "decode_s"),
        "drafter_bytes": max(sizes, default=None),
    }


def _ratio(turns: Sequence[Row], above: str, below: str) -> float | None:
    known = [turn for turn in turns if turn[above] is not None and turn[below] is not None]
    divisor = _sum(known, below)
    return (_sum(known, above) or 0) / divisor if divisor else None


def _sum(turns: Sequence[Row], name: str) -> float | None:
    """Sum over the turns in which it was measured; None if it was in none."""
    known = [turn[name] for turn in turns if turn[name] is not None]
    return sum(known) if known else None
