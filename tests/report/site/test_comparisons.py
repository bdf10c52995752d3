"""Pages of comparisons: runs of the same work, and why some of it is not compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from hyflash_bench.report.site import comparisons, publish
from hyflash_bench.results.reader import Run
from tests.report.sites import PageParser, tiny_run


def test_runs_of_the_same_work_are_compared(published: Path) -> None:
    """Side by side, and one against the other, for each suite."""
    pages = list((published / "compare").glob("*/index.html"))
    texts = " ".join(PageParser(pages[0].read_text()).texts)

    assert len(pages) == 2
    assert "run-2, 2026-11-02 12:00, against run-1, 2026-11-01 12:00" in texts
    stored = json.loads(next(pages[0].parent.glob("*-*.json")).read_text())
    drafters = {row["drafter"] for row in stored["metrics"]["acceptance_length"]["rows"]}
    assert drafters == {"autoregressive", "prompt-lookup"}


@pytest.mark.usefixtures("quick_pages")
def test_another_run_costs_one_more_comparison(
    site: Path, runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those made before are kept."""
    made: list[tuple[str, str]] = []
    compare: Callable[..., pd.DataFrame] = comparisons.compare

    def counted(one: Run, two: Run, **settings: str) -> pd.DataFrame:
        made.append((one.run_id, two.run_id))
        return compare(one, two, **settings)

    monkeypatch.setattr(comparisons, "compare", counted)
    publish(runs[2], site)

    assert set(made) == {("run-2", "run-3")}


@pytest.mark.usefixtures("quick_pages")
def test_speeds_of_different_machines_are_not_compared(site: Path, tmp_path: Path) -> None:
    """The page says why; what does not depend on the machine is compared all the same."""
    other = tiny_run(tmp_path / "other", 3, environment={"cpu": "another one", "num_threads": 2})
    publish(other, site)
    page = next((site / "compare").glob("*quick*/index.html")).read_text()

    assert "Decode tok/s was not compared." in page
    assert "another one" in page


@pytest.mark.usefixtures("quick_pages")
def test_another_target_is_another_comparison(site: Path, tmp_path: Path, runs: list[Run]) -> None:
    cells = [cell.model_copy(update={"target_id": "target-0002"}) for cell in runs[2].manifest.cells]
    other = tiny_run(tmp_path / "other", 3, cells=cells)
    publish(other, site)

    assert len(list((site / "compare").iterdir())) == 2
