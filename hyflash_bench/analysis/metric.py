"""What a metric is, and how its number follows from the turns.

Almost all metrics are ratios of sums. Each is first summed per conversation; :meth:`Metric.over` then
pools the conversations, and intervals resample them document by document.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from hyflash_bench.errors import UsageError
from hyflash_bench.results.status import NUMBER_STATUSES

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from hyflash_bench.results.records import Status

    Floats = NDArray[np.float64]

__all__ = ["ABOUT", "CONVERSATION", "DOCUMENT", "Metric", "documents_of"]

CONVERSATION: Final = ("suite", "item_id")
"""What makes two rows the same conversation, whatever the drafter, the cap or the repeat."""

DOCUMENT: Final = "document"
"""The text behind a conversation: suites cut the same one to several lengths, and ask about it twice."""

ABOUT: Final = ("context_rung", DOCUMENT)
"""Columns that say which document a row is about, besides the conversation's name."""

Rows = Literal["scored", "live", "all"]
Pooling = Literal["ratio", "mean", "max", "count", "table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A number with everything needed to read it.

    Attributes:
        name: Column name, unit included.
        unit: In words, for tables.
        better: Which direction is good, if one is.
        definition: What it is, in a sentence.
        formula: Over turns or steps.
        source: Whose definition this is, or how it differs from others of the same name.
        rows: Turns it is read off: ``scored`` (the replay, or live where nothing was replayed),
            ``live``, or ``all``.
        pooling: ``ratio`` of sums; ``mean`` of each conversation's ratio; ``max``; ``count``;
            a ``table`` has a function of its own.
        above: Column summed in the numerator.
        below: Column summed in the denominator; None counts the turns where ``above`` is known.
        gate: Statuses under which the number is shown.
        table: With pooling ``table``, the function in :mod:`hyflash_bench.analysis` that makes it.
    """

    name: str
    unit: str
    better: Literal["higher", "lower", "neither"]
    definition: str
    formula: str
    source: str = "this project"
    rows: Rows = "scored"
    pooling: Pooling = "ratio"
    above: str = ""
    below: str | None = None
    gate: frozenset[Status] = NUMBER_STATUSES
    table: str = ""

    @property
    def has_interval(self) -> bool:
        """Whether resampling documents makes sense for it."""
        return self.pooling in ("ratio", "mean")

    @property
    def is_whole(self) -> bool:
        """Whether it is a whole number: bytes and counts."""
        return self.pooling in ("max", "count")

    def per_conversation(self, turns: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
        """Sums of each conversation: ``by``, suite, item_id, document, ``above``, ``below``.

        Turns where either was not measured are left out of both.

        Args:
            turns: The turns table of a run, or some of its rows.
            by: Columns to keep apart besides.
        """
        sums = self._sums(turns, [*by, *CONVERSATION, *ABOUT])
        names = dict.fromkeys([*by, *CONVERSATION, DOCUMENT, "above", "below"])
        return sums.assign(**{DOCUMENT: documents_of(sums)})[list(names)]

    def _sums(self, turns: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
        keys = list(dict.fromkeys(by))
        above, below, known = self._terms(turns)
        parts = turns.loc[known, keys].assign(above=above[known], below=below[known])
        groups = parts.groupby(keys, dropna=False, sort=False)
        sums = (groups.max() if self.pooling == "max" else groups.sum()).reset_index()
        if self.pooling == "mean":
            sums = sums[sums["below"] > 0]
            sums = sums.assign(above=sums["above"] / sums["below"], below=1.0)
        return sums

    def _terms(self, turns: pd.DataFrame) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Of each turn, what is summed above and below the line, and whether it counts."""
        import numpy as np

        self._require_turns()
        above = _column(turns, self.above)
        below = _column(turns, self.below) if self.below else np.ones(len(turns))
        known = _counted(turns, self).to_numpy(dtype=bool) & ~np.isnan(above) & ~np.isnan(below)
        if self.pooling == "mean":
            known &= ~turns["is_pooled"].to_numpy(dtype=bool)
        return above, below, known

    def by_number(self, turns: pd.DataFrame, numbers: NDArray[np.int64], num: int) -> Floats:
        """The number for each of many groups at once; NaN where nothing was measured.

        Args:
            turns: The turns table of a run, or some of its rows.
            numbers: The group of each turn, from 0.
            num: How many groups.
        """
        import numpy as np

        if self.pooling == "mean":  # needs each conversation's own ratio first
            means = self.over(turns.assign(_group=numbers), ["_group"])
            return np.asarray(means.reindex(range(num)), dtype=np.float64)
        above, below, known = self._terms(turns)
        at = numbers[known]
        value = np.full(num, np.nan)
        some = np.bincount(at, minlength=num) > 0
        if self.pooling == "max":
            value[some] = -np.inf
            np.maximum.at(value, at, above[known])
            return value
        value[some] = np.bincount(at, above[known], num)[some]
        if self.pooling == "ratio":
            sums = np.bincount(at, below[known], num)
            sums = np.where(sums > 0, sums, np.nan)
            return np.asarray(value / sums, dtype=np.float64)
        return value

    def over(self, turns: pd.DataFrame, by: Sequence[str] = ()) -> pd.Series[float]:
        """The number for each group; groups without a measurement are absent or NaN.

        Args:
            turns: The turns table of a run, or some of its rows.
            by: Columns that make the groups; one group named ``all`` without them.
        """
        sums = self._sums(turns, [*by, *CONVERSATION])
        keys = [sums[name] for name in by] or [sums["suite"].map(lambda _: "all")]
        groups = sums.groupby(keys, dropna=False)
        if self.pooling == "max":
            value = groups["above"].max()
        elif self.pooling == "count":
            value = groups["above"].sum()
        else:
            below = groups["below"].sum()
            value = groups["above"].sum() / below.where(below > 0)
        return value.rename(self.name)

    def _require_turns(self) -> None:
        if self.pooling == "table":
            raise UsageError(
                f"Metric {self.name!r} does not follow from sums over turns; use "
                f"hyflash_bench.analysis.{self.table}."
            )


def _counted(turns: pd.DataFrame, metric: Metric) -> pd.Series[bool]:
    """Rows of finished conversations in the metric's mode."""
    # A mismatch is a finished conversation too, for those metrics that speak about it.
    finished = turns["status"].isin({"ok", "mismatch"} & metric.gate)
    if metric.rows == "live":
        return finished & (turns["mode"] == "live")
    return finished & turns["is_scored"] if metric.rows == "scored" else finished


def documents_of(rows: pd.DataFrame) -> list[str]:
    """The document of each row by name.

    Where a run does not say which, it is the item without the context length, which the rungs share.
    """
    columns = (rows[name].tolist() for name in (*CONVERSATION, *ABOUT))
    return [
        f"{suite}/{document if isinstance(document, str) else item.removesuffix(f'/{rung}')}"
        for suite, item, rung, document in zip(*columns, strict=True)
    ]


def _column(rows: pd.DataFrame, name: str) -> Floats:
    """A column as floats; ``lossless=word`` is 1 where the column says the word."""
    import numpy as np

    column, _, word = name.partition("=")
    values = rows[column] == word if word else rows[column]
    return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)
