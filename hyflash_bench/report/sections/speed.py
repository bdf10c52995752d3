"""Measured time: tokens per second, and what the seconds were spent on."""

from __future__ import annotations

from hyflash_bench.analysis.latency import latency
from hyflash_bench.report import figures
from hyflash_bench.report.columns import SPEED, TIME
from hyflash_bench.report.groups import Group, groups_of
from hyflash_bench.report.sections.base import (
    Block,
    Figure,
    Numbers,
    Section,
    alt,
    count,
    ends,
    parts_of,
    section,
    table,
)
from hyflash_bench.report.sections.headline import ordered
from hyflash_bench.report.tables import ladder_of

__all__ = ["speed", "time_spent"]

METRIC = "decode_tok_per_s"
WAITS = (
    "drafter",
    "num_turns",
    "num_steps",
    *(
        f"{what}_p{percent}_s"
        for what in ("ttft", "time_per_output_token", "step")
        for percent in (50, 95, 99)
    ),
)


def speed(numbers: Numbers) -> Section | None:
    """Tokens per second, measured; overall and against context length."""
    ladders = {group.key: group.frame for group in groups_of(numbers.by_context)}

    def blocks(group: Group) -> list[Block]:
        known = group.frame[group.frame[METRIC].notna()]
        if known.empty:
            return []
        sentence = alt("Decoding speed in tokens/s", group.name, known, METRIC)
        plot = figures.speed_by_drafter(known, numbers.looks)
        note = f"{count(known).replace('point', 'bar')} {ends(known, METRIC, 'Whiskers')}"
        made: list[Block] = [Figure(f"speed-{group.key}", sentence, note, plot)]
        made.append(table(f"Measured speed: {group.name}", ordered(known), SPEED))
        ladder = ladders.get(group.key)
        if ladder is not None and ladder.loc[ladder[METRIC].notna(), "context_length"].nunique() > 1:
            plot = figures.speed_by_context(ladder, numbers.looks)
            sentence = alt("Decoding speed by context length in tokens/s", group.name, ladder, METRIC)
            note = f"{count(ladder[ladder[METRIC].notna()])} {ends(ladder, METRIC, 'Bands')}"
            made.append(Figure(f"speed-by-context-{group.key}", sentence, note, plot))
            made.append(ladder_of(ladder, f"Measured tokens/s by context length: {group.name}", METRIC))
        return made

    text = "Measured on the machine described under Conditions, prefill and first token apart."
    return section("speed", "Tokens per second, measured", [text], parts_of(numbers.headline, blocks))


def time_spent(numbers: Numbers) -> Section | None:
    """Time to the first token, and the parts of decoding."""
    frame = numbers.published(latency(numbers.run))
    percentiles = {group.key: group.frame for group in groups_of(frame)}

    def blocks(group: Group) -> list[Block]:
        known = ordered(group.frame[group.frame["ttft_s"].notna()])
        if known.empty or group.is_capped:
            return []
        note = f"{count(known).replace('point', 'bar')} Means over turns; measured."
        first = alt("Mean time to the first token in seconds", group.name, known, "ttft_s")
        token = known.assign(ms_per_token=1000 / known[METRIC])
        each = alt("Milliseconds per committed token", group.name, token, "ms_per_token")
        return [
            Figure(f"first-token-{group.key}", first, note, figures.first_token_time(known)),
            Figure(f"decoding-{group.key}", each, note, figures.decode_time(known)),
            table(f"Where time goes: {group.name}", known, TIME),
            *[
                table(f"Percentiles of waiting: {group.name}", waits, [*WAITS, "reason"])
                for waits in [percentiles.get(group.key)]
                if waits is not None and waits[[*WAITS[3:]]].notna().any(axis=None)
            ],
        ]

    text = (
        "Time to the first token holds the target's prefill and the drafter's reading of the prompt. "
        "Decoding is drafting, verifying by the target, the drafter's reading of what was verified, and the "
        "loop itself."
    )
    return section("time", "Where time goes", [text], parts_of(numbers.headline, blocks))
