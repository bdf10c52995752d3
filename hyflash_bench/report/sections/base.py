"""What sections are made of: the run's tables, and blocks of text, tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from hyflash_bench.analysis import simulated as simulation
from hyflash_bench.analysis import summary
from hyflash_bench.analysis.metrics import METRICS
from hyflash_bench.errors import TargetError
from hyflash_bench.report.figures.common import Looks
from hyflash_bench.report.groups import Group, groups_of
from hyflash_bench.report.tables import Table, table_of
from hyflash_bench.report.text import cell_text, without_paths
from hyflash_bench.spec.device import device_names, read_device

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from hyflash_bench.results.reader import Run

__all__ = [
    "INTERVALS",
    "Figure",
    "Numbers",
    "Part",
    "Section",
    "alt",
    "count",
    "ends",
    "parts_of",
    "section",
    "table",
]

INTERVALS = (
    "Small print below a number is its 95 % interval, bootstrapped over documents: conversations about one "
    "text are drawn together, whatever length it was cut to, and one of its own text counts as one. "
    "Ratios between drafters are paired: a document brings the numbers of both along."
)

_MEANINGS = {name: metric.definition for name, metric in METRICS.items()}


@dataclass(frozen=True)
class Numbers:
    """A run's tables, each made once, with drafters named as the page may name them.

    Attributes:
        run: The run.
        looks: How each drafter of the page is drawn.
        include_host: Whether paths may stand in names.
    """

    run: Run
    looks: Looks
    include_host: bool = False

    @cached_property
    def headline(self) -> pd.DataFrame:
        """One row per drafter, suite, sampling and cap."""
        return self.published(summary.headline(self.run))

    @cached_property
    def by_context(self) -> pd.DataFrame:
        """The same by context length."""
        return self.published(summary.by_context(self.run))

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row a step."""
        return self.published(self.run.steps)

    @cached_property
    def simulated(self) -> pd.DataFrame:
        """Simulated speeds by device; no rows where the run does not say enough of its target."""
        import pandas as pd

        devices = [read_device(name) for name in _devices(self.run)]
        try:
            frame = simulation.simulated(self.run, devices)
        except TargetError:
            return pd.DataFrame(columns=[*simulation.SIMULATED, "context_length"])
        return self.published(frame.rename(columns={"context_rung": "context_length"}))

    @cached_property
    def references(self) -> set[str]:
        """Labels of plain decoding, which is no drafter to choose."""
        return {self.name(cell.drafter) for cell in self.run.manifest.cells if cell.is_reference}

    def name(self, drafter: str) -> str:
        """A drafter as the page may name it: files without their folders."""
        return drafter if self.include_host else without_paths(drafter)

    def published(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The frame with such names."""
        names = {label: self.name(label) for label in frame["drafter"].unique()}
        return frame.assign(drafter=frame["drafter"].map(names))


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure and the sentence that stands for it where it cannot be seen.

    Attributes:
        key: Unique within the run.
        alt: What it shows, with numbers.
        note: How many conversations stand behind it, and what its bands or bars are.
        plot: The figure.
    """

    key: str
    alt: str
    note: str
    plot: go.Figure

    @property
    def height(self) -> int:
        """Pixels."""
        return int(self.plot.layout.height or 380)


Block = Figure | Table


@dataclass(frozen=True, slots=True)
class Part:
    """Blocks about one group of comparable rows; ``group`` is empty where they are about all.

    Attributes:
        blocks: Figures and tables, in order.
        group: Key of the group, for the filter.
        title: Name of the group.
        folded: Whether it is shown only when asked for.
    """

    blocks: Sequence[Block]
    group: str = ""
    title: str = ""
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with what stands below it."""

    key: str
    title: str
    texts: Sequence[str]
    parts: Sequence[Part] = ()

    @property
    def figures(self) -> list[Figure]:
        """The figures among the blocks."""
        return [block for part in self.parts for block in part.blocks if isinstance(block, Figure)]


def section(key: str, title: str, texts: Sequence[str], parts: Iterable[Part]) -> Section | None:
    """A section, or None where all of its tables are empty."""
    full = [part for part in map(_filled, parts) if part.blocks]
    return Section(key, title, texts, full) if full else None


def parts_of(frame: pd.DataFrame, blocks_of: Callable[[Group], Sequence[Block]]) -> list[Part]:
    """A part for each group of comparable rows.

    A simulated cap changes nothing of what stands below it, so capped groups are folded where there are
    others.
    """
    groups = list(groups_of(frame))
    some_uncapped = any(not group.is_capped for group in groups)
    return [
        Part(blocks_of(group), group.key, group.name, folded=group.is_capped and some_uncapped)
        for group in groups
    ]


def table(caption: str, frame: pd.DataFrame, columns: Iterable[str]) -> Table:
    """A frame laid out, with the metrics' definitions behind its headings."""
    return table_of(frame, caption, list(columns), _MEANINGS)


def alt(what: str, where: str, frame: pd.DataFrame, metric: str) -> str:
    """Say in a sentence what a figure shows: its ends, and whose they are."""
    ranked = frame.dropna(subset=[metric]).sort_values([metric, "drafter"])
    if ranked.empty:
        return f"{what} on {where}: not measured."
    low, high = ranked.iloc[0], ranked.iloc[-1]
    ends = [f"{cell_text(metric, row[metric])} ({row['drafter']})" for row in (low, high)]
    values = ends[0] if len(ranked) == 1 else f"from {ends[0]} to {ends[1]}"
    return f"{what} on {where}: {values}."


def count(frame: pd.DataFrame, of: str = "num_conversations", unit: str = "conversations") -> str:
    """``n = 6 conversations a point``, or the range where the points differ."""
    if of not in frame:
        return ""
    known = frame[of].dropna()
    if known.empty:
        return ""
    low, high = int(known.min()), int(known.max())
    number = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return f"n = {number} {unit[:-1] if number == '1' else unit} a point."


def ends(frame: pd.DataFrame, metric: str, drawn: str) -> str:
    """What the bands or whiskers of a figure are, and which points have none."""
    known = frame[frame[metric].notna()]
    has = known[f"{metric}_low"].notna()
    if has.all():
        return f"{drawn}: 95 % intervals."
    reasons: list[str] = known.loc[~has, "reason"].dropna().tolist() if "reason" in known else []
    why = f" ({reasons[0]})" if reasons else ""
    if has.any():
        return f"{drawn}: 95 % intervals, where there are enough conversations{why}."
    return f"No intervals{why}."


def _devices(run: Run) -> list[str]:
    """The shipped devices that a run asked for, or all of them."""
    shipped = device_names()
    asked = [name for name in run.manifest.resolved.get("devices") or () if name in shipped]
    return asked or shipped


def _filled(part: Part) -> Part:
    blocks = [block for block in part.blocks if isinstance(block, Figure) or block.rows]
    return Part(blocks, part.group, part.title, part.folded)
