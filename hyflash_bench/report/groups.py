"""Rows that may be compared with each other: one suite, one sampling, one memory cap."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hyflash_bench.analysis.groups import WORK
from hyflash_bench.spec.units import format_bytes

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["KEYS", "Group", "groups_of"]

KEYS = WORK


@dataclass(frozen=True)
class Group:
    """Comparable rows.

    Attributes:
        key: Short, fit for an element's id, and the same wherever these conditions are shown.
        suite: Name of the suite.
        conditions: ``greedy, no memory cap``.
        is_capped: Whether a memory cap was laid on.
        rank: Its place among the groups of the suite.
        frame: The rows.
    """

    key: str
    suite: str
    conditions: str
    is_capped: bool
    rank: tuple[bool, str, int, str]
    frame: pd.DataFrame

    @property
    def name(self) -> str:
        """For captions."""
        return f"{self.suite}, {self.conditions}"


def groups_of(frame: pd.DataFrame, by: Sequence[str] = KEYS) -> Iterator[Group]:
    """Cut a table into comparable rows: suites in the run's order, uncapped before capped.

    Args:
        frame: The rows.
        by: Columns that make the groups; those that the frame lacks are left out.
    """
    keys = [key for key in by if key in frame]
    order = {suite: place for place, suite in enumerate(dict.fromkeys(frame["suite"]))}
    parts = [_group(dict(zip(keys, key, strict=True)), part) for key, part in _parts(frame, keys)]
    yield from sorted(parts, key=lambda one: (order[one.suite], *one.rank))


def _parts(frame: pd.DataFrame, keys: list[str]) -> Iterator[tuple[tuple[object, ...], pd.DataFrame]]:
    yield from frame.groupby(keys, dropna=False, sort=False)


def _group(values: dict[str, object], frame: pd.DataFrame) -> Group:
    known = {name: value for name, value in values.items() if _is_known(value)}
    cap_bytes = int(str(known.get("memory_cap_bytes", 0)))
    suite, sampling = str(known["suite"]), str(known["sampling"])
    conditions = f"{sampling}, {_limit(known, cap_bytes)}"
    digest = hashlib.sha256(f"{suite}\n{conditions}\n{cap_bytes}".encode("utf-8", "replace")).hexdigest()
    rank = (sampling != "greedy", sampling, cap_bytes, conditions)
    return Group(f"g{digest[:8]}", suite, conditions, cap_bytes > 0, rank, frame)


def _limit(known: dict[str, object], cap_bytes: int) -> str:
    """``memory cap 640 MiB``, with what is done at it where that is not to stop."""
    if not cap_bytes:
        return "no memory cap"
    where = f" of {known['device']}" if "device" in known else ""
    remarks = [
        "enforced" if known.get("cap_kind") == "enforced" else "",
        str(known.get("cap_policy", "stop")).replace("stop", ""),
        f"weights of {known['weight_bits']} bits" if "weight_bits" in known else "",
    ]
    said = ", ".join(filter(None, remarks))
    return f"memory cap {format_bytes(cap_bytes)}{where}{f' ({said})' if said else ''}"


def _is_known(value: object) -> bool:
    import pandas as pd

    return not (value is None or pd.isna(value))  # type: ignore[call-overload]
