"""Runs and their pages, each made once: making a page is most of what these tests take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hyflash_bench.report.page import render
from hyflash_bench.results.reader import Run, load_run
from tests.report.browser import NO_CHROMIUM, chromium_path
from tests.results.factory import DRAFTERS, FAILING, make_run


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with intervals and with every kind of failure."""
    return load_run(make_run(tmp_path_factory.mktemp("page") / "run", DRAFTERS + FAILING, num_per_group=5))


@pytest.fixture(scope="session")
def page(run: Run) -> str:
    """Its report."""
    return render(run)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The system's Chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
    path = chromium_path()
    if path is None:
        pytest.skip(NO_CHROMIUM)
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def page_file(page: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report on disk."""
    path = tmp_path_factory.mktemp("pages") / "report.html"
    path.write_text(page, encoding="utf-8")
    return path
