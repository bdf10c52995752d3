"""Figures of a report as image files, drawn by kaleido in a browser of this machine."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from hyflash_bench.atomic import replacing
from hyflash_bench.errors import HyFlashError, MissingDependency, UnknownName
from hyflash_bench.report.names import safe_name
from hyflash_bench.report.view import numbers_of, page_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from hyflash_bench.results.reader import Run

__all__ = ["FORMATS", "write_images"]

FORMATS: Final = ("svg", "png", "pdf")

_WIDTH, _HEIGHT = 900, 500
_SCALE: Final = {"png": 2}
"""Pixels for each of the figure's own, so that they stay sharp on paper and dense screens."""

_ON_PAPER: Final = {"paper_bgcolor": "white", "plot_bgcolor": "white", "font_color": "#1b1f24"}
"""The page's figures take these from its style sheet, which an image does not have."""


def write_images(
    runs: Run | Sequence[Run],
    folder: Path | str,
    formats: Sequence[str] = ("svg", "png"),
    *,
    include_host: bool = False,
) -> list[Path]:
    """Write every figure of a report as a file.

    Files are named after the figure, and after the run where there are several. The same figure is the
    same picture each time, but not the same bytes of SVG: the browser numbers its parts as it likes.

    Args:
        runs: One run, or several.
        folder: Where to; made if needed.
        formats: Out of :data:`FORMATS`.
        include_host: Let whole paths stand in names.

    Returns:
        The paths of the files.

    Raises:
        UnknownName: No such format.
        MissingDependency: Kaleido, or a browser for it, is not installed; the message says how to get it.
        DataError: A run is damaged, or a file cannot be written.
    """
    for name in formats:
        if name not in FORMATS:
            raise UnknownName("image format", name, FORMATS)
    folder = Path(folder)
    chosen = list(runs) if isinstance(runs, Sequence) else [runs]
    figures = dict(_figures(chosen, include_host))
    written = []
    with TemporaryDirectory() as drawn:
        paths = _draw(figures, formats, Path(drawn))
        for path in paths:
            with replacing(folder / path.name) as temporary:
                temporary.write_bytes(path.read_bytes())
            written.append(folder / path.name)
    return written


def _figures(runs: Sequence[Run], include_host: bool) -> Iterator[tuple[str, go.Figure]]:
    """Every figure by the name of its file."""
    page = page_of(numbers_of(runs, include_host=include_host))
    for number, run in enumerate(page.runs, start=1):
        prefix = f"{number}-{safe_name(run.run_id)}-" if len(page.runs) > 1 else ""
        for section in run.sections:
            for figure in section.figures:
                yield f"{prefix}{safe_name(figure.key)}", figure.plot


def _draw(figures: dict[str, go.Figure], formats: Sequence[str], folder: Path) -> list[Path]:
    """Draw all figures in one browser."""
    if not figures:
        return []
    try:
        import kaleido
        from kaleido import errors
    except ImportError:
        raise MissingDependency(
            "Images need kaleido, which is not installed. Install it: pip install 'hyflash-bench[images]'."
        ) from None
    orders = [
        _order(plot, folder / f"{name}.{kind}", kind) for name, plot in figures.items() for kind in formats
    ]
    for logger in ("kaleido", "choreographer"):  # they tell the whole life of the browser
        logging.getLogger(logger).setLevel(logging.ERROR)
    try:
        # Without mathjax, which kaleido would load from a network; no figure has a formula.
        kaleido.write_fig_from_object_sync(orders, kopts={"mathjax": False}, cancel_on_error=True)
    except errors.ChromeNotFoundError:
        raise MissingDependency(
            "Images are drawn by a browser of the Chromium family, and none was found. Install one "
            "(on Debian: apt-get install chromium; anywhere: kaleido_get_chrome), or set BROWSER_PATH to one."
        ) from None
    except (errors.BrowserFailedError, errors.BrowserClosedError, errors.KaleidoError, TimeoutError) as error:
        why = str(next(iter(error.args), type(error).__name__)).rstrip(".")
        raise HyFlashError(
            f"The browser could not draw the figures: {why}. Check that it starts "
            "(chromium --headless), or set BROWSER_PATH to another one."
        ) from None
    return [order["path"] for order in orders]


def _order(plot: go.Figure, path: Path, kind: str) -> dict[str, Any]:
    import plotly.graph_objects as go

    height = int(plot.layout.height or _HEIGHT)
    size = {"width": _WIDTH, "height": height, "scale": _SCALE.get(kind, 1)}
    return {
        "fig": go.Figure(plot).update_layout(_ON_PAPER).to_dict(),
        "path": path,
        "opts": {"format": kind, **size},
    }
