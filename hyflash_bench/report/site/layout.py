"""Files of a site, in one place.

A site::

    site.json                     makes the folder a site; its title
    index.html                    leaderboard, runs, drafters, comparisons
    404.html, .nojekyll           for hosts that look for them
    feed.xml                      runs as an Atom feed
    leaderboard.*, simulated.*    tables of all runs as CSV, JSON and Parquet
    assets/                       plotly.js, style sheet, script; named after their content
    runs/<run>-<hash>/            index.html, summary.json and data/: all that is kept of a run
    drafters/<drafter>/           its numbers over the runs' dates
    devices/<device>/             what runs would be there, simulated
    compare/<target>-<suite>-<hash>/   runs of the same work side by side

Only what stands here is ever written, and only a run that is to be removed is ever deleted. A run's
folder is named after the content of the run: another content is another folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hyflash_bench.atomic import replacing
from hyflash_bench.errors import DataError, HyFlashError, SchemaTooNew, UsageError
from hyflash_bench.results.lines import decode

__all__ = ["SITE_VERSION", "SiteLayout", "open_site", "write_if_changed"]

SITE_VERSION: Final = 1
KIND: Final = "hyflash-bench site"
TITLE: Final = "HyFlash Bench results"

_HARMLESS: Final = frozenset({"CNAME", "LICENSE", "LICENSE.md", "README.md", "robots.txt"})
"""Beside dotfiles, what may lie in a folder that is to become a site: hosts and people put it there."""


@dataclass(frozen=True, slots=True)
class SiteLayout:
    """Paths within a site."""

    folder: Path

    @property
    def marker(self) -> Path:
        """What makes the folder a site."""
        return self.folder / "site.json"

    @property
    def index(self) -> Path:
        """The first page."""
        return self.folder / "index.html"

    @property
    def assets(self) -> Path:
        """Shared files named after their content, so that old pages keep theirs."""
        return self.folder / "assets"

    @property
    def runs(self) -> Path:
        """A folder a run."""
        return self.folder / "runs"

    @property
    def drafters(self) -> Path:
        """A folder a drafter."""
        return self.folder / "drafters"

    @property
    def comparisons(self) -> Path:
        """A folder for each target and suite with several runs."""
        return self.folder / "compare"

    @property
    def devices(self) -> Path:
        """A folder for each device that speeds are simulated on."""
        return self.folder / "devices"

    def run(self, key: str) -> Path:
        """Folder of a run."""
        return self.runs / key

    def summaries(self) -> Iterator[Path]:
        """What the site knows of each run that is complete; the summary is written last."""
        yield from sorted(self.runs.glob("*/summary.json"))


def open_site(folder: Path, title: str | None) -> str:
    """Make sure that a folder is a site of ours, or becomes one.

    Args:
        folder: The site.
        title: Its new title, or None to keep the one it has.

    Returns:
        The title.

    Raises:
        UsageError: The folder holds something else.
        SchemaTooNew: A newer version made the site.
        DataError: The site's marker is damaged.
    """
    layout = SiteLayout(folder)
    _refuse_foreign(layout)
    known = _marker_of(layout).get("title", TITLE)
    values = {"kind": KIND, "version": SITE_VERSION, "title": known if title is None else title}
    write_if_changed(layout.marker, json.dumps(values, indent=2, ensure_ascii=False) + "\n")
    return str(values["title"])


def write_if_changed(path: Path, content: str | bytes) -> bool:
    """Write a file atomically, unless it holds the content already.

    Returns:
        Whether it was written.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        if path.read_bytes() == data:
            return False
    except OSError:
        pass  # absent or unreadable: writing says what is wrong
    with replacing(path) as temporary:
        temporary.write_bytes(data)
    return True


def _refuse_foreign(layout: SiteLayout) -> None:
    folder = layout.folder
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file. Give a folder for the site: --to DIR.")
    if layout.marker.exists() or not folder.exists():
        return
    foreign = sorted(
        path.name for path in folder.iterdir() if not path.name.startswith(".") and path.name not in _HARMLESS
    )
    if foreign:
        named = ", ".join(foreign[:3]) + (" ..." if len(foreign) > 3 else "")
        raise UsageError(
            f"{folder} is not empty and no site made by publish ({named}). "
            "Give an empty or new folder, or a site that was published before: --to DIR."
        )


def _marker_of(layout: SiteLayout) -> dict[str, Any]:
    """What the marker says; nothing if there is none yet."""
    try:
        text = layout.marker.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise DataError(f"{layout.marker} cannot be read: {error.strerror or error}.") from None
    try:
        values = decode(text, str(layout.marker))
    except HyFlashError:
        values = {}
    version = values.get("version")
    if values.get("kind") != KIND or not isinstance(version, int):
        raise UsageError(
            f"{layout.marker} was not written by publish, or is damaged. Give another folder with --to, or, "
            f'if this is a site, restore the file: {{"kind": "{KIND}", "version": {SITE_VERSION}}}.'
        )
    if version > SITE_VERSION:
        raise SchemaTooNew(
            f"{layout.folder} was published by a newer version of hyflash-bench (site version {version}, "
            f"known here: {SITE_VERSION}). Update: pip install -U hyflash-bench."
        )
    return values
