"""A page a drafter: its numbers over the dates of the runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hyflash_bench.analysis.groups import CAP
from hyflash_bench.report.names import safe_name
from hyflash_bench.report.site.figures import over_time
from hyflash_bench.report.site.grids import Grid, grid_of
from hyflash_bench.report.site.pages import FigureView, Pages
from hyflash_bench.report.text import cell_text, heading
from hyflash_bench.report.theme import styles
from hyflash_bench.report.view import REIMPLEMENTATION
from hyflash_bench.spec.units import format_bytes

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["drafter_folder", "is_reimplementation", "write_drafters"]

_ALIKE: Final = ("target", "target_id", "suite", "suite_hash", "sampling", *CAP)
_COLUMNS: Final = (
    *("run_id", "drafter", "machine", "status", "acceptance_length", "decode_tok_per_s", "speedup"),
    *("verdict", "drafter_bytes", "num_conversations"),
)


@dataclass(frozen=True, slots=True)
class Part:
    """What may be drawn in one figure: one target, suite, sampling and cap."""

    title: str
    grid: Grid
    figures: list[FigureView]


def drafter_folder(name: str) -> str:
    """Name of a drafter's folder."""
    return safe_name(name)


def is_reimplementation(name: str) -> bool:
    """Whether a drafter is this project's own reading of HyFlash, which must be said."""
    return name.rpartition("/")[2].startswith("hyflash")


def write_drafters(frame: pd.DataFrame, pages: Pages) -> tuple[list[tuple[str, str, str]], list[Path]]:
    """Write the page of every drafter.

    Args:
        frame: The leaderboard.
        pages: Of the site.

    Returns:
        Name, address and a remark of each page, and the files that changed.
    """
    links, written = [], []
    wholes = frame[frame["context_length"].isna()]
    for name, rows in wholes.groupby("drafter_name", sort=True):
        folder = drafter_folder(str(name))
        parts = list(_parts(rows.sort_values(["created_at", "drafter"], kind="stable")))
        num_runs = rows["run"].nunique()
        remark = f"{num_runs} run{'s' * (num_runs != 1)}"
        written += pages.write(
            pages.layout.drafters / folder / "index.html",
            "site_drafter.html.j2",
            str(name),
            [figure for part in parts for figure in part.figures],
            subtitle=f"{remark}, oldest first; only what compares stands in one figure.",
            notices=[REIMPLEMENTATION] if is_reimplementation(str(name)) else [],
            parts=parts,
        )
        links.append((str(name), f"drafters/{folder}/index.html", remark))
    return links, written


def _parts(rows: pd.DataFrame) -> Iterator[Part]:
    groups = [(_title(part.iloc[0]), part) for _, part in rows.groupby(list(_ALIKE), dropna=False)]
    groups.sort(key=lambda group: _order(group[1].iloc[0]))
    for number, (title, part) in enumerate(groups, start=1):
        grid = grid_of(part, f"runs-{number}", title, _COLUMNS, link=_link)
        yield Part(title, grid, list(_figures(part, title, number)))


def _figures(part: pd.DataFrame, title: str, number: int) -> Iterator[FigureView]:
    """Figures where there is something to join; speeds machine by machine."""
    looks = styles(part["drafter"])
    candidates = [("acceptance_length", "", part)]
    candidates += [
        ("decode_tok_per_s", f" on {machine}", rows) for machine, rows in part.groupby("machine", sort=True)
    ]
    for place, (metric, where, rows) in enumerate(candidates, start=1):
        known = rows.dropna(subset=[metric])
        if known["created_at"].nunique() > 1:
            alt = f"{heading(metric).capitalize()}{where}, {title}: {_ends(known, metric)}."
            yield FigureView(f"plot-{number}-{place}", alt, over_time(known, metric, looks))


def _ends(known: pd.DataFrame, metric: str) -> str:
    first, last = known.iloc[0], known.iloc[-1]
    ends = [f"{cell_text(metric, row[metric])} on {row['created_at'][:10]}" for row in (first, last)]
    return f"from {ends[0]} to {ends[1]}, {known['run'].nunique()} runs"


def _title(row: pd.Series[Any]) -> str:
    """What the rows of a group share."""
    cap = {name: row[name] for name in CAP if row.notna()[name]}
    limit = f"memory cap {format_bytes(int(cap['memory_cap_bytes']))}" if cap else "no memory cap"
    details = [str(cap[name]) for name in ("device", "cap_kind", "cap_policy") if name in cap]
    if "weight_bits" in cap:
        details.append(f"{cap['weight_bits']}-bit weights")
    more = f" ({', '.join(details)})" if details else ""
    return f"{row['target']} on {row['suite']}, {row['sampling']}, {limit}{more}"


def _order(row: pd.Series[Any]) -> tuple[Any, ...]:
    """Greedy before sampled, uncapped before capped."""
    cap = int(row["memory_cap_bytes"]) if row.notna()["memory_cap_bytes"] else 0
    return row["target"], row["suite"], row["sampling"] != "greedy", row["sampling"], cap, _title(row)


def _link(column: str, row: Any) -> str:
    return f"../../runs/{row['run']}/index.html" if column == "run_id" else ""
