"""What fits under a cap, and which drafters no other beats in both speed and bytes."""

from __future__ import annotations

from typing import Any

from hyflash_bench.analysis.capacity import capacity
from hyflash_bench.analysis.metrics import METRICS
from hyflash_bench.analysis.pareto import pareto as pareto_front
from hyflash_bench.report import figures
from hyflash_bench.report.groups import Group, groups_of
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
from hyflash_bench.report.tables import Cell, Heading, Table, tone_of
from hyflash_bench.report.text import NOT_MEASURED

__all__ = ["caps", "pareto"]


def caps(numbers: Numbers) -> Section | None:
    """The memory-cap matrix: drafter by context length, for each cap."""
    frame = numbers.published(capacity(numbers.run))
    parts = [Part([_matrix(group)], group.key) for group in groups_of(frame)]
    text = (
        "Whether all that target and drafter hold stays under the cap at each context length. Window: the "
        "drafter went on with a shorter window. No draft: decoding went on without it. Out of memory: it "
        "stopped. Small print: conversations that fit, of those that ran; or where the cap was first reached."
    )
    return section("caps", "What fits under a memory cap", [text], parts)


def pareto(numbers: Numbers) -> Section | None:
    """Speed, or acceptance where nothing was timed, against the bytes of a drafter."""

    def blocks(group: Group) -> list[Block]:
        timed = bool(group.frame["decode_tok_per_s"].notna().any())
        metric = "decode_tok_per_s" if timed else "acceptance_length"
        what = "Decoding speed" if timed else "Acceptance length"
        frame = pareto_front(group.frame, metric)
        frame = frame.merge(group.frame[["drafter", "num_conversations"]], on="drafter")
        known = frame[frame[metric].notna() & frame["drafter_bytes"].notna()]
        if known.empty:
            return []
        front = known.loc[known["is_on_front"].fillna(False).astype("bool"), "drafter"]
        sentence = f"{alt(what, group.name, known, metric)} On the front: {', '.join(front)}."
        note = (
            f"{count(known)} Whiskers: 95 % intervals. A drafter without bytes has no place on a logarithmic "
            "axis and stands in the table."
        )
        plot = figures.pareto(frame, numbers.looks, metric, f"{what.lower()} ({METRICS[metric].unit})")
        columns = ("drafter", "drafter_bytes", metric, "is_on_front", "dominated_by")
        shown = table(f"Speed against bytes: {group.name}", known.sort_values("drafter_bytes"), columns)
        made: list[Block] = [Figure(f"pareto-{group.key}", sentence, note, plot)]
        return [*made, shown] if (known["drafter_bytes"] > 0).any() else [shown]

    text = (
        "On the front stand drafters that no other beats in both: as fast for fewer bytes, or faster for as "
        "many."
    )
    return section("pareto", "Speed against bytes", [text], parts_of(numbers.headline, blocks))


def _matrix(group: Group) -> Table:
    frame = group.frame.sort_values("context_length", na_position="first")
    lengths = list(dict.fromkeys(frame["context_length"].map(_length)))
    cells = {
        (row["drafter"], _length(row["context_length"])): _outcome(row) for row in frame.to_dict("records")
    }
    return Table(
        caption=group.name,
        headings=(Heading("drafter", "", "name"), *(Heading(length, "", "name") for length in lengths)),
        rows=tuple(
            (
                Cell(drafter, drafter=drafter),
                *(cells.get((drafter, length), Cell(NOT_MEASURED)) for length in lengths),
            )
            for drafter in dict.fromkeys(group.frame["drafter"])
        ),
        is_matrix=True,
    )


def _length(value: Any) -> str:
    import pandas as pd

    return "no fixed length" if pd.isna(value) else f"{int(value):,} tokens"


def _outcome(row: dict[Any, Any]) -> Cell:
    import pandas as pd

    outcome = str(row["outcome"])
    detail = ""
    if outcome == "fits" or (row["num_conversations"] and pd.isna(row["first_context"])):
        detail = f"{row['num_fitting']} of {row['num_conversations']}"
    elif outcome != "not run":
        detail = f"from {int(row['first_context']):,} tokens"
    return Cell(outcome, detail, tone_of(outcome))
