"""What stands on a page, in order; the template only lays it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import hyflash_bench
from hyflash_bench.analysis.metrics import METRICS, Metric
from hyflash_bench.errors import UsageError
from hyflash_bench.report import facts
from hyflash_bench.report.answer import answer_of
from hyflash_bench.report.downloads import MEANINGS, downloads_of
from hyflash_bench.report.explorer import explorer_of
from hyflash_bench.report.figures.common import Looks
from hyflash_bench.report.groups import groups_of
from hyflash_bench.report.sections import Numbers, Section, sections_of
from hyflash_bench.report.tables import Table
from hyflash_bench.report.text import heading, without_paths
from hyflash_bench.report.theme import styles
from hyflash_bench.runner.environment import BUSY_SHARE

if TYPE_CHECKING:
    from hyflash_bench.results.reader import Run

__all__ = ["Definition", "Page", "RunView", "numbers_of", "page_of"]

Json = dict[str, Any]

REIMPLEMENTATION = (
    "HyFlash here is a re-implementation from the abstract of arXiv 2611.07263. There is no public "
    "code of the authors; these numbers say nothing about theirs."
)


@dataclass(frozen=True, slots=True)
class Definition:
    """One word of the tables."""

    name: str
    text: str
    remark: str
    formula: str
    source: str


@dataclass(frozen=True, slots=True)
class RunView:
    """One run on the page."""

    run_id: str
    question: str
    answer: Sequence[str]
    notices: Sequence[str]
    sections: Sequence[Section]
    groups: Sequence[tuple[str, str]]
    explorer: Json | None
    downloads: Mapping[str, Json]
    identity: facts.Pairs
    target: facts.Pairs
    environment: facts.Pairs
    command: str
    resolved: str
    suites: Table


@dataclass(frozen=True, slots=True)
class Page:
    """All that the templates need."""

    title: str
    subtitle: str
    runs: Sequence[RunView]
    looks: Looks
    definitions: Sequence[Definition] = field(default_factory=tuple)
    data_meanings: Mapping[str, str] = field(default_factory=lambda: MEANINGS)
    version: str = hyflash_bench.__version__


def numbers_of(runs: Sequence[Run], *, include_host: bool = False) -> list[Numbers]:
    """The tables of runs that share a page, made when first asked for.

    Raises:
        UsageError: There is no run.
    """
    if not runs:
        raise UsageError("A report needs a run, and none was given. Give at least one run folder.")
    named = [
        cell.drafter if include_host else without_paths(cell.drafter)
        for run in runs
        for cell in run.manifest.cells
    ]
    looks = styles(named)
    return [Numbers(run, looks, include_host) for run in runs]


def page_of(numbers: Sequence[Numbers], title: str | None = None) -> Page:
    """Lay out runs by their numbers; see :func:`numbers_of`."""
    runs = [one.run for one in numbers]
    return Page(
        title=title or _title(runs),
        subtitle=_subtitle(runs),
        runs=[_view(one) for one in numbers],
        looks=numbers[0].looks,
        definitions=[
            Definition(heading(name), metric.definition, _remark(metric), metric.formula, metric.source)
            for name, metric in METRICS.items()
        ],
    )


def _view(numbers: Numbers) -> RunView:
    run, manifest = numbers.run, numbers.run.manifest
    return RunView(
        run_id=run.run_id,
        question=_question(run),
        answer=answer_of(numbers.headline, numbers.by_context, numbers.references),
        notices=_notices(run),
        sections=sections_of(numbers),
        groups=[(group.key, group.name) for group in groups_of(numbers.headline)],
        explorer=explorer_of(numbers),
        downloads=downloads_of(numbers),
        identity=facts.identity_of(manifest),
        target=facts.target_of(manifest, include_host=numbers.include_host),
        environment=facts.environment_of(manifest, include_host=numbers.include_host),
        command=facts.command_of(manifest),
        resolved=facts.resolved_of(manifest),
        suites=facts.suites_of(manifest),
    )


def _remark(metric: Metric) -> str:
    wish = "" if metric.better == "neither" else f"; {metric.better} is better"
    return f"{metric.unit}{wish}"


def _notices(run: Run) -> list[str]:
    notices = []
    if any(cell.drafter_name.rpartition("/")[2].startswith("hyflash") for cell in run.manifest.cells):
        notices.append(REIMPLEMENTATION)
    if run.manifest.finished_at is None:
        notices.append("This run is not finished: some conversations are still missing.")
    if any(cell.cap_kind == "simulated" for cell in run.manifest.cells):
        notices.append("Memory caps are simulated: bytes were counted against them, not withheld.")
    busy = run.manifest.environment.get("busy_share")
    if isinstance(busy, float) and busy > BUSY_SHARE and bool((run.turns["mode"] == "live").any()):
        notices.append(
            f"Other programs used {busy:.0%} of the machine when this run started: its speeds are too "
            "low, and differences between them are in doubt."
        )
    if not run.traces.empty and bool(run.traces["extrapolated"].any()):
        notices.append("Some contexts are longer than the target was made for; it was extrapolated.")
    return notices


def _title(runs: Sequence[Run]) -> str:
    cells = [cell for run in runs for cell in run.manifest.cells]
    targets = dict.fromkeys(cell.target for cell in cells)
    suites = dict.fromkeys(cell.suite for cell in cells)
    return f"Drafters for {', '.join(targets)} on {', '.join(suites)}"


def _question(run: Run) -> str:
    targets = dict.fromkeys(cell.target for cell in run.manifest.cells)
    return f"Which drafter makes {' and '.join(targets)} fastest, and at what cost in bytes?"


def _subtitle(runs: Sequence[Run]) -> str:
    cells = [cell for run in runs for cell in run.manifest.cells]
    drafters = {cell.drafter for cell in cells}
    days = sorted({run.manifest.created_at[:10] for run in runs})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"{when}. {len(drafters)} drafters, {len(cells)} cells, {len(runs)} run{'s' * (len(runs) > 1)}."
