"""What the measured acceptance would give on other devices. Every number here is named simulated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from hyflash_bench.report import figures
from hyflash_bench.report.groups import Group, groups_of
from hyflash_bench.report.sections.base import Block, Figure, Numbers, Part, Section, alt, count, section
from hyflash_bench.report.tables import Table, ladder_of, table_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["break_even", "simulated"]

WORK: Final = ("suite", "sampling")
"""Here ``device`` is where to, and no cap."""

COLUMNS: Final = (
    *("drafter", "context_length", "num_steps", "measured_acceptance_length", "simulated_tok_per_s"),
    *("simulated_plain_tok_per_s", "simulated_speedup", "simulated_ttft_s"),
    *("simulated_energy_j_per_token", "break_even_acceptance_length", "stops_paying_context"),
)
MEANINGS: Final = {
    "num_steps": "Measured steps that were timed by counting.",
    "measured_acceptance_length": "Measured in this run; the only measured number of this table.",
    "simulated_tok_per_s": "Tokens per second on the device's roofline, with an overhead for each pass.",
    "simulated_plain_tok_per_s": "The same for plain decoding.",
    "simulated_speedup": "Simulated speed over simulated plain decoding.",
    "simulated_ttft_s": "Prefill and the drafter's reading of the prompt.",
    "simulated_energy_j_per_token": "The device's power over the simulated speed.",
    "break_even_acceptance_length": "What a drafter needs to be as fast as plain decoding.",
    "stops_paying_context": "Context from which on plain decoding is faster; 0 where it always is.",
}
STEPS = "Simulated from measured steps, so without an interval;"


def simulated(numbers: Numbers) -> Section | None:
    """Simulated speed by device, each device in full where asked for."""
    parts = []
    for group in groups_of(numbers.simulated, WORK):
        longest = _longest(group.frame)
        parts.append(Part(list(_overview(group, longest, numbers)), group.key, group.name))
        each = [
            block
            for device, frame in group.frame.groupby("device", sort=False)
            for block in _device(str(device), group, frame, numbers)
        ]
        parts.append(Part(each, group.key, f"Every device in full, simulated: {group.name}", folded=True))
    text = (
        "Nothing below was timed: the bytes and operations of each pass, counted, meet a device's memory "
        "bandwidth and compute, and the acceptance comes from this run."
    )
    return section("simulated", "Tokens per second, simulated by device", [text], parts)


def break_even(numbers: Numbers) -> Section | None:
    """The acceptance length that each drafter needs on a device, and the one it has."""
    metric = "break_even_acceptance_length"
    parts = []
    for group in groups_of(numbers.simulated, WORK):
        known = group.frame[group.frame[metric].notna() & ~group.frame["drafter"].isin(numbers.references)]
        first, *rest = [
            _needed(f"{place}", str(device), group, frame, numbers)
            for place, (device, frame) in enumerate(known.groupby("device", sort=False))
        ] or [[]]
        parts.append(Part(first, group.key, group.name))
        others = [block for blocks in rest for block in blocks]
        parts.append(Part(others, group.key, f"Other devices, simulated: {group.name}", folded=True))
    text = (
        "A drafter pays where the tokens it gains outweigh its own passes and the wider verification. Above "
        "its dotted line it is faster than plain decoding on the device, below it is slower."
    )
    return section("break-even", "Break-even by context length, simulated", [text], parts)


def _needed(key: str, device: str, group: Group, frame: pd.DataFrame, numbers: Numbers) -> list[Block]:
    metric = "break_even_acceptance_length"
    shown: list[Block] = []
    if frame["context_length"].nunique() > 1:
        sentence = alt(f"Acceptance length needed on {device}, simulated,", group.name, frame, metric)
        note = "Dotted: what a drafter needs, simulated; with marks: what it reached, measured."
        plot = figures.break_even_by_context(frame, numbers.looks)
        shown.append(Figure(f"break-even-{key}-{group.key}", sentence, note, plot))
    if frame["context_length"].notna().all():
        caption = f"Acceptance length needed on {device}, simulated: {group.name}"
        shown.append(ladder_of(frame, caption, metric))
    return shown


def _overview(group: Group, longest: pd.DataFrame, numbers: Numbers) -> Iterator[Block]:
    drafters = longest[~longest["drafter"].isin(numbers.references)]
    at = longest["context_length"].dropna()
    where = f"{group.name}, at {int(at.iloc[0]):,} tokens" if len(at) else group.name
    metric = "simulated_speedup"
    if drafters[metric].notna().any():
        sentence = alt("Simulated speedup over simulated plain decoding", where, drafters, metric)
        note = f"{STEPS} {count(drafters, 'num_steps', 'steps')}"
        plot = figures.simulated_by_device(drafters, numbers.looks)
        yield Figure(f"simulated-{group.key}", sentence, note, plot)
        yield ladder_of(drafters, f"Simulated speedup by device: {where}", metric, "device", "")


def _device(device: str, group: Group, frame: pd.DataFrame, numbers: Numbers) -> Iterator[Figure | Table]:
    metric = "simulated_tok_per_s"
    if frame.loc[frame[metric].notna(), "context_length"].nunique() > 1:
        sentence = alt(f"Simulated tokens/s on {device},", group.name, frame, metric)
        note = f"{STEPS} {count(frame, 'num_steps', 'steps')}"
        plot = figures.speed_by_context(frame, numbers.looks, metric)
        yield Figure(f"simulated-{_slug(device)}-{group.key}", sentence, note, plot)
    yield table_of(frame, f"Simulated on {device}: {group.name}", COLUMNS, MEANINGS)


def _longest(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of the longest context, or of all where the suite fixes none."""
    lengths = frame["context_length"]
    return frame[lengths == lengths.max()] if lengths.notna().any() else frame


def _slug(device: str) -> str:
    return device.replace(".", "-")
