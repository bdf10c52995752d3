"""The numbers behind a site, for programs: tables of each run and of all, and news of runs."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

from hyflash_bench.analysis.groups import CAP
from hyflash_bench.analysis.simulated import SIMULATED
from hyflash_bench.report.exports import definitions_of
from hyflash_bench.report.site.grids import Cell, Grid, Heading
from hyflash_bench.report.site.layout import SiteLayout, write_if_changed
from hyflash_bench.report.site.pages import Pages
from hyflash_bench.report.site.public import public_frame, public_manifest, public_text
from hyflash_bench.report.site.summary import ROW, Summary
from hyflash_bench.report.text import visible
from hyflash_bench.results.export import export_table
from hyflash_bench.results.layout import Layout
from hyflash_bench.results.load import read_manifest
from hyflash_bench.results.reader import Run
from hyflash_bench.results.schema import TABLES, conform

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "DATA",
    "FORMATS",
    "PublishedRun",
    "leaderboard",
    "simulated",
    "write_atom",
    "write_data",
    "write_leaderboard",
]

DATA: Final = "data"
FORMATS: Final = ("csv", "json", "parquet")

_SMALL: Final = ("headline", "by_context", "cells")
"""Tables in every format; the others, which can be a thousand times as long, as Parquet alone."""

_HELD: Final = {
    "headline": "a row per drafter, suite, sampling and memory cap, with intervals",
    "by_context": "the same by context length",
    "cells": "a row per cell, with its status",
    "conversations": "a row per cell and conversation: what became of it",
    "turns": "a row per turn: counts, times, bytes",
    "steps": "a row per step",
    "traces": "a row per turn of what the target itself said, with its text",
    "trace_steps": "a row per pass of the target after a turn's first token: what it holds",
    "memory": "a row per turn, owner and kind of bytes",
    "simulated": "a row per device, drafter and context length: what counting gives for other machines",
}
_ABOUT_RUN: Final = ("run", "run_id", "created_at", "target", "target_id", "machine", "is_busy")
_DTYPES: Final = {
    **dict.fromkeys(("memory_cap_bytes", "context_length", "drafter_bytes", "drafter_peak_bytes"), "Int64"),
    **dict.fromkeys(("num_conversations", "num_planned", "weight_bits"), "Int64"),
    **dict.fromkeys(("is_busy", "is_reference"), "boolean"),
    **dict.fromkeys(("run", "run_id", "created_at", "target", "target_id", "machine"), "str"),
    **dict.fromkeys(("drafter", "drafter_name", "suite", "suite_hash", "sampling"), "str"),
    **dict.fromkeys(("cap_kind", "cap_policy", "device", "status", "verdict"), "str"),
}


@dataclass(frozen=True)
class PublishedRun(Run):
    """A run as a site holds it: the folder ``data`` beside its page.

    Attributes:
        suite: The only suite that its tables show; all if None.
    """

    suite: str | None = None

    def _table(self, name: str) -> pd.DataFrame:
        import pandas as pd

        frame = pd.read_parquet(self.folder / f"{name}.parquet")
        if self.suite is not None:
            frame = frame[frame["suite"] == self.suite].reset_index(drop=True)
        return conform(name, {str(column): frame[column] for column in frame})

    @classmethod
    def load(cls, folder: Path, suite: str | None = None) -> PublishedRun:
        """Open the data of a published run.

        Raises:
            DataError: The manifest is damaged.
            SchemaTooNew: A newer version wrote it.
        """
        return cls(folder, read_manifest(Layout(folder)), suite)


def write_data(
    run: Run, analysed: Mapping[str, pd.DataFrame], pages: Pages, folder: Path, *, include_host: bool
) -> list[Path]:
    """Write a run's manifest and tables, and a page that lists them.

    Args:
        run: The run.
        analysed: Tables made from the run, fit for the public.
        pages: Of the site.
        folder: The run's folder in the site.
        include_host: Let host names and paths stand.

    Returns:
        The files that changed.
    """
    manifest = public_manifest(run.manifest, include_host=include_host)
    stored = {name: public_frame(run.table(name), include_host=include_host) for name in TABLES}
    frames = {**analysed, **stored}
    text = json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    written = _write(folder / DATA / "manifest.json", text.encode())
    files: list[tuple[str, str, int | None]] = [
        ("manifest.json", "what was asked for, where it ran, and its cells", None)
    ]
    for name, frame in frames.items():
        for kind in FORMATS if name in _SMALL else ("parquet",):
            written += _write_table(frame, folder / DATA / f"{name}.{kind}")
            files.append((f"{name}.{kind}", _HELD[name], len(frame)))
    written += _write_table(definitions_of(frames), folder / DATA / "definitions.csv")
    run_id = public_text(run.run_id, include_host=include_host)
    page = folder / DATA / "index.html"
    return written + pages.write(page, "site_data.html.j2", f"Data of {run_id}", files=_listed(files))


def _listed(files: Sequence[tuple[str, str, int | None]]) -> Grid:
    headings = [Heading("file", "", "name"), Heading("holds", "", "prose"), Heading("rows", "", "num")]
    rows = [
        [Cell(name, href=name), Cell(held), Cell("" if rows is None else f"{rows:,}", value=rows)]
        for name, held, rows in files
    ]
    return Grid("files", "Files", headings, rows)


def leaderboard(summaries: Iterable[Summary]) -> pd.DataFrame:
    """One row per run, drafter, suite, sampling, cap and context length, best first among what is alike.

    Args:
        summaries: The runs.
    """
    import pandas as pd

    rows = [
        {
            "run": one.key,
            "run_id": one.run_id,
            "created_at": one.created_at,
            "target": one.target,
            "target_id": one.target_id,
            "machine": one.machine,
            "is_busy": one.is_busy,
        }
        | row
        for one in summaries
        for row in one.rows
    ]
    columns = (*_ABOUT_RUN, *ROW)
    frame = pd.DataFrame(
        {
            name: pd.Series([row.get(name) for row in rows], dtype=_DTYPES.get(name, "float64"))
            for name in columns
        }
    )
    return _ranked(frame)


def simulated(summaries: Iterable[Summary], layout: SiteLayout) -> pd.DataFrame:
    """What runs would be on other devices: one row per run, device, drafter, suite, sampling and context.

    Args:
        summaries: The runs.
        layout: The site, which holds them.
    """
    import pandas as pd

    parts = []
    for one in summaries:
        frame = pd.read_parquet(layout.run(one.key) / DATA / "simulated.parquet")
        told = {name: getattr(one, name) for name in ("run_id", "created_at", "target", "target_id")}
        hashes = {suite.get("name"): suite.get("suite_hash") for suite in one.suites}
        names = {row["drafter"]: row["drafter_name"] for row in one.rows}
        parts.append(
            frame.assign(
                run=one.key,
                **told,
                suite_hash=frame["suite"].map(hashes),
                drafter_name=frame["drafter"].map(names),
            )
        )
    about = ("run", "run_id", "created_at", "target", "target_id", "suite_hash", "drafter_name")
    columns = [*about, *("context_length" if name == "context_rung" else name for name in SIMULATED)]
    if not parts:
        return pd.DataFrame(columns=columns)
    keys = ["device", "target", "suite", "_sampled", "sampling", "context_length"]
    frame = pd.concat(parts, ignore_index=True)[columns]
    ranks = frame.assign(_sampled=frame["sampling"] != "greedy", _speed=-frame["simulated_tok_per_s"])
    order = ranks.sort_values([*keys, "_speed", "drafter", "created_at"], na_position="last", kind="stable")
    return frame.loc[order.index].reset_index(drop=True)


def write_leaderboard(frame: pd.DataFrame, layout: SiteLayout, name: str = "leaderboard") -> list[Path]:
    """Write the leaderboard, or another table of all runs, in every format; see :func:`write_data`."""
    return [path for kind in FORMATS for path in _write_table(frame, layout.folder / f"{name}.{kind}")]


def write_atom(summaries: Sequence[Summary], title: str, layout: SiteLayout) -> list[Path]:
    """Write the runs as an Atom feed (RFC 4287), newest first.

    Links are relative, which readers resolve against the address they fetched the feed from.

    Args:
        summaries: The runs, newest first.
        title: Title of the site.
        layout: The site.
    """
    feed = ET.Element("feed", {"xmlns": "http://www.w3.org/2005/Atom"})
    _tell(feed, "title", title)
    _tell(feed, "id", _urn(f"site {title}"))
    _tell(feed, "updated", max((_updated(one) for one in summaries), default="1970-01-01T00:00:00Z"))
    _tell(ET.SubElement(feed, "author"), "name", "HyFlash Bench")
    ET.SubElement(feed, "link", {"href": "index.html"})
    for one in summaries:
        entry = ET.SubElement(feed, "entry")
        suites = ", ".join(str(suite.get("name")) for suite in one.suites)
        _tell(entry, "title", f"{one.run_id}: {one.target} on {suites}")
        _tell(entry, "id", _urn(f"run {one.run_id} {one.content_hash}"))
        _tell(entry, "updated", _updated(one))
        ET.SubElement(entry, "link", {"href": f"runs/{one.key}/index.html"})
        _tell(entry, "summary", " ".join(one.answer))
    ET.indent(feed)
    text = ET.tostring(feed, encoding="utf-8", xml_declaration=True) + b"\n"
    return _write(layout.folder / "feed.xml", text)


def _ranked(frame: pd.DataFrame) -> pd.DataFrame:
    """What may be compared stands together; there the fastest first, and what did not finish last."""
    order = frame.assign(
        _all=frame["context_length"].notna(),
        _sampled=frame["sampling"] != "greedy",
        _open=frame["status"] != "ok",
        _cap=frame["memory_cap_bytes"].fillna(0),
        _speed=-frame["speedup"],
        _length=-frame["acceptance_length"],
    )
    keys = ["_all", "target", "target_id", "suite", "suite_hash", "_sampled", "sampling"]
    keys += ["_cap", *CAP, "context_length", "_open"]
    order = order.sort_values(
        [*keys, "_speed", "_length", "drafter", "created_at"], na_position="last", kind="stable"
    )
    return frame.loc[order.index].reset_index(drop=True)


def _write(path: Path, content: bytes) -> list[Path]:
    return [path] if write_if_changed(path, content) else []


def _write_table(frame: pd.DataFrame, path: Path) -> list[Path]:
    """Write a table unless the file holds it already."""
    if path.suffix == ".parquet":
        buffer = io.BytesIO()
        frame.to_parquet(buffer, index=False)
        return _write(path, buffer.getvalue())
    with TemporaryDirectory() as folder:
        return _write(path, export_table(frame, Path(folder) / path.name).read_bytes())


def _updated(one: Summary) -> str:
    return one.finished_at or one.created_at


def _urn(name: str) -> str:
    return uuid.uuid5(uuid.NAMESPACE_URL, f"hyflash-bench {name}").urn


def _tell(parent: Any, name: str, text: str) -> None:
    ET.SubElement(parent, name).text = visible(text)
