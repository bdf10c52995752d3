"""The sections of a run's report: what is shown, in which order, with which words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from hyflash_bench.analysis import summary
from hyflash_bench.analysis.metrics import METRICS
from hyflash_bench.analysis.positions import position_acceptance
from hyflash_bench.report import figures
from hyflash_bench.report.claims import CLAIMS_NOTE, claims_of, claims_table, tally
from hyflash_bench.report.columns import FAILURES, HEADLINE, LOSSLESS, SPEED
from hyflash_bench.report.groups import KEYS, groups_of
from hyflash_bench.report.tables import Table, ladder_of, table_of
from hyflash_bench.report.text import cell_text, without_paths
from hyflash_bench.results.status import NUMBER_STATUSES

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from hyflash_bench.results.reader import Run

__all__ = ["Figure", "Numbers", "Section", "sections_of"]

INTERVALS = (
    "Small print below a number is its 95 % interval, bootstrapped over documents: prompts cut from one "
    "document at several lengths are drawn together, and a conversation of its own text counts as one. "
    "Ratios between drafters are paired: a document brings the numbers of both along."
)

BYTES = {
    "drafter_bytes": "All bytes of the drafter",
    "drafter_peak_bytes": "Bytes of the drafter besides its weights",
}


@dataclass(frozen=True)
class Numbers:
    """A run's tables, each made once.

    Attributes:
        run: The run.
        looks: How each drafter of the page is drawn.
    """

    run: Run
    looks: figures.Looks

    @cached_property
    def headline(self) -> pd.DataFrame:
        """One row per drafter, suite, sampling and cap."""
        return _published(summary.headline(self.run))

    @cached_property
    def by_context(self) -> pd.DataFrame:
        """The same by context length."""
        return _published(summary.by_context(self.run))


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure and the sentence that stands for it where it cannot be seen."""

    key: str
    alt: str
    plot: go.Figure


Block = Figure | Table


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with what stands below it."""

    key: str
    title: str
    texts: Sequence[str]
    blocks: Sequence[Block] = ()

    @property
    def figures(self) -> list[Figure]:
        """The figures among the blocks."""
        return [block for block in self.blocks if isinstance(block, Figure)]


def sections_of(numbers: Numbers) -> list[Section]:
    """All sections that have something to show, in reading order."""
    made = [make(numbers) for make in _SECTIONS]
    return [section for section in made if section is not None]


def _headline(numbers: Numbers) -> Section | None:
    frame = numbers.headline
    # Where there is no verdict, why; a status other than ok has its own column.
    why = frame["reason"].mask(frame["reason"] == frame["status"])
    frame = frame.assign(verdict=frame["verdict"].fillna(why))
    blocks = [_table(group.name, _ordered(group.frame), HEADLINE) for group in groups_of(frame)]
    return _section("headline", "Headline", [INTERVALS], blocks)


def _acceptance(numbers: Numbers) -> Section | None:
    metric = "acceptance_length"
    blocks: list[Block] = []
    for group in groups_of(numbers.by_context):
        known = group.frame[group.frame[metric].notna()]
        if known["context_length"].nunique() > 1 and not group.is_capped:
            alt = _alt("Acceptance length", group.name, known, metric)
            plot = figures.acceptance_by_context(known, numbers.looks)
            blocks.append(Figure(f"acceptance-{group.key}", alt, plot))
        blocks.append(ladder_of(group.frame, f"Acceptance length: {group.name}", metric))
    texts = [METRICS[metric].definition, INTERVALS]
    return _section("acceptance", "Acceptance length by context length", texts, blocks)


def _bytes(numbers: Numbers) -> Section | None:
    blocks: list[Block] = []
    for group in groups_of(numbers.by_context):
        has_weights = bool((group.frame["drafter_weights_bytes"] > 0).any())
        for metric, name in BYTES.items() if has_weights else [*BYTES.items()][:1]:
            known = group.frame[group.frame[metric] > 0]
            if known["context_length"].nunique() > 1 and not group.is_capped:
                plot = figures.bytes_by_context(known, numbers.looks, metric)
                alt = _alt(name, group.name, known, metric)
                blocks.append(Figure(f"{metric.replace('_', '-')}-{group.key}", alt, plot))
            if group.frame[metric].notna().any():
                blocks.append(ladder_of(group.frame, f"{name}: {group.name}", metric))
    text = (
        "Read off the live tensors. Weights that a drafter shares with the target are counted once, "
        "for the target."
    )
    return _section("bytes", "Drafter bytes by context length", [text], blocks)


def _speed(numbers: Numbers) -> Section | None:
    metric = "decode_tok_per_s"
    blocks: list[Block] = []
    for group in groups_of(numbers.headline):
        known = group.frame[group.frame[metric].notna()]
        if not known.empty:
            alt = _alt("Decoding speed in tokens/s", group.name, known, metric)
            blocks.append(Figure(f"speed-{group.key}", alt, figures.speed_by_drafter(known, numbers.looks)))
            blocks.append(_table(group.name, _ordered(known), SPEED))
    text = "Measured on the machine described under Conditions, prefill and first token apart."
    return _section("speed", "Tokens per second", [text], blocks)


def _positions(numbers: Numbers) -> Section | None:
    steps = _published(numbers.run.steps)
    steps = steps[steps["cell_status"].isin(NUMBER_STATUSES) & steps["memory_cap_bytes"].isna()]
    blocks: list[Block] = []
    for group in groups_of(position_acceptance(steps, ("drafter", *KEYS))):
        first = group.frame[group.frame["position"] == 1]
        alt = _alt("Acceptance of the first slot", group.name, first, "position_acceptance")
        plot = figures.position_acceptance(group.frame, numbers.looks)
        wide = group.frame.pivot(index="drafter", columns="position", values="position_acceptance")
        wide.columns = [f"slot {position}" for position in wide.columns]
        blocks.append(Figure(f"positions-{group.key}", alt, plot))
        blocks.append(_table(group.name, wide.reset_index(), ["drafter", *wide.columns]))
    texts = [METRICS["position_acceptance"].definition]
    return _section("positions", "Acceptance slot by slot", texts, blocks)


def _claims(numbers: Numbers) -> Section | None:
    frame = claims_of(numbers.run)
    if frame is None:
        return None
    caption = f"Claims and controls: {tally(frame)}"
    return Section("claims", "Claims", [CLAIMS_NOTE], [claims_table(frame, caption)])


def _lossless(numbers: Numbers) -> Section | None:
    frame = summary.summary(numbers.run, ("drafter", "sampling"))
    judged = frame[frame["num_identical"].notna()]
    text = (
        "A drafter must not change the output. Each live reply is compared with the target's own, "
        "token by token; sampled replies cannot be. A mismatch takes the cell out of every ranking."
    )
    table = _table("Live turns by the outcome of the comparison", judged, LOSSLESS)
    return _section("lossless", "Losslessness", [text], [table])


def _degenerate(numbers: Numbers) -> Section | None:
    by = ["drafter", "suite", "sampling"]
    rest, repeating, both = (
        summary.summary(numbers.run, by, degenerate=which).set_index(by)
        for which in ("exclude", "only", "all")
    )
    frame = both[["degenerate_share"]].assign(
        acceptance_length_of_the_rest=rest["acceptance_length"],
        acceptance_length_when_repeating=repeating["acceptance_length"],
    )
    frame = frame.dropna(subset=["acceptance_length_when_repeating"]).reset_index()
    text = (
        "Replies in which the target repeats itself are easy to draft and flatter every drafter. "
        "They count in the numbers above and are told apart here."
    )
    table = _table("Acceptance length in repeating replies and in the rest", frame, frame.columns)
    return _section("degenerate", "Repeating replies", [text], [table])


def _failures(numbers: Numbers) -> Section | None:
    frame = summary.failures(numbers.run)
    if frame.empty:
        return Section("failures", "Failures", ["Every conversation of every cell was measured."])
    return Section("failures", "Failures", (), [_table("What did not go well, and why", frame, FAILURES)])


_SECTIONS: tuple[Callable[[Numbers], Section | None], ...] = (
    _headline,
    _acceptance,
    _bytes,
    _speed,
    _positions,
    _claims,
    _lossless,
    _degenerate,
    _failures,
)

_MEANINGS = {name: metric.definition for name, metric in METRICS.items()}


def _section(key: str, title: str, texts: Sequence[str], blocks: Sequence[Block]) -> Section | None:
    """A section, or None where all of its tables are empty."""
    full = [block for block in blocks if isinstance(block, Figure) or block.rows]
    return Section(key, title, texts, full) if full else None


def _table(name: str, frame: pd.DataFrame, columns: Iterable[str]) -> Table:
    return table_of(frame, name, list(columns), _MEANINGS)


def _ordered(frame: pd.DataFrame) -> pd.DataFrame:
    """Fastest first; then those that did not finish, and those without a number."""
    keys = ["decode_tok_per_s", "acceptance_length"]
    by_speed = frame.sort_values(keys, ascending=False, na_position="last", kind="stable")
    is_unfinished = (by_speed["status"] != "ok").astype("int8")
    return by_speed.iloc[is_unfinished.argsort(kind="stable")]


def _published(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with drafters named as a page may name them: files without their folders."""
    return frame.assign(drafter=frame["drafter"].map(without_paths))


def _alt(what: str, where: str, frame: pd.DataFrame, metric: str) -> str:
    """Say in a sentence what a figure shows: its ends, and whose they are."""
    ranked = frame.sort_values([metric, "drafter"])
    low, high = ranked.iloc[0], ranked.iloc[-1]
    ends = [f"{cell_text(metric, row[metric])} ({row['drafter']})" for row in (low, high)]
    values = ends[0] if len(frame) == 1 else f"from {ends[0]} to {ends[1]}"
    return f"{what} on {where}: {values}."
