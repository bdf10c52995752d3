"""Runs and sites of them, each made once for all tests here."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hyflash_bench.report import view
from hyflash_bench.report.site import comparisons, publish, publishing
from hyflash_bench.report.site.feeds import PublishedRun
from hyflash_bench.results.export import content_hash
from hyflash_bench.results.reader import Run
from tests.report.sites import contents, first_sections, tiny_run


@pytest.fixture(scope="package", autouse=True)
def _made_once() -> Iterator[None]:
    """What only depends on a run's content is computed once, and pages have few sections."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(view, "sections_of", first_sections)
        patch.setattr(publishing, "numbers_of", _remembering(publishing.numbers_of))
        patch.setattr(publishing, "render", _remembering(publishing.render))
        patch.setattr(comparisons, "compare", _remembering(comparisons.compare))
        yield


def _remembering(function: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[str, Any] = {}

    def remembering(*given: Any, **settings: Any) -> Any:
        told = {name: value for name, value in settings.items() if name != "numbers"}  # follow from the run
        key = repr(([_content(each) for each in given], told))
        if key not in known:
            known[key] = function(*given, **settings)
        return known[key]

    return remembering


def _content(value: Any) -> Any:
    if isinstance(value, PublishedRun):
        return value.manifest, value.suite, (value.folder / "turns.parquet").read_bytes()
    if isinstance(value, list):
        return [_content(each) for each in value]
    return content_hash(value) if isinstance(value, Run) else value


@pytest.fixture(scope="package")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Three runs of the same target on the same suites, on three days."""
    folder = tmp_path_factory.mktemp("runs")
    return [tiny_run(folder / f"run-{day}", day) for day in (1, 2, 3)]


@pytest.fixture(scope="package")
def published(runs: list[Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of the first two; never changed."""
    folder = tmp_path_factory.mktemp("published") / "site"
    publish(runs[:2], folder, title="Ours & theirs")
    return folder


@pytest.fixture(scope="package")
def whole(published: Path, runs: list[Run], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What the site is with the third run, added without a mishap."""
    folder = shutil.copytree(published, tmp_path_factory.mktemp("whole") / "site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publishing, "render", _page_without_content)
        publish(runs[2], folder)
    return contents(folder)


@pytest.fixture
def site(published: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(published, tmp_path / "site"))


@pytest.fixture
def quick_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run pages without their content, where only the files around them matter."""
    monkeypatch.setattr(publishing, "render", _page_without_content)


def _page_without_content(run: Run, **_: Any) -> str:
    return f"<!doctype html><title>{run.run_id}</title>\n"
