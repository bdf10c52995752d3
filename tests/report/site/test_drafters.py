"""Pages of drafters: their numbers over the runs."""

from __future__ import annotations

from pathlib import Path

from tests.report.sites import figures_of


def test_a_drafter_has_its_numbers_over_the_dates(published: Path) -> None:
    """A point a run, in one figure only what compares."""
    page = published / "drafters" / "prompt-lookup" / "index.html"
    lines = [trace for figure in figures_of(page).values() for trace in figure["data"]]

    assert lines
    assert all(line["x"] == ["2026-11-01T12:00:00Z", "2026-11-02T12:00:00Z"] for line in lines)
