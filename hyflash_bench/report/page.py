"""Runs as one HTML file: self-contained, the same bytes for the same runs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from hyflash_bench.atomic import write_text
from hyflash_bench.report.rendering import environment, script_json, source
from hyflash_bench.report.text import visible
from hyflash_bench.report.theme import TEMPLATE
from hyflash_bench.report.view import Page, numbers_of, page_of

if TYPE_CHECKING:
    from hyflash_bench.report.sections import Numbers
    from hyflash_bench.results.reader import Run

__all__ = ["Links", "plotly_asset", "render", "write_report"]

Links = Sequence[tuple[str, str]]
"""Texts and addresses of other pages."""

ASSETS = "assets"
"""Folder of the files that pages of a site share, beside the page."""


def write_report(
    runs: Run | Sequence[Run],
    path: Path | str,
    title: str | None = None,
    *,
    split_assets: bool = False,
    include_host: bool = False,
) -> Path:
    """Write a report that can be published as it is.

    Args:
        runs: One run, or several, which stand one after the other and are not mixed.
        path: The HTML file; written atomically.
        title: Title of the page; by default made from targets and suites.
        split_assets: Write plotly.js into ``assets/`` beside the page, once for all pages there, instead of
            into the page.
        include_host: Tell names of machines and people and whole paths, which are left out otherwise.

    Returns:
        The path of the file.

    Raises:
        UsageError: There is no run to report.
        DataError: A run is damaged, or the file cannot be written.
    """
    path = Path(path)
    if not split_assets:
        write_text(path, render(runs, title, include_host=include_host))
        return path
    name, text = plotly_asset()
    page = render(runs, title, include_host=include_host, plotly_src=f"{ASSETS}/{name}")
    asset = path.parent / ASSETS / name
    if not asset.exists():
        asset.parent.mkdir(parents=True, exist_ok=True)
        write_text(asset, text)
    write_text(path, page)
    return path


def render(
    runs: Run | Sequence[Run],
    title: str | None = None,
    *,
    include_host: bool = False,
    plotly_src: str | None = None,
    links: Links = (),
    numbers: Sequence[Numbers] | None = None,
) -> str:
    """The report as text; see :func:`write_report`.

    Args:
        runs: One run or several.
        title: Title of the page.
        include_host: Tell names and whole paths.
        plotly_src: Where the page finds plotly.js, relative to itself; None puts it into the page.
        links: Other pages to lead to from the top.
        numbers: The runs' tables, where some of them were made already.
    """
    chosen = list(runs) if isinstance(runs, Sequence) else [runs]
    page = page_of(numbers or numbers_of(chosen, include_host=include_host), title)
    figures = _figures(page)
    return (
        environment(include_host=include_host)
        .get_template("report.html.j2")
        .render(
            page=page,
            links=links,
            css=source("report.css"),
            js=source("report.js"),
            has_figures=bool(figures),
            plotly_src=plotly_src,
            plotly_js=Markup(get_plotlyjs()) if figures and not plotly_src else "",  # noqa: S704 - the library itself
            page_json=script_json(
                {
                    "template": TEMPLATE.to_plotly_json(),
                    "figures": figures,
                    "explorers": [run.explorer for run in page.runs],
                    "downloads": [run.downloads for run in page.runs],
                    "run_ids": [visible(run.run_id) for run in page.runs],
                    "looks": {visible(name): look.colour for name, look in page.looks.items()},
                }
            ),
        )
    )


def plotly_asset() -> tuple[str, str]:
    """Name and text of plotly.js as a file; the name changes with the text, so that it can be cached."""
    text: str = get_plotlyjs()
    return f"plotly-{hashlib.sha256(text.encode()).hexdigest()[:8]}.min.js", text


def _figures(page: Page) -> dict[str, Any]:
    """Every figure by the id of its place; the template that they share stands beside them, once."""
    figures = {
        f"run-{number}-{figure.key}": figure.plot.to_plotly_json()
        for number, run in enumerate(page.runs, start=1)
        for section in run.sections
        for figure in section.figures
    }
    for figure in figures.values():
        figure["layout"].pop("template", None)
    return figures
