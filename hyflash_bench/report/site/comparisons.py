"""Runs of the same target on the same suite: side by side, and what changed from one to the next."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import hyflash_bench
from hyflash_bench.analysis.compare import compare
from hyflash_bench.analysis.groups import CAP
from hyflash_bench.analysis.metrics import METRICS
from hyflash_bench.errors import HyFlashError, UsageError
from hyflash_bench.report.names import safe_name
from hyflash_bench.report.site.feeds import DATA, PublishedRun
from hyflash_bench.report.site.grids import Cell, Grid, Heading, grid_of
from hyflash_bench.report.site.layout import write_if_changed
from hyflash_bench.report.site.pages import Pages
from hyflash_bench.report.site.summary import Summary
from hyflash_bench.report.tables import tone_of
from hyflash_bench.report.text import NOT_MEASURED, cell_text, heading
from hyflash_bench.report.theme import styles
from hyflash_bench.results.export import rows_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["write_comparisons"]

_LADDERS: Final = ("acceptance_length", "decode_tok_per_s", "speedup", "drafter_bytes")
_COMPARED: Final = ("acceptance_length", "decode_tok_per_s")
_ROW: Final = ("drafter", "sampling", *CAP)
_COLUMNS: Final = (
    *_ROW,
    *("status", "reference_value", "value", "ratio", "verdict", "num_conversations", "reason"),
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A run against the one before it."""

    title: str
    grids: list[Grid]
    refusals: list[str]


@dataclass(frozen=True)
class Work:
    """One target on one suite, and the runs that did it, oldest first."""

    target: str
    target_id: str
    suite: str
    suite_hash: str
    runs: Sequence[Summary]

    @property
    def folder(self) -> str:
        """Name of its folder."""
        return safe_name(f"{self.target}-{self.suite}-{self.target_id[:8]}-{self.suite_hash[:8]}")

    @property
    def title(self) -> str:
        """For headings."""
        return f"{self.target} on {self.suite}"

    def rows(self, one: Summary) -> list[dict[str, Any]]:
        """A run's rows about the whole suite."""
        return [row for row in one.rows if row["suite"] == self.suite and row["context_length"] is None]


def write_comparisons(
    summaries: Sequence[Summary], pages: Pages
) -> tuple[list[tuple[str, str, str]], list[Path]]:
    """Write a page for each target and suite with more than one run.

    Comparisons are kept as JSON beside the page, so that another run costs one more and not all again.

    Args:
        summaries: The runs.
        pages: Of the site.

    Returns:
        Name, address and a remark of each page, and the files that changed.
    """
    links, written = [], []
    for work in _works(summaries):
        folder = pages.layout.comparisons / work.folder
        compared = [_compared(work, old, new, pages, folder) for old, new in pairwise(work.runs)]
        written += [path for _, paths in compared for path in paths]
        written += pages.write(
            folder / "index.html",
            "site_compare.html.j2",
            work.title,
            subtitle=f"{len(work.runs)} runs of one target on one suite, the same version of both.",
            looks=styles(row["drafter"] for one in work.runs for row in work.rows(one)),
            ladders=[_runs(work), *_ladders(work)],
            pairs=[pair for pair, _ in compared],
        )
        links.append((work.title, f"compare/{work.folder}/index.html", f"{len(work.runs)} runs"))
    return links, written


def _works(summaries: Sequence[Summary]) -> Iterator[Work]:
    found: dict[tuple[str, str, str, str], list[Summary]] = {}
    for one in sorted(summaries, key=lambda each: (each.created_at, each.key)):
        for suite, suite_hash in dict.fromkeys((row["suite"], row["suite_hash"]) for row in one.rows):
            found.setdefault((one.target, one.target_id, suite, suite_hash), []).append(one)
    for key, runs in sorted(found.items()):
        if len(runs) > 1:
            yield Work(*key, runs)


def _runs(work: Work) -> Grid:
    headings = [Heading(text, "", "name") for text in ("run", "started", "machine", "version")]
    rows = [
        [
            Cell(one.run_id, href=f"../../runs/{one.key}/index.html"),
            Cell(_when(one)),
            Cell(one.machine, small="busy with other programs" if one.is_busy else ""),
            Cell(one.measured_by),
        ]
        for one in work.runs
    ]
    return Grid("runs", f"Runs of {work.title}", headings, rows)


def _ladders(work: Work) -> Iterator[Grid]:
    """A metric with a row per drafter, sampling and cap, and a column per run."""
    rows = {one.key: {_key(row): row for row in work.rows(one)} for one in work.runs}
    keys = sorted({key for known in rows.values() for key in known}, key=_order)
    for metric in _LADDERS:
        if not any(row[metric] is not None for known in rows.values() for row in known.values()):
            continue
        about = [name for place, name in enumerate(_ROW) if any(key[place] is not None for key in keys)]
        headings = [Heading(heading(name), "", "name") for name in about]
        headings += [Heading(f"{one.run_id}, {_when(one)}", "", "num") for one in work.runs]
        caption = f"{heading(metric).capitalize()} ({METRICS[metric].unit}): {work.title}"
        cells = [
            [
                *(_about(name, key[_ROW.index(name)]) for name in about),
                *(_number(metric, rows[one.key].get(key)) for one in work.runs),
            ]
            for key in keys
        ]
        yield Grid(metric, caption, headings, cells)


def _compared(work: Work, old: Summary, new: Summary, pages: Pages, folder: Path) -> tuple[Pair, list[Path]]:
    path = folder / f"{old.content_hash[:10]}-{new.content_hash[:10]}.json"
    stored = _stored(path)
    if stored is None:
        stored = {"made_by": hyflash_bench.__version__, "metrics": _compute(work, old, new, pages)}
    text = json.dumps(stored, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    written = [path] if write_if_changed(path, text) else []
    return _pair(old, new, stored["metrics"]), written


def _stored(path: Path) -> dict[str, Any] | None:
    """A comparison that this version made before."""
    try:
        values = json.loads(path.read_bytes())
        known = values["made_by"] == hyflash_bench.__version__ and set(values["metrics"]) == set(_COMPARED)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return values if known else None


def _compute(work: Work, old: Summary, new: Summary, pages: Pages) -> dict[str, Any]:
    one, two = (PublishedRun.load(pages.layout.run(each.key) / DATA, suite=work.suite) for each in (old, new))
    results: dict[str, Any] = {}
    for metric in _COMPARED:
        try:
            results[metric] = {"rows": rows_of(compare(one, two, metric=metric))}
        except UsageError as error:
            results[metric] = {"refusal": f"{str(error).partition('. ')[0].rstrip('.')}."}
        except HyFlashError as error:
            results[metric] = {"refusal": str(error)}
    return results


def _pair(old: Summary, new: Summary, metrics: dict[str, Any]) -> Pair:
    import pandas as pd

    grids, refusals = [], []
    for metric, result in metrics.items():
        name = heading(metric).capitalize()
        if "refusal" in result:
            refusals.append(f"{name} was not compared. {result['refusal']}")
            continue
        frame: pd.DataFrame = pd.DataFrame(result["rows"])
        if frame.empty or frame["value"].isna().all() or frame["reference_value"].isna().all():
            continue
        frame = frame.rename(columns={"reference_value": "before", "value": "after"})
        columns = ["before" if c == "reference_value" else "after" if c == "value" else c for c in _COLUMNS]
        key = f"{metric}-{old.content_hash[:6]}-{new.content_hash[:6]}"
        caption = f"{name} ({METRICS[metric].unit}), later over earlier"
        grids.append(grid_of(frame, key, caption, columns))
    return Pair(f"{new.run_id}, {_when(new)}, against {old.run_id}, {_when(old)}", grids, refusals)


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _ROW)


def _order(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Greedy before sampled, uncapped before capped, and the drafters of each in turn."""
    drafter, sampling, cap, *rest = key
    return sampling != "greedy", sampling, cap or 0, tuple(map(str, rest)), drafter


def _about(name: str, value: Any) -> Cell:
    text = cell_text(name, value)
    return Cell("none" if text == NOT_MEASURED else text)


def _number(metric: str, row: dict[str, Any] | None) -> Cell:
    if row is None:
        return Cell("not run", tone="dull")
    if row[metric] is None:
        return Cell(row["status"] if row["status"] != "ok" else NOT_MEASURED, tone=tone_of(row["status"]))
    ends = [cell_text(metric, row.get(f"{metric}{end}")) for end in ("_low", "_high")]
    small = "" if NOT_MEASURED in ends else " to ".join(ends)
    return Cell(cell_text(metric, row[metric]), small, value=float(row[metric]))


def _when(one: Summary) -> str:
    return one.created_at[:16].replace("T", " ")
