"""Runs as one HTML file: self-contained, the same bytes for the same runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from hyflash_bench.atomic import write_text
from hyflash_bench.report.text import visible
from hyflash_bench.report.view import Page, page_of

if TYPE_CHECKING:
    from hyflash_bench.results.reader import Run

__all__ = ["render", "write_report"]


def write_report(runs: Run | Sequence[Run], path: Path | str, title: str | None = None) -> Path:
    """Write a report that can be published as it is.

    Args:
        runs: One run, or several, which stand one after the other and are not mixed.
        path: The HTML file; written atomically.
        title: Title of the page; by default made from targets and suites.

    Returns:
        The path of the file.

    Raises:
        UsageError: There is no run to report.
        DataError: A run is damaged, or the file cannot be written.
    """
    path = Path(path)
    write_text(path, render(runs, title))
    return path


def render(runs: Run | Sequence[Run], title: str | None = None) -> str:
    """The report as text; see :func:`write_report`."""
    page = page_of(list(runs) if isinstance(runs, Sequence) else [runs], title)
    folder = PackageLoader("hyflash_bench.report")
    templates = Environment(loader=folder, autoescape=True, undefined=StrictUndefined, finalize=_shown)
    figures = _figures_json(page)
    return templates.get_template("report.html.j2").render(
        page=page,
        css=Markup(folder.get_source(templates, "report.css")[0]),  # noqa: S704 - our own file
        plotly_js=Markup(get_plotlyjs()) if figures else "",  # noqa: S704 - the library itself
        figures_json=Markup(figures),  # noqa: S704 - escaped below
    )


def _shown(value: object) -> object:
    """What the template puts in: text of others with its control characters made visible."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _figures_json(page: Page) -> str:
    """Every figure by the id of its place, safe to stand inside a script element."""
    figures = {
        f"run-{number}-{figure.key}": figure.plot.to_plotly_json()
        for number, run in enumerate(page.runs, start=1)
        for section in run.sections
        for figure in section.figures
    }
    if not figures:
        return ""
    text = json.dumps(figures, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
