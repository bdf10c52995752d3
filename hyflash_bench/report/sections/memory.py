"""Bytes: what drafters hold, and what a memory cap leaves for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hyflash_bench.report import figures
from hyflash_bench.report.groups import Group
from hyflash_bench.report.sections.base import Block, Figure, Numbers, Section, alt, parts_of, section
from hyflash_bench.report.tables import ladder_of

if TYPE_CHECKING:
    import pandas as pd

    from hyflash_bench.results.reader import Run

__all__ = ["drafter_bytes", "room_under_caps"]

BYTES = {
    "drafter_bytes": "All bytes of the drafter",
    "drafter_peak_bytes": "Bytes of the drafter besides its weights",
}


def drafter_bytes(numbers: Numbers) -> Section | None:
    """Drafter bytes against context length, with what each cap leaves for them."""
    room = room_under_caps(numbers.run)

    def blocks(group: Group) -> list[Block]:
        made: list[Block] = []
        has_weights = bool((group.frame["drafter_weights_bytes"] > 0).any())
        for metric, name in BYTES.items() if has_weights else [*BYTES.items()][:1]:
            known = group.frame[group.frame[metric] > 0]
            if known["context_length"].nunique() > 1 and not group.is_capped:
                mine = room[room["suite"] == group.suite] if metric == "drafter_bytes" else None
                plot = figures.bytes_by_context(known, numbers.looks, metric, mine)
                note = "Counted on live tensors: the most over all conversations, so there is no interval."
                if mine is not None and (mine["room_bytes"] > 0).any():
                    note += " Dotted grey: what a memory cap leaves for a drafter beside the target."
                sentence = alt(name, group.name, known, metric)
                made.append(Figure(f"{metric.replace('_', '-')}-{group.key}", sentence, note, plot))
            if group.frame[metric].notna().any():
                made.append(ladder_of(group.frame, f"{name}: {group.name}", metric))
        return made

    text = (
        "Read off the live tensors. Weights that a drafter shares with the target are counted once, "
        "for the target."
    )
    return section("bytes", "Drafter bytes by context length", [text], parts_of(numbers.by_context, blocks))


def room_under_caps(run: Run) -> pd.DataFrame:
    """What each memory cap of a run leaves for a drafter beside target, logits and features.

    Returns:
        ``suite``, ``memory_cap_bytes``, ``context_length``, ``room_bytes``, the last possibly negative.
    """
    memory = run.memory
    caps = sorted({cell.memory_cap_bytes for cell in run.manifest.cells if cell.memory_cap_bytes})
    others = memory["owner"].isin(["target", "features", "logits"]) & memory["context_rung"].notna()
    keys = ["suite", "context_rung"]
    turn = [*keys, "cell_id", "item_id", "turn", "mode"]
    held = memory[others].groupby(turn)["bytes"].sum().groupby(keys).max().reset_index(name="held_bytes")
    held = held.rename(columns={"context_rung": "context_length"})
    room = held.merge(_caps(caps), how="cross")
    return room.assign(room_bytes=room["memory_cap_bytes"] - room["held_bytes"]).drop(columns="held_bytes")


def _caps(caps: list[int]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame({"memory_cap_bytes": pd.Series(caps, dtype="Int64")})
