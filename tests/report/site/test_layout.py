"""The folder of a site: what may be there already, and what is refused and left as it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hyflash_bench.errors import DataError, SchemaTooNew, UsageError
from hyflash_bench.report.site import publish
from hyflash_bench.results.reader import Run
from tests.report.sites import broken_links, stamps


def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path, runs: list[Run]) -> None:
    """And left as it was."""
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(UsageError, match=r"not empty and no site made by publish \(thesis.tex\)"):
        publish(runs[0], tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_is_no_folder(tmp_path: Path, runs: list[Run]) -> None:
    (tmp_path / "site").write_text("mine")
    with pytest.raises(UsageError, match="is a file"):
        publish(runs[0], tmp_path / "site")


@pytest.mark.usefixtures("quick_pages")
def test_what_hosts_and_people_put_there_is_no_hindrance(tmp_path: Path, runs: list[Run]) -> None:
    """A clone of a branch for pages holds .git and perhaps a domain."""
    for name in (".gitattributes", "CNAME", "README.md"):
        (tmp_path / name).write_text("mine")
    publish(runs[0], tmp_path)

    assert {(tmp_path / name).read_text() for name in (".gitattributes", "CNAME", "README.md")} == {"mine"}
    assert broken_links(tmp_path) == []


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"kind": "another program\'s"}', '{"kind": "hyflash-bench site"}']
)
def test_a_marker_of_others_is_refused(tmp_path: Path, runs: list[Run], text: str) -> None:
    (tmp_path / "site.json").write_text(text)
    with pytest.raises(UsageError, match="was not written by publish, or is damaged"):
        publish(runs[0], tmp_path)

    assert (tmp_path / "site.json").read_text() == text


def test_a_newer_site_is_left_alone(site: Path, runs: list[Run]) -> None:
    marker = json.loads((site / "site.json").read_text()) | {"version": 99}
    (site / "site.json").write_text(json.dumps(marker))
    before = stamps(site)
    with pytest.raises(SchemaTooNew, match="newer version"):
        publish(runs[2], site)

    assert stamps(site) == before


def test_a_damaged_summary_is_named(site: Path) -> None:
    path = next((site / "runs").glob("*/summary.json"))
    path.write_text("{")
    with pytest.raises(DataError, match=r"summary\.json cannot be used"):
        publish([], site)
