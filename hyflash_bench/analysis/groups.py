"""Groups of conversations, what became of each, and their numbers with intervals.

A group is named by columns. Its rows are found by a plain row number, since keys may be missing
(no memory cap, no context rung) and missing keys still name a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

from hyflash_bench.analysis.intervals import (
    Interval,
    counted_ratio,
    paired_ratio_interval,
    ratio_interval,
)
from hyflash_bench.analysis.metric import CONVERSATION, DOCUMENT, Metric
from hyflash_bench.errors import UnknownName
from hyflash_bench.results.schema import TABLES
from hyflash_bench.results.status import SEVERITY

if TYPE_CHECKING:
    import pandas as pd

    from hyflash_bench.results.reader import Run

__all__ = ["CAP", "GROUP", "WORK", "Degenerate", "Groups", "Key", "select_degenerate"]

Degenerate = Literal["all", "exclude", "only"]
Key = tuple[str, ...]

CAP: Final = ("memory_cap_bytes", "cap_kind", "cap_policy", "device", "weight_bits")
"""What names a memory cap."""

WORK: Final = ("suite", "sampling", *CAP)
"""What drafters have to share to be compared."""

GROUP: Final = ("drafter", *WORK)
"""What names a row of the headline table."""

ROW: Final = "_row"


def select_degenerate(turns: pd.DataFrame, which: Degenerate = "all") -> pd.DataFrame:
    """All turns, or those where the target does not repeat itself, or only those where it does.

    Raises:
        UnknownName: Another word.
    """
    if which not in ("all", "exclude", "only"):
        raise UnknownName("choice of degenerate turns", which, ("all", "exclude", "only"))
    if which == "all":
        return turns
    repeats = turns["degenerate"].astype("boolean").fillna(False).astype("bool")
    return turns[repeats if which == "only" else ~repeats]


@dataclass(frozen=True)
class Groups:
    """A run cut into groups.

    Attributes:
        run: The run.
        by: Columns of the conversations table that name a group, or ``turn``.
        degenerate: Which turns count.
    """

    run: Run
    by: Sequence[str]
    degenerate: Degenerate = "all"
    _values: dict[str, pd.Series[Any]] = field(default_factory=dict, repr=False, compare=False)
    _known: dict[str, dict[int, pd.DataFrame]] = field(default_factory=dict, repr=False, compare=False)
    _intervals: dict[str, list[Interval]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row a group: ``by``, status, message, num_conversations (ok), num_planned.

        The status is the worst of the group's conversations. A mismatch anywhere in a cell voids
        the whole cell; a conversation not run yet leaves every group of its cell interrupted.
        """
        self._check_names()
        states = self._states
        keys = states[list(self.by)].drop_duplicates(ignore_index=True)
        members = states.merge(keys.assign(**{ROW: range(len(keys))}), on=list(self.by))
        groups = members.groupby(ROW)
        worst = members.loc[groups["severity"].idxmax()]
        return keys.assign(
            status=worst["status"].to_numpy(),
            message=worst["message"].to_numpy(),
            num_conversations=groups["num_ok"].sum().to_numpy(),
            num_planned=groups["num_planned"].sum().to_numpy(),
        )

    @cached_property
    def turns(self) -> pd.DataFrame:
        """Turns with the number of their group's row."""
        turns = select_degenerate(self.run.turns, self.degenerate)
        keys = self.table[list(self.by)].assign(**{ROW: range(len(self.table))})
        return turns.merge(keys, on=list(self.by))

    def values(self, metric: Metric) -> pd.Series[Any]:
        """A metric for every row of the table, missing where the status does not allow it."""
        if metric.name not in self._values:
            import pandas as pd

            numbers = metric.by_number(self.turns, self.turns[ROW].to_numpy(), len(self.table))
            allowed = pd.Series(numbers).where(self.table["status"].isin(metric.gate))
            self._values[metric.name] = allowed.astype("Int64" if metric.is_whole else "float64")
        return self._values[metric.name]

    def intervals(self, metric: Metric) -> list[Interval]:
        """A metric with its interval for every row of the table, computed once a metric."""
        if metric.name not in self._intervals:
            rows = range(len(self.table))
            self._intervals[metric.name] = [self._interval(metric, row) for row in rows]
        return self._intervals[metric.name]

    @cached_property
    def keys(self) -> list[Key]:
        """The name of every row as text, in which a missing cap equals a missing cap."""
        return [tuple(map(str, key)) for key in self.table[list(self.by)].itertuples(index=False)]

    def paired(self, metric: Metric, row: int, other: Groups, other_row: int) -> Interval:
        """A metric of one row over that of another, on the conversations that both have.

        Args:
            metric: A ratio, a mean, or what is counted.
            row: Row of this table.
            other: Groups of this or another run.
            other_row: Row of the other table, the reference.
        """
        refused = self._refused(row, metric) or other._refused(other_row, metric, "the reference is ")
        if refused:
            return refused
        sums, others = self.sums(metric).get(row), other.sums(metric).get(other_row)
        if sums is None or others is None:
            return Interval.missing("not measured" if sums is None else "the reference was not measured")
        both = sums.merge(others, on=list(CONVERSATION), suffixes=("", "_reference"))
        if both.empty:
            return Interval.missing("no conversation in common")
        if metric.pooling == "max":
            return counted_ratio(both["above"], both["above_reference"], paired=True)
        return paired_ratio_interval(
            both["above"],
            both["below"],
            both["above_reference"],
            both["below_reference"],
            list(both[DOCUMENT]),
        )

    def num_measured(self, metric: Metric, row: int) -> int:
        """Conversations of a row that say something about a metric."""
        sums = self.sums(metric).get(row)
        return 0 if sums is None else int((sums["below"] > 0).sum())

    def _interval(self, metric: Metric, row: int) -> Interval:
        if refused := self._refused(row, metric):
            return refused
        sums = self.sums(metric).get(row)
        if sums is None:
            return Interval.missing("not measured")
        return ratio_interval(sums["above"], sums["below"], list(sums[DOCUMENT]))

    def _refused(self, row: int, metric: Metric, who: str = "") -> Interval | None:
        status = self.table["status"].iloc[row]
        return None if status in metric.gate else Interval.missing(f"{who}{status}")

    def sums(self, metric: Metric) -> dict[int, pd.DataFrame]:
        """Per-conversation sums by row of the table, made once a metric."""
        if metric.name not in self._known:
            sums = metric.per_conversation(self.turns, [ROW])
            self._known[metric.name] = {int(part[ROW].iloc[0]): part for _, part in sums.groupby(ROW)}
        return self._known[metric.name]

    def _check_names(self) -> None:
        allowed = {column.name for column in TABLES["conversations"]} - {"message", "peak_bytes"} | {"turn"}
        for name in self.by:
            if name not in allowed:
                raise UnknownName("column to group by", name, allowed)

    @cached_property
    def _states(self) -> pd.DataFrame:
        return _states(self.run, self.by)


def _states(run: Run, by: Sequence[str]) -> pd.DataFrame:
    """Everything that has a say in a group's status: conversations, and those not run yet."""
    import pandas as pd

    cells = run.cells.set_index("cell_id")
    done = run.conversations
    pending = done["cell_id"].map(cells["num_pending"]) > 0
    status = done["status"].mask(done["status"].eq("ok") & pending, "interrupted")
    status = status.mask(done["cell_status"] == "mismatch", "mismatch")
    message = done["message"].fillna(done["cell_id"].map(cells["message"]))
    columns = list(by)
    done = done.assign(
        status=status,
        message=message.where(status != "ok"),
        num_ok=done["status"].eq("ok").astype("int64"),
        num_planned=1,
    )
    if "turn" in columns:  # a conversation without any turn is a row of its own
        turns = run.turns[["cell_id", "item_id", "turn"]].drop_duplicates()
        done = done.merge(turns, on=["cell_id", "item_id"], how="left")
    states = done[[*columns, "status", "message", "num_ok", "num_planned"]]
    if set(by) <= set(run.cells):
        waiting = run.cells[run.cells["num_pending"] > 0]
        unstarted = waiting[columns].assign(
            status="interrupted",
            message=waiting["message"],
            num_ok=0,
            num_planned=waiting["num_pending"].astype("int64"),
        )
        states = pd.concat([states, unstarted], ignore_index=True)
    return states.assign(severity=states["status"].map(SEVERITY.index).astype("int64"))
