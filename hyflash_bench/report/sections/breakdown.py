"""Acceptance by kind of work, by category and by turn number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hyflash_bench.analysis.breakdown import Breakdown, breakdown
from hyflash_bench.report import figures
from hyflash_bench.report.groups import groups_of
from hyflash_bench.report.sections.base import (
    Block,
    Figure,
    Numbers,
    Part,
    Section,
    alt,
    count,
    ends,
    section,
)
from hyflash_bench.report.tables import ladder_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["by_kind"]

BY: Final[dict[Breakdown, str]] = {"kind": "kind", "category": "category", "turn": "turn number"}
METRIC: Final = "acceptance_length"


def by_kind(numbers: Numbers) -> Section | None:
    """Acceptance length by what tells conversations and turns apart."""
    parts: dict[str, Part] = {}
    for by, name in BY.items():
        if by == "category" and _says_the_same(numbers):
            continue
        for group in groups_of(_rows(numbers, by)):
            if group.is_capped or group.frame[by].nunique() < 2:
                continue
            known = group.frame[group.frame[METRIC].notna()]
            if known.empty:
                continue
            sentence = alt(f"Acceptance length by {name}", group.name, known, METRIC)
            note = f"{count(known).replace('point', 'bar')} {ends(known, METRIC, 'Whiskers')}"
            plot = figures.metric_by_group(known, by, numbers.looks)
            blocks: list[Block] = [
                Figure(f"by-{by}-{group.key}", sentence, note, plot),
                ladder_of(group.frame, f"Acceptance length by {name}: {group.name}", METRIC, by, ""),
            ]
            former = parts.get(group.key, Part((), group.key, group.name)).blocks
            parts[group.key] = Part([*former, *blocks], group.key, group.name)
    return section("by-kind", "By kind, category and turn number", (), parts.values())


def _rows(numbers: Numbers, by: Breakdown) -> pd.DataFrame:
    frame = numbers.published(breakdown(numbers.run, by, METRIC))
    frame = frame[frame[by].notna()]
    return frame.assign(turn=frame["turn"] + 1) if by == "turn" else frame


def _says_the_same(numbers: Numbers) -> bool:
    known = numbers.run.conversations[["kind", "category"]].dropna().drop_duplicates()
    return bool((known["kind"] == known["category"]).all())
