"""The first page of a site, and the one for addresses that lead nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hyflash_bench.analysis.groups import CAP
from hyflash_bench.analysis.metrics import METRICS
from hyflash_bench.report.rendering import source
from hyflash_bench.report.site.drafters import drafter_folder, is_reimplementation
from hyflash_bench.report.site.feeds import DATA
from hyflash_bench.report.site.grids import grid_of
from hyflash_bench.report.site.pages import Pages
from hyflash_bench.report.site.summary import Summary, current
from hyflash_bench.report.text import cell_text, heading
from hyflash_bench.report.theme import styles
from hyflash_bench.report.view import REIMPLEMENTATION, Definition

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["write_index"]

Links = Sequence[tuple[str, str, str]]

_COLUMNS: Final = (
    *("drafter", "target", "suite", "sampling", *CAP, "context_length", "machine", "status"),
    *("acceptance_length", "decode_tok_per_s", "speedup", "verdict", "drafter_bytes", "run_id"),
)
_FILTERS: Final = dict.fromkeys(("drafter", "target", "suite", "sampling", *CAP, "machine", "status"), "") | {
    "context_length": "all"
}
_SHARED: Final = ("target", "suite", "sampling", "machine")
_DEFINED: Final = ("acceptance_length", "decode_tok_per_s", "speedup", "drafter_bytes")


@dataclass(frozen=True, slots=True)
class RunItem:
    """A run in the list."""

    summary: Summary
    href: str
    facts: str
    data: str
    is_superseded: bool


def write_index(
    summaries: Sequence[Summary],
    frame: pd.DataFrame,
    pages: Pages,
    *,
    drafters: Links,
    comparisons: Links,
    devices: Links,
) -> list[Path]:
    """Write the first page, and the page for addresses that lead nowhere.

    Args:
        summaries: All runs, newest first.
        frame: The leaderboard.
        pages: Of the site.
        drafters: Name, address and remark of each drafter's page.
        comparisons: The same of the comparisons.
        devices: The same of the devices.

    Returns:
        The files that changed.
    """
    layout = pages.layout
    keys = {one.key for one in current(summaries)}
    board = grid_of(frame, "board", *_alike(frame), link=_link, filters=_FILTERS)
    style = f"{source('report.css')}\n{source('site.css')}"
    not_found = pages.write(layout.folder / "404.html", "site_404.html.j2", "Not found", style=_markup(style))
    return not_found + pages.write(
        layout.index,
        "site_index.html.j2",
        subtitle=_subtitle(summaries, drafters),
        notices=[REIMPLEMENTATION] if any(is_reimplementation(name) for name, _, _ in drafters) else [],
        is_home=True,
        looks=styles(frame["drafter"]),
        leaderboard=board,
        runs=[_item(one, is_superseded=one.key not in keys) for one in summaries],
        drafters=drafters,
        comparisons=comparisons,
        devices=devices,
        definitions=[_definition(name) for name in _DEFINED],
    )


def _alike(frame: pd.DataFrame) -> tuple[str, list[str]]:
    """Caption and columns of the leaderboard: what all rows share is said once, above them."""
    shared = [
        name for name in _SHARED if frame[name].nunique(dropna=False) == 1 and frame[name].notna().all()
    ]
    texts = [cell_text(name, frame[name].iloc[0]) for name in shared]
    caption = ": ".join(filter(None, ("Leaderboard", "; ".join(texts))))
    return caption, [name for name in _COLUMNS if name not in shared]


def _subtitle(summaries: Sequence[Summary], drafters: Links) -> str:
    if not summaries:
        return "No runs yet."
    counts = [_count(len(summaries), "run"), _count(len(drafters), "drafter")]
    days = sorted({one.date for one in summaries})
    return f"{', '.join(counts)}, {days[0]}{f' to {days[-1]}' if len(days) > 1 else ''}."


def _item(one: Summary, *, is_superseded: bool) -> RunItem:
    folder = f"runs/{one.key}"
    suites = ", ".join(str(suite.get("name")) for suite in one.suites)
    drafters = len({row["drafter"] for row in one.rows})
    facts = [
        f"{one.target} on {suites}",
        _count(drafters, "drafter"),
        one.machine + (" (busy with other programs: speeds in doubt)" if one.is_busy else ""),
        f"hyflash-bench {one.measured_by}",
    ]
    if one.num_done < one.num_planned:
        facts.append(f"{one.num_done} of {one.num_planned} conversations so far")
    data = f"{folder}/{DATA}/index.html"
    return RunItem(one, f"{folder}/index.html", "; ".join(facts), data, is_superseded)


def _definition(name: str) -> Definition:
    metric = METRICS[name]
    wish = "" if metric.better == "neither" else f"; {metric.better} is better"
    return Definition(heading(name), metric.definition, f"{metric.unit}{wish}", metric.formula, metric.source)


def _link(column: str, row: Any) -> str:
    if column == "drafter":
        return f"drafters/{drafter_folder(row['drafter_name'])}/index.html"
    return f"runs/{row['run']}/index.html" if column == "run_id" else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _markup(style: str) -> Any:
    from markupsafe import Markup

    return Markup(style)  # noqa: S704 - our own style sheets
