"""What did not go well, what was promised, and whether the output is the target's own."""

from __future__ import annotations

from hyflash_bench.analysis import summary
from hyflash_bench.analysis.groups import Groups
from hyflash_bench.analysis.metrics import METRICS
from hyflash_bench.report.claims import CLAIMS_NOTE, claims_of, claims_table, compared_table, tally
from hyflash_bench.report.columns import FAILURES, LOSSLESS
from hyflash_bench.report.sections.base import Numbers, Part, Section, section, table

__all__ = ["claims", "failures", "lossless"]


def claims(numbers: Numbers) -> Section | None:
    """The shipped claims held against the run."""
    frame = claims_of(numbers.run)
    if frame is None:
        return None
    shown = claims_table(frame, f"Claims and controls: {tally(frame)}")
    compared = compared_table(frame, "The two sides of each claim")
    parts = [Part([shown]), Part([compared], title="What each claim compares", folded=True)]
    return section("claims", "Claims", [CLAIMS_NOTE], parts)


def lossless(numbers: Numbers) -> Section | None:
    """Live outputs against the trace."""
    by = ["drafter", "suite", "sampling"]
    groups = Groups(numbers.run, by)
    counts = [name for name in LOSSLESS if name in METRICS]
    frame = groups.table[by].assign(**{name: groups.values(METRICS[name]) for name in counts})
    frame = numbers.published(frame)
    frame = frame[frame[counts].sum(axis="columns") > 0]
    text = (
        "A drafter must not change the output. Greedy live outputs are compared with the target's own, "
        "token by token; a drafter with a mismatch has no numbers."
    )
    shown = table(
        "Turns by how their output compares with the target's own", frame, ["drafter", "suite", *LOSSLESS[1:]]
    )
    return section("lossless", "Losslessness", [text], [Part([shown])])


def failures(numbers: Numbers) -> Section | None:
    """Everything that did not go well."""
    frame = summary.failures(numbers.run)
    if frame.empty:
        text = "Every conversation of every cell was measured."
        return Section("failures", "Failures and warnings", [text])
    shown = table("What did not go well, and why", numbers.published(frame), FAILURES)
    return section("failures", "Failures and warnings", (), [Part([shown])])
