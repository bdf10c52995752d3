"""Pages of a site as files: shared assets, one frame around all, written only where they changed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hyflash_bench
from hyflash_bench.report.page import plotly_asset
from hyflash_bench.report.rendering import environment, script_json, source
from hyflash_bench.report.site.layout import SiteLayout, write_if_changed
from hyflash_bench.report.theme import TEMPLATE

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from jinja2 import Environment

__all__ = ["Assets", "FigureView", "Pages", "write_assets"]


@dataclass(frozen=True, slots=True)
class Assets:
    """Names of the shared files; each holds a hash of its content."""

    plotly: str
    css: str
    js: str


@dataclass(frozen=True, slots=True)
class FigureView:
    """A figure with the id of its place and the sentence that stands for it."""

    key: str
    alt: str
    plot: go.Figure


@dataclass(frozen=True)
class Pages:
    """Writes the pages of one site.

    Attributes:
        layout: The site.
        title: Title of the site.
        assets: Its shared files.
    """

    layout: SiteLayout
    title: str
    assets: Assets

    @cached_property
    def _templates(self) -> Environment:
        return environment(include_host=True)  # texts were cut when their run was published

    def write(
        self,
        path: Path,
        template: str,
        title: str | None = None,
        figures: Sequence[FigureView] = (),
        **values: Any,
    ) -> list[Path]:
        """Render a template of a page.

        Args:
            path: The file.
            template: Name of the template.
            title: Title of the page; the site's by default.
            figures: What is drawn on the page.
            values: What else the template shows; texts must be fit for the public already.

        Returns:
            The path, if the file changed.
        """
        depth = len(path.relative_to(self.layout.folder).parts) - 1
        html = self._templates.get_template(template).render(
            title=self.title if title is None else title,
            root="../" * depth,
            css=self.assets.css,
            js=self.assets.js,
            plotly=self.assets.plotly,
            figures_json=_figures_json(figures) if figures else "",
            version=hyflash_bench.__version__,
            **({"subtitle": "", "notices": (), "is_home": False} | values),
        )
        return [path] if write_if_changed(path, html) else []


def write_assets(layout: SiteLayout) -> tuple[Assets, list[Path]]:
    """Write the shared files; those of other versions stay, since older pages load them.

    Returns:
        Their names, and the files that changed.
    """
    plotly_name, plotly_text = plotly_asset()
    css, js = f"{source('report.css')}\n{source('site.css')}", str(source("site.js"))
    assets = Assets(plotly_name, f"site-{_digest(css)}.css", f"site-{_digest(js)}.js")
    files = {assets.plotly: plotly_text, assets.css: css, assets.js: js}
    written = [
        layout.assets / name for name, text in files.items() if write_if_changed(layout.assets / name, text)
    ]
    return assets, written


def _figures_json(figures: Sequence[FigureView]) -> Any:
    plots: dict[str, Mapping[str, Any]] = {}
    for figure in figures:
        plot = figure.plot.to_plotly_json()
        plot["layout"] = {name: value for name, value in plot["layout"].items() if name != "template"}
        plots[figure.key] = plot
    return script_json({"template": TEMPLATE.to_plotly_json(), "figures": plots})


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
