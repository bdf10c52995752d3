"""Runs into a site: new ones are added, nothing that is there is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import hyflash_bench
from hyflash_bench.atomic import write_error
from hyflash_bench.errors import DataError, UnknownName, UsageError
from hyflash_bench.report.page import render
from hyflash_bench.report.site.comparisons import write_comparisons
from hyflash_bench.report.site.devices import write_devices
from hyflash_bench.report.site.drafters import write_drafters
from hyflash_bench.report.site.feeds import (
    DATA,
    leaderboard,
    simulated,
    write_atom,
    write_data,
    write_leaderboard,
)
from hyflash_bench.report.site.index import write_index
from hyflash_bench.report.site.layout import SiteLayout, open_site, write_if_changed
from hyflash_bench.report.site.pages import Pages, write_assets
from hyflash_bench.report.site.public import public_frame
from hyflash_bench.report.site.summary import current, key_of, read_summaries, read_summary, summarise
from hyflash_bench.report.view import numbers_of

if TYPE_CHECKING:
    from hyflash_bench.results.reader import Run

__all__ = ["Published", "publish"]

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Published:
    """What publishing did.

    Attributes:
        index: The site's first page.
        added: Folders of runs that are new or were made anew.
        unchanged: Folders of runs that the site had already.
        removed: Folders of runs that are gone.
        written: Every file that changed.
    """

    index: Path
    added: Sequence[str]
    unchanged: Sequence[str]
    removed: Sequence[str]
    written: Sequence[Path]


def publish(
    runs: Run | Sequence[Run],
    folder: Path | str,
    *,
    title: str | None = None,
    include_host: bool = False,
    remove: Iterable[str] = (),
    tell: Tell = lambda _text: None,
) -> Published:
    """Add runs to a static site, which begins with the first of them.

    A run's page and data are written once and not again for the same content; index, drafter pages and
    comparisons are made from what the site holds, so that no run folder is needed twice. Every file is
    replaced as a whole and the index last: a site is whole at any moment, also after a crash. Files that are
    not the site's own are left alone. Let one process publish at a time.

    Args:
        runs: Runs to add; none makes the index anew, as after a merge of two sites.
        folder: The site: a new or empty folder, or one that was published before.
        title: Title of the site; without one it keeps its own.
        include_host: Tell host names and whole paths, which are left out otherwise.
        remove: Names of runs to take out, or of their folders; nothing else ever removes one.
        tell: Is told what is going on.

    Returns:
        What changed.

    Raises:
        UsageError: The folder holds something else, or a name to remove fits several runs.
        UnknownName: There is no run of the name to remove.
        SchemaTooNew: A newer version made the site.
        DataError: A run or the site is damaged, or a file cannot be written.
    """
    layout = SiteLayout(Path(folder))
    chosen = list(runs) if isinstance(runs, Sequence) else [runs]
    site_title = open_site(layout.folder, title)
    assets, written = write_assets(layout)
    pages = Pages(layout, site_title, assets)
    gone = [_to_remove(name, layout) for name in dict.fromkeys(remove)]
    added, unchanged = [], []
    for run in chosen:
        key = key_of(run, include_host=include_host)
        if _is_there(run, key, layout, include_host):
            unchanged.append(key)
            continue
        tell(f"writing run {run.run_id}")
        written += _add(run, key, pages, include_host)
        added.append(key)
    tell("writing the index")
    written += _rebuild(pages, gone)
    for key in gone:
        _remove(layout.run(key))
    if gone:
        _remove_stale(pages)
    return Published(layout.index, added, unchanged, gone, written)


def _is_there(run: Run, key: str, layout: SiteLayout, include_host: bool) -> bool:
    """Whether the site has the run as this version would write it."""
    with suppress(DataError):
        known = read_summary(layout.run(key) / "summary.json")
        return (known.made_by, known.include_host) == (hyflash_bench.__version__, include_host)
    return False


def _add(run: Run, key: str, pages: Pages, include_host: bool) -> list[Path]:
    """Write a run's page and data, and last its summary, with which it counts."""
    folder = pages.layout.run(key)
    (numbers,) = numbers_of([run], include_host=include_host)
    made = {"headline": numbers.headline, "by_context": numbers.by_context, "simulated": numbers.simulated}
    analysed = {name: public_frame(frame, include_host=include_host) for name, frame in made.items()}
    written = write_data(run, analysed, pages, folder, include_host=include_host)
    html = render(
        run,
        include_host=include_host,
        plotly_src=f"../../assets/{pages.assets.plotly}",
        links=[("All runs", "../../index.html"), ("Data files", f"{DATA}/index.html")],
        numbers=[numbers],
    )
    summary = summarise(run, analysed, include_host=include_host)
    files = {"index.html": html, "summary.json": summary.to_json()}
    return written + [folder / name for name, text in files.items() if write_if_changed(folder / name, text)]


def _rebuild(pages: Pages, gone: Sequence[str]) -> list[Path]:
    """Everything that is made from the summaries; the first page comes last."""
    layout = pages.layout
    summaries = [one for one in read_summaries(layout) if one.key not in gone]
    latest = current(summaries)
    frame = leaderboard(latest)
    elsewhere = simulated(latest, layout)
    written = [*write_leaderboard(frame, layout), *write_leaderboard(elsewhere, layout, "simulated")]
    written += write_atom(summaries, pages.title, layout)
    links = {}
    for name, (found, paths) in {
        "drafters": write_drafters(frame, pages),
        "comparisons": write_comparisons(latest, pages),
        "devices": write_devices(elsewhere, pages),
    }.items():
        links[name] = found
        written += paths
    written += [path for path in (layout.folder / ".nojekyll",) if write_if_changed(path, "")]
    return written + write_index(summaries, frame, pages, **links)


def _to_remove(name: str, layout: SiteLayout) -> str:
    """The folder of the run of a name."""
    folders = {path.name for path in layout.runs.glob("*") if path.is_dir()}
    if name in folders:
        return name
    summaries = read_summaries(layout)
    found = [one.key for one in summaries if one.run_id == name]
    if not found:
        known = sorted({one.run_id for one in summaries} | folders)
        raise UnknownName("published run", name, known)
    if len(found) > 1:
        raise UsageError(
            f"{name!r} is the name of {len(found)} published runs. "
            f"Say which one to remove: {', '.join(found)}."
        )
    return found[0]


def _remove(folder: Path) -> None:
    """Delete what publishing wrote of a run, and its folder unless something else lies in it."""
    # The summary first: without it the run no longer counts, whatever happens next.
    _unlink(folder / "summary.json", folder / "index.html", *(folder / DATA).glob("*"))
    for path in (folder / DATA, folder):
        with suppress(OSError):
            path.rmdir()


def _remove_stale(pages: Pages) -> None:
    """Delete pages of drafters and comparisons that no run is left for."""
    layout = pages.layout
    linked = layout.index.read_text(encoding="utf-8")
    folders = (layout.drafters, layout.comparisons, layout.devices)
    for page in [page for folder in folders for page in folder.glob("*/index.html")]:
        address = page.relative_to(layout.folder).as_posix()
        if f'href="{address}"' in linked:
            continue
        _unlink(page, *page.parent.glob("*-*.json"))
        with suppress(OSError):
            page.parent.rmdir()


def _unlink(*paths: Path) -> None:
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise write_error(path, error) from error
