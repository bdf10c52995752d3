"""Acceptance length: by context length, slot by slot, in replies that repeat themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hyflash_bench.analysis.crossover import crossover
from hyflash_bench.analysis.groups import Degenerate, Groups
from hyflash_bench.analysis.metrics import METRICS, Metric
from hyflash_bench.analysis.positions import position_acceptance, step_distribution
from hyflash_bench.report import figures
from hyflash_bench.report.columns import CROSSOVER
from hyflash_bench.report.groups import KEYS, Group, groups_of
from hyflash_bench.report.sections.base import (
    Block,
    Figure,
    Numbers,
    Part,
    Section,
    alt,
    count,
    ends,
    parts_of,
    section,
    table,
)
from hyflash_bench.report.tables import ladder_of
from hyflash_bench.report.text import heading
from hyflash_bench.results.status import NUMBER_STATUSES

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["acceptance", "crossovers", "degenerate", "positions"]

BANDS = "Bands"


def acceptance(numbers: Numbers) -> Section | None:
    """Acceptance length against context length."""
    metric = "acceptance_length"

    def blocks(group: Group) -> list[Block]:
        made: list[Block] = []
        known = group.frame[group.frame[metric].notna()]
        if known["context_length"].nunique() > 1:
            sentence = alt("Acceptance length", group.name, known, metric)
            plot = figures.acceptance_by_context(known, numbers.looks)
            made.append(
                Figure(
                    f"acceptance-{group.key}", sentence, f"{count(known)} {ends(known, metric, BANDS)}", plot
                )
            )
        return [*made, ladder_of(group.frame, f"Acceptance length: {group.name}", metric)]

    text = METRICS[metric].definition
    title = "Acceptance length by context length"
    return section("acceptance", title, [text], parts_of(numbers.by_context, blocks))


def positions(numbers: Numbers) -> Section | None:
    """Acceptance slot by slot, and how many tokens steps commit."""
    metric, share = "position_acceptance", "step_share"
    steps = numbers.steps
    steps = steps[steps["cell_status"].isin(NUMBER_STATUSES) & steps["memory_cap_bytes"].isna()]
    by = ("drafter", *(key for key in KEYS if key in steps))
    sizes = step_distribution(steps[~steps["drafter"].isin(numbers.references)], by)
    committed = {group.key: group.frame for group in groups_of(sizes)} if len(sizes) else {}

    def blocks(group: Group) -> list[Block]:
        first = group.frame[group.frame["position"] == 1]
        sentence = alt("Acceptance of the first slot", group.name, first, metric)
        reached = count(group.frame, "num_reached", "drafts that reached the slot,")
        note = f"{reached} {ends(group.frame, metric, BANDS)}"
        plot = figures.position_acceptance(group.frame, numbers.looks)
        caption = f"Acceptance slot by slot: {group.name}"
        shown = group.frame.sort_values("position")
        return [
            Figure(f"positions-{group.key}", sentence, note, plot),
            ladder_of(shown, caption, metric, "position", ""),
            *_distribution(committed.get(group.key), group, share, numbers),
        ]

    frame = position_acceptance(steps, by)
    texts = [METRICS[metric].definition, METRICS[share].definition]
    return section("positions", "Acceptance by position", texts, parts_of(frame, blocks))


def _distribution(frame: pd.DataFrame | None, group: Group, metric: str, numbers: Numbers) -> Iterator[Block]:
    """How many tokens steps commit."""
    if frame is None:
        return
    one = frame[frame["committed"] == 1]
    sentence = alt("Share of steps that committed one token", group.name, one, metric)
    steps = frame.groupby("drafter")["num_steps"].sum().to_frame()
    note = f"{count(steps, 'num_steps', 'steps').replace('a point', 'a drafter')} Counted, so no intervals."
    title = f"share of steps ({METRICS[metric].unit})"
    plot = figures.metric_by_group(frame, "committed", numbers.looks, metric, title)
    plot.update_xaxes(title="tokens committed by a step")
    yield Figure(f"steps-{group.key}", sentence, note, plot)
    shown = frame.sort_values("committed", kind="stable")
    yield ladder_of(shown, f"Share of steps by tokens committed: {group.name}", metric, "committed", "")


def crossovers(numbers: Numbers) -> Section | None:
    """Where one drafter overtakes another as contexts grow."""
    import pandas as pd

    run = numbers.run
    if run.conversations["context_rung"].nunique() < 2:
        return None
    found = [crossover(run, metric) for metric in ("acceptance_length", "decode_tok_per_s")]
    frame = pd.concat(found, ignore_index=True)
    frame = frame[frame["memory_cap_bytes"].isna() & (frame["num_lengths"] > 1)]
    names = ("drafter", "reference", "ahead_before", "ahead_after")
    frame = frame.assign(**{name: frame[name].map(numbers.name, na_action="ignore") for name in names})
    lengths = {
        name: frame[name].round().astype("Int64")
        for name in ("crossover_context", "crossover_low", "crossover_high")
    }
    frame = frame.assign(**lengths).rename(
        columns={f"crossover_{end}": f"crossover_context_{end}" for end in ("low", "high")}
    )
    # Plain decoding commits one token a step whatever the context: nobody's acceptance can cross it.
    plain = frame["drafter"].isin(numbers.references) | frame["reference"].isin(numbers.references)
    frame = frame[~plain | (frame["metric"] != "acceptance_length")]
    parts = [part for group in groups_of(frame) for part in _crossings(group)]
    text = (
        "The context length at which the curves of two drafters cross, on the documents that both read, with "
        "its 95 % interval. Between measured lengths the logarithm of their ratio is taken as straight over "
        "the logarithm of the length. Pairs that do not cross are listed too."
    )
    return section("crossover", "Where drafters overtake each other", [text], parts)


def _crossings(group: Group) -> Iterator[Part]:
    frame = group.frame.assign(metric=group.frame["metric"].map(heading))
    crossing = frame[frame["crossover_context"].notna()]
    rest = frame[frame["crossover_context"].isna()]
    yield Part([table(f"Crossing: {group.name}", crossing, CROSSOVER)], group.key)
    title = f"{len(rest)} pairs that do not cross: {group.name}"
    yield Part([table(f"Not crossing: {group.name}", rest, CROSSOVER)], group.key, title, folded=True)


def degenerate(numbers: Numbers) -> Section | None:
    """Replies in which the target repeats itself, apart from the rest."""
    import pandas as pd

    by = ["drafter", "suite", "sampling"]
    length, share = METRICS["acceptance_length"], METRICS["degenerate_share"]
    which: dict[str, tuple[Degenerate, Metric]] = {
        "degenerate_share": ("all", share),
        "acceptance_length_of_the_rest": ("exclude", length),
        "acceptance_length_when_repeating": ("only", length),
    }
    columns = {}
    for name, (kind, metric) in which.items():
        groups = Groups(numbers.run, by, kind)
        columns[name] = groups.table[by].assign(value=groups.values(metric)).set_index(by)["value"]
    frame = pd.DataFrame(columns).dropna(subset=["acceptance_length_when_repeating"]).reset_index()
    frame = numbers.published(frame)
    text = (
        "Replies in which the target repeats itself are easy to draft and flatter every drafter. "
        "They count in the numbers above and are told apart here."
    )
    shown = table("Acceptance length in repeating replies and in the rest", frame, frame.columns)
    return section("degenerate", "Repeating replies", [text], [Part([shown])])
