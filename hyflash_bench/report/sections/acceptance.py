"""Acceptance length: by context length, slot by slot, in replies that repeat themselves."""

from __future__ import annotations

from hyflash_bench.analysis.groups import Degenerate, Groups
from hyflash_bench.analysis.metrics import METRICS, Metric
from hyflash_bench.analysis.positions import position_acceptance
from hyflash_bench.report import figures
from hyflash_bench.report.groups import KEYS, Group
from hyflash_bench.report.sections.base import (
    Block,
    Figure,
    Numbers,
    Part,
    Section,
    alt,
    count,
    parts_of,
    section,
    table,
)
from hyflash_bench.report.tables import ladder_of
from hyflash_bench.results.status import NUMBER_STATUSES

__all__ = ["acceptance", "degenerate", "positions"]

BAND = "Bands: 95 % intervals."


def acceptance(numbers: Numbers) -> Section | None:
    """Acceptance length against context length."""
    metric = "acceptance_length"

    def blocks(group: Group) -> list[Block]:
        made: list[Block] = []
        known = group.frame[group.frame[metric].notna()]
        if known["context_length"].nunique() > 1:
            sentence = alt("Acceptance length", group.name, known, metric)
            plot = figures.acceptance_by_context(known, numbers.looks)
            made.append(Figure(f"acceptance-{group.key}", sentence, f"{count(known)} {BAND}", plot))
        return [*made, ladder_of(group.frame, f"Acceptance length: {group.name}", metric)]

    text = METRICS[metric].definition
    title = "Acceptance length by context length"
    return section("acceptance", title, [text], parts_of(numbers.by_context, blocks))


def positions(numbers: Numbers) -> Section | None:
    """Acceptance slot by slot."""
    metric = "position_acceptance"
    steps = numbers.steps
    steps = steps[steps["cell_status"].isin(NUMBER_STATUSES) & steps["memory_cap_bytes"].isna()]
    frame = position_acceptance(steps, ("drafter", *(key for key in KEYS if key in steps)))

    def blocks(group: Group) -> list[Block]:
        first = group.frame[group.frame["position"] == 1]
        sentence = alt("Acceptance of the first slot", group.name, first, metric)
        note = count(group.frame, "num_reached", "drafts that reached the slot,")
        plot = figures.position_acceptance(group.frame, numbers.looks)
        caption = f"Acceptance slot by slot: {group.name}"
        shown = group.frame.sort_values("position")
        return [
            Figure(f"positions-{group.key}", sentence, note, plot),
            ladder_of(shown, caption, metric, "position", ""),
        ]

    texts = [METRICS[metric].definition]
    return section("positions", "Acceptance by position", texts, parts_of(frame, blocks))


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
