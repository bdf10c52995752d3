"""Rows that may be compared with each other: one suite, one sampling, one memory cap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hyflash_bench.spec.units import format_bytes

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["KEYS", "Group", "groups_of"]

KEYS = ("suite", "sampling", "memory_cap_bytes")


@dataclass(frozen=True)
class Group:
    """Comparable rows.

    Attributes:
        key: Stable and short, fit for an element's id.
        suite: Name of the suite.
        conditions: ``greedy, no memory cap``.
        is_capped: Whether a memory cap was laid on.
        frame: The rows.
    """

    key: str
    suite: str
    conditions: str
    is_capped: bool
    frame: pd.DataFrame

    @property
    def name(self) -> str:
        """For captions."""
        return f"{self.suite}, {self.conditions}"


def groups_of(frame: pd.DataFrame) -> Iterator[Group]:
    """Cut a table into comparable rows: suites in the run's order, uncapped before capped."""
    order = {suite: place for place, suite in enumerate(dict.fromkeys(frame["suite"]))}
    parts = [(key, part) for key, part in frame.groupby(list(KEYS), dropna=False, sort=False)]
    parts.sort(key=lambda one: (order[one[0][0]], one[0][1] != "greedy", _cap(one[0][2]) or 0))
    for number, ((suite, sampling, cap_bytes), part) in enumerate(parts, start=1):
        cap = _cap(cap_bytes)
        limit = "no memory cap" if cap is None else f"memory cap {format_bytes(cap)}"
        yield Group(f"{number}", str(suite), f"{sampling}, {limit}", cap is not None, part)


def _cap(value: object) -> int | None:
    import pandas as pd

    return None if pd.isna(value) else int(value)  # type: ignore[call-overload]
