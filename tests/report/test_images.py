"""Figures as image files: drawn for real where there is a browser, explained where there is none."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import plotly.graph_objects as go
import pytest

from hyflash_bench.errors import HyFlashError, MissingDependency, UnknownName
from hyflash_bench.report import images
from hyflash_bench.report.sections import Numbers
from hyflash_bench.report.view import Page, numbers_of, page_of
from hyflash_bench.results.reader import Run
from tests.report.browser import NO_CHROMIUM, chromium_path

kaleido = pytest.importorskip("kaleido", reason="the extra images is not installed")

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def page(small: Run) -> Page:
    """The report of a run with a few figures, laid out once."""
    return page_of(numbers_of([small]))


@pytest.fixture
def laid_out(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of that run, as often as it is given."""

    def page_of(numbers: Sequence[Numbers]) -> Page:
        return replace(page, runs=[*page.runs] * len(numbers))

    monkeypatch.setattr(images, "page_of", page_of)


@pytest.fixture
def one_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page with a single figure."""
    figure = go.Figure(go.Bar(x=["a <b>bold</b> label"], y=[3]))
    monkeypatch.setattr(images, "_figures", lambda *_: iter([("only", figure)]))


def _fake(monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> list[dict[str, Any]]:
    """Kaleido without a browser; what it was told to draw."""
    told: list[dict[str, Any]] = []

    def draw(orders: Sequence[dict[str, Any]], **settings: Any) -> None:
        assert settings["kopts"] == {"mathjax": False}, "mathjax would come from a network"
        if error is not None:
            raise error
        for order in orders:
            order["path"].write_bytes(b"drawn")
        told.extend(orders)

    monkeypatch.setattr(kaleido, "write_fig_from_object_sync", draw)
    return told


@pytest.mark.usefixtures("laid_out")
def test_every_figure_of_the_report_becomes_a_file_named_after_it(
    small: Run, page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = _fake(monkeypatch)
    keys = [figure.key for section in page.runs[0].sections for figure in section.figures]
    paths = images.write_images(small, tmp_path / "new" / "figures")

    assert keys
    assert {path.name for path in paths} == {f"{key}.{kind}" for key in keys for kind in ("svg", "png")}
    assert {path.read_bytes() for path in paths} == {b"drawn"}
    assert sorted(paths) == sorted((tmp_path / "new" / "figures").iterdir())
    assert {order["fig"]["layout"]["paper_bgcolor"] for order in told} == {"white"}


@pytest.mark.usefixtures("laid_out")
def test_several_runs_do_not_overwrite_each_other(
    small: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake(monkeypatch)
    one = images.write_images(small, tmp_path / "one", ["svg"])
    both = images.write_images([small, small], tmp_path / "both", ["svg"])

    assert len(set(both)) == 2 * len(one)


@pytest.mark.usefixtures("one_figure")
def test_without_kaleido_the_extra_is_named(
    small: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kaleido", None)
    with pytest.raises(MissingDependency, match=r"pip install 'hyflash-bench\[images\]'"):
        images.write_images(small, tmp_path / "figures")

    assert not (tmp_path / "figures").exists()


@pytest.mark.usefixtures("one_figure")
def test_without_a_browser_it_is_said_how_to_get_one(
    small: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "nowhere"))
    with pytest.raises(MissingDependency, match="apt-get install chromium"):
        images.write_images(small, tmp_path / "figures")


@pytest.mark.usefixtures("one_figure")
def test_a_browser_that_dies_is_one_message(
    small: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kaleido.errors import BrowserFailedError

    _fake(monkeypatch, BrowserFailedError("It closed at once.", "more"))
    with pytest.raises(HyFlashError, match=r"could not draw the figures: It closed at once\. Check"):
        images.write_images(small, tmp_path / "figures")


def test_an_unknown_format_is_named(small: Run, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="image format 'gif'"):
        images.write_images(small, tmp_path, ["gif"])


@pytest.mark.usefixtures("one_figure")
@pytest.mark.skipif(chromium_path() is None, reason=NO_CHROMIUM)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_images_are_drawn_for_real(small: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An SVG with the figure's text, and a PNG of twice the size; text stays text."""
    monkeypatch.setenv("BROWSER_PATH", chromium_path() or "")
    vector, pixels = images.write_images(small, tmp_path)
    drawing = ET.parse(vector).getroot()
    data = pixels.read_bytes()

    assert drawing.tag == f"{SVG}svg"
    assert drawing.findall(f".//{SVG}text")
    assert data.startswith(b"\x89PNG")
    assert (int.from_bytes(data[16:20]), int.from_bytes(data[20:24])) == (1800, 1000)
