"""The sections of a run's report, in reading order. A section is a function from numbers to what is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hyflash_bench.report.sections.acceptance import acceptance, crossovers, degenerate, positions
from hyflash_bench.report.sections.base import Figure, Numbers, Section
from hyflash_bench.report.sections.breakdown import by_kind
from hyflash_bench.report.sections.headline import headline
from hyflash_bench.report.sections.memory import drafter_bytes
from hyflash_bench.report.sections.outcomes import claims, failures, lossless
from hyflash_bench.report.sections.simulated import break_even, simulated
from hyflash_bench.report.sections.speed import speed, time_spent
from hyflash_bench.report.sections.tradeoff import caps, pareto

__all__ = ["SECTIONS", "Figure", "Numbers", "Section", "sections_of"]

SECTIONS: Final[tuple[Callable[[Numbers], Section | None], ...]] = (
    headline,
    acceptance,
    crossovers,
    drafter_bytes,
    speed,
    simulated,
    caps,
    pareto,
    positions,
    by_kind,
    time_spent,
    break_even,
    claims,
    lossless,
    degenerate,
    failures,
)


def sections_of(numbers: Numbers) -> list[Section]:
    """All sections that have something to show."""
    made = [make(numbers) for make in SECTIONS]
    return [section for section in made if section is not None]
