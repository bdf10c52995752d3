"""What is compared: runs, or drafters within runs, and whether they are alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from hyflash_bench.analysis.groups import GROUP, WORK, Groups, Key
from hyflash_bench.errors import SpecError, UnknownName
from hyflash_bench.results.layout import Layout
from hyflash_bench.results.merge import differences
from hyflash_bench.results.reader import Run, load_run
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.units import format_bytes

__all__ = ["SEPARATOR", "Side", "Source", "sides_of", "unlike"]

SEPARATOR: Final = "::"
"""Between a run and one of its drafters."""

Source = Run | Path | str | tuple[Run | Path | str, str]
"""A run, its folder, its name or ``RUN::drafter``; or a run and the label of a drafter in it."""

_OF_TARGET: Final = ("fingerprint", "dtype", "kv_dtype", "backend", "attention", "extrapolate")
_OF_CELL: Final = (*WORK, "suite_hash", "max_new_tokens", "draft_budget", "target_id")
_OF_REQUEST: Final = ("kv_dtype", "drafter_kv_dtype")


@dataclass(frozen=True, eq=False)
class Side:
    """A run, or a drafter of it.

    Attributes:
        groups: The run, cut into rows of the headline table.
        drafter: Label of the drafter; None for all of the run.
    """

    groups: Groups
    drafter: str | None = None

    @property
    def run(self) -> Run:
        """The run."""
        return self.groups.run

    @property
    def name(self) -> str:
        """As it was asked for."""
        return self.run.run_id if self.drafter is None else f"{self.run.run_id}{SEPARATOR}{self.drafter}"

    @property
    def rows(self) -> list[int]:
        """Rows of the groups' table that belong to it."""
        drafters = self.groups.table["drafter"]
        return [row for row, label in enumerate(drafters) if self.drafter in (None, label)]

    @cached_property
    def facts(self) -> dict[Key, dict[str, set[str]]]:
        """What has to be alike, as the cells behind each row of the groups' table tell it."""
        cells = self.run.cells
        found: dict[Key, dict[str, set[str]]] = {}
        keys = cells[list(GROUP)].itertuples(index=False)
        told = cells[list(_OF_CELL)].astype("object").where(cells[list(_OF_CELL)].notna(), "none")
        for key, values in zip(keys, told.to_dict("records"), strict=True):
            known = found.setdefault(tuple(map(str, key)), {})
            for name, value in values.items():
                known.setdefault(str(name), set()).add(str(value))
        return found

    @property
    def work(self) -> str:
        """All that it did, in words."""
        done = self.groups.table.iloc[self.rows][list(WORK)].drop_duplicates()
        return "; ".join(sorted(map(_told, done.to_dict("records")))) or "nothing"


def sides_of(sources: Sequence[Source]) -> list[Side]:
    """Load what is compared; a run that is named twice is loaded once.

    Raises:
        UnknownName: There is no such run, or no such drafter in it.
        DataError: A run is damaged.
    """
    known: dict[str, Groups] = {}
    return [_side(source, known) for source in sources]


def unlike(ours: Side, row: int, theirs: Side, other_row: int, *, timed: bool) -> list[str]:
    """What makes two rows incomparable: target, precision, suite, limits, sampling, cap, machine.

    Args:
        ours: One side.
        row: A row of its groups' table.
        theirs: The other.
        other_row: A row of that.
        timed: Whether times are compared, which depend on the machine too.
    """
    old, new = theirs.run, ours.run
    told, tells = theirs.facts[theirs.groups.keys[other_row]], ours.facts[ours.groups.keys[row]]
    found = {
        name: f"{name} was {_listed(told[name])}, is {_listed(tells[name])}"
        for name in _OF_CELL
        if told[name] != tells[name]
    }
    if old is new:
        return list(found.values())
    was, now = old.manifest, new.manifest
    inside = _differences("target", was.target, now.target, _OF_TARGET)
    if inside:
        found.pop("target_id", None)  # a hash over these
    else:
        inside = _differences("request", was.resolved, now.resolved, _OF_REQUEST)
    around = differences("environment", was.environment, now.environment) if timed else []
    return [*found.values(), *inside, *around]


def _side(source: Source, known: dict[str, Groups]) -> Side:
    place, label = source if isinstance(source, tuple) else (source, None)
    if isinstance(place, str) and label is None and not Layout(Path(place)).is_run:
        place, _, rest = place.partition(SEPARATOR)
        label = rest or None
    run = load_run(place) if isinstance(place, str | Path) else place
    key = str(place) if isinstance(place, str | Path) else f"id {id(run)}"
    groups = known.setdefault(key, Groups(run, GROUP))
    return Side(groups, None if label is None else _label(groups.run, label))


def _label(run: Run, given: str) -> str:
    """The drafter as the run labels it, whatever the order of the options here."""
    known = [str(label) for label in run.cells["drafter"].unique()]
    if given in known:
        return given
    try:
        label = DrafterSpec.from_text(given).label
    except SpecError:
        label = given
    if label not in known:
        raise UnknownName(f"drafter of run {run.run_id}", given, known)
    return label


def _differences(
    name: str, was: Mapping[str, Any] | None, now: Mapping[str, Any] | None, keys: Sequence[str]
) -> list[str]:
    """Among what both tell: an older version did not tell all of it."""
    shared = [key for key in keys if key in (was or {}) and key in (now or {})]
    old, new = ({key: side[key] for key in shared} for side in (was or {}, now or {}))
    return differences(name, old, new)


def _listed(values: set[str]) -> str:
    return " and ".join(sorted(values))


def _told(row: Mapping[Any, Any]) -> str:
    import pandas as pd

    cap = row["memory_cap_bytes"]
    limit = "no memory cap" if pd.isna(cap) else f"memory cap {format_bytes(int(cap))}"
    return f"{row['suite']} ({row['sampling']}, {limit})"
