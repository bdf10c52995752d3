"""Runs and their pages, each made once: making a page is most of what these tests take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hyflash_bench.report import view
from hyflash_bench.report.page import render
from hyflash_bench.results.reader import Run, load_run
from tests.report.browser import NO_CHROMIUM, chromium_path
from tests.report.sites import first_sections
from tests.results.factory import DRAFTERS, FAILING, make_run

TARGET: dict[str, Any] = {
    "name": "tiny-135m",
    "dtype": "float32",
    "num_layers": 30,
    "hidden_size": 576,
    "vocab_size": 49152,
    "num_attention_heads": 9,
    "num_kv_heads": 3,
    "head_dim": 64,
    "max_positions": 8192,
    "num_parameters": 134515008,
}
"""Sizes as of SmolLM2-135M."""


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with intervals, every kind of failure, and a target whose passes can be simulated."""
    folder = tmp_path_factory.mktemp("page") / "run"
    resolved = {"suites": ["quick", "longctx"], "seed": 0, "devices": ["raspberry-pi-5-8gb", "h200"]}
    asked = {"target": TARGET, "resolved": resolved}
    return load_run(make_run(folder, DRAFTERS + FAILING, num_per_group=5, **asked))


@pytest.fixture(scope="session")
def page(run: Run) -> str:
    """Its report."""
    return render(run)


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of two drafters with one conversation a group: too small for intervals."""
    return load_run(make_run(tmp_path_factory.mktemp("small") / "run", DRAFTERS[:2], num_per_group=1))


@pytest.fixture(scope="session")
def small_page(small: Run) -> str:
    """Its report."""
    return render(small)


@pytest.fixture
def few_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of a table, a figure and the claims, where the rest of a page does not matter."""
    monkeypatch.setattr(view, "sections_of", first_sections)


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
