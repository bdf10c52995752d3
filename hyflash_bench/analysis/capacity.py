"""What fits: drafter by context length by memory cap, as it was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Literal

from hyflash_bench.analysis.frames import COUNT, TEXT, frame_of, identity_dtypes
from hyflash_bench.analysis.groups import CAP

if TYPE_CHECKING:
    import pandas as pd

    from hyflash_bench.results.reader import Run

__all__ = ["OUTCOMES", "Outcome", "capacity"]

Outcome = Literal["fits", "window", "no draft", "out of memory", "not run"]
OUTCOMES: Final[tuple[Outcome, ...]] = ("fits", "window", "no draft", "out of memory", "not run")
"""From the best to what says nothing; where conversations differ, the worst that says something counts."""

_KEYS: Final = ("suite", "sampling", *CAP)


def capacity(run: Run) -> pd.DataFrame:
    """The memory-cap matrix: one row per drafter, context length and cap of a run, none left out.

    Args:
        run: The run.

    Returns:
        ``suite``, ``sampling``, the cap's columns, ``drafter``, ``context_length`` (missing for suites
        that fix none), ``outcome`` (see :data:`OUTCOMES`), ``num_conversations`` that said something,
        ``num_fitting`` of them, ``first_context`` (the shortest length at which the cap was reached),
        ``peak_bytes`` (the most that was needed there), ``reason`` for what was not run.
    """
    done, cells = (frame[frame["memory_cap_bytes"].notna()] for frame in (run.conversations, run.cells))
    by_place = {
        place: done.iloc[rows] for place, rows in _places(done, *_KEYS, "drafter", "context_rung").items()
    }
    lengths = run.conversations[["suite", "context_rung"]].drop_duplicates().sort_values("context_rung")
    rows = (
        _row(
            by_place.get((*place, str(label), str(length))), dict(zip(_KEYS, key, strict=True)), label, length
        )
        for place, (at, *_) in _places(cells, *_KEYS).items()
        for key in [cells[list(_KEYS)].iloc[at]]
        for label, length in product(
            dict.fromkeys(cells.loc[cells["suite"] == key["suite"], "drafter"]),
            lengths.loc[lengths["suite"] == key["suite"], "context_rung"],
        )
    )
    return frame_of(rows, _DTYPES)


def _places(frame: pd.DataFrame, *names: str) -> dict[tuple[str, ...], list[int]]:
    """Row numbers by name; as text, in which what is missing equals what is missing."""
    found: dict[tuple[str, ...], list[int]] = {}
    for row, key in enumerate(frame[list(names)].itertuples(index=False)):
        found.setdefault(tuple(map(str, key)), []).append(row)
    return found


def _row(part: pd.DataFrame | None, place: Mapping[str, Any], drafter: str, length: Any) -> dict[str, Any]:
    row = {**place, "drafter": drafter, "context_length": length}
    if part is None:
        return {
            **row,
            "outcome": "not run",
            "num_conversations": 0,
            "num_fitting": 0,
            "reason": "never begun",
        }
    said = [outcome for outcome in _outcomes(part) if outcome != "not run"]
    return {
        **row,
        "outcome": max(said, key=OUTCOMES.index, default="not run"),
        "num_conversations": len(said),
        "num_fitting": said.count("fits"),
        "first_context": part["context_reached"].fillna(part["policy_context"]).min(),
        "peak_bytes": part["peak_bytes"].max(),
        "reason": None if said else _why(part),
    }


def _outcomes(part: pd.DataFrame) -> Iterator[Outcome]:
    met = part["policy_context"].notna()
    for status, policy, has_met in zip(part["status"], part["cap_policy"], met, strict=True):
        if status == "oom":
            yield "out of memory"
        elif status not in ("ok", "mismatch"):  # a wrong output held its bytes all the same
            yield "not run"
        elif has_met:
            yield "window" if policy == "window" else "no draft"
        else:
            yield "fits"


def _why(part: pd.DataFrame) -> str:
    status = part["status"].iloc[0]
    message = next(iter(part["message"].dropna()), None)
    return f"{status}: {message}" if message else str(status)


_DTYPES: Final = {
    **identity_dtypes(_KEYS),
    "drafter": TEXT,
    "context_length": COUNT,
    "outcome": TEXT,
    **dict.fromkeys(("num_conversations", "num_fitting", "first_context", "peak_bytes"), COUNT),
    "reason": TEXT,
}
