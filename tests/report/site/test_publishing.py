"""Publishing: a site grows, run by run, and what is there stays."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hyflash_bench.analysis import summary
from hyflash_bench.errors import UnknownName, UsageError
from hyflash_bench.report.site import layout, publish
from hyflash_bench.report.site.layout import SiteLayout
from hyflash_bench.report.site.summary import read_summaries, read_summary
from hyflash_bench.results.reader import Run
from tests.report.sites import broken_links, contents, index_of, stamps, tiny_run
from tests.results.factory import DRAFTERS, FakeDrafter


def test_adding_a_run_writes_nothing_of_those_before(site: Path, runs: list[Run]) -> None:
    """Their pages and data keep their very files; shared files too."""
    before = stamps(site / "runs"), stamps(site / "assets")
    done = publish(runs[2], site)
    after = stamps(site / "runs")

    assert done.added == [path.name for path in (site / "runs").glob("run-3-*")]
    assert before[0].items() < after.items()
    assert stamps(site / "assets") == before[1]
    assert broken_links(site) == []
    assert "run-3" in index_of(site).texts


def test_publishing_the_same_again_writes_nothing(site: Path, runs: list[Run]) -> None:
    """Whichever of the runs is given, in any order."""
    before = stamps(site)
    done = publish([runs[1], runs[0]], site)

    assert (done.added, done.written) == ([], [])
    assert len(done.unchanged) == 2
    assert stamps(site) == before


def test_run_folders_are_needed_once(site: Path) -> None:
    """The index is made from the site alone, also after another version made it otherwise."""
    before = contents(site)
    (site / "index.html").write_text("lost")
    shutil.rmtree(site / "drafters")
    publish([], site)

    assert contents(site) == before


def test_the_same_runs_give_the_same_bytes(published: Path, runs: list[Run], tmp_path: Path) -> None:
    """One after the other, in another order, into another folder."""
    for run in (runs[1], runs[0]):
        publish(run, tmp_path / "other", title="Ours & theirs")

    first, second = (
        {name: stamp[0] for name, stamp in stamps(folder).items()}
        for folder in (published, tmp_path / "other")
    )
    assert first == second


def test_a_runs_tables_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For its page, its data and the leaderboard together: intervals take most of the time."""
    made = {name: Counted(getattr(summary, name)) for name in ("headline", "by_context")}
    for name, counted in made.items():
        monkeypatch.setattr(summary, name, counted)
    publish(tiny_run(tmp_path / "run", 7), tmp_path / "site")

    assert {name: counted.calls for name, counted in made.items()} == {"headline": 1, "by_context": 1}


class Counted:
    """A function that knows how often it was called."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *given: Any, **settings: Any) -> Any:
        """Call it."""
        self.calls += 1
        return self.function(*given, **settings)


@pytest.mark.usefixtures("quick_pages")
def test_files_of_others_survive_everything(site: Path, runs: list[Run]) -> None:
    """Adding, removing, and the folder of the removed run itself."""
    inside = next((site / "runs").glob("run-1-*")) / "notes.txt"
    for path in (site / "notes.txt", site / "drafters" / "notes.txt", inside):
        path.write_text("mine")
    publish(runs[2], site, remove=["run-1"])

    for path in (site / "notes.txt", site / "drafters" / "notes.txt", inside):
        assert path.read_text() == "mine"
    assert not (inside.parent / "index.html").exists()
    assert broken_links(site) == []


@pytest.mark.usefixtures("quick_pages")
def test_only_remove_takes_a_run_out(site: Path, runs: list[Run]) -> None:
    """With the pages that no other run stands behind."""
    other = tiny_run(site.parent / "other", 9, drafters=[DRAFTERS[0], FakeDrafter("odd-one", 4, keep=0.5)])
    publish(other, site)
    assert (site / "drafters" / "odd-one" / "index.html").exists()
    done = publish([], site, remove=["run-9", "run-2"])

    assert [path.name.partition("-2")[0] for path in (site / "runs").iterdir()] != []
    assert {one.run_id for one in read_summaries(SiteLayout(site))} == {"run-1"}
    assert len(done.removed) == 2
    assert not (site / "drafters" / "odd-one").exists()
    assert not list((site / "compare").glob("*"))
    assert broken_links(site) == []


def test_a_name_that_fits_no_run_or_several_is_not_guessed(
    site: Path, runs: list[Run], tmp_path: Path
) -> None:
    before = stamps(site)
    with pytest.raises(UnknownName, match="Did you mean 'run-1'"):
        publish([], site, remove=["run1"])
    assert stamps(site) == before

    again = tiny_run(tmp_path / "again", 5, run_id="run-1")
    publish(again, site)
    with pytest.raises(UsageError, match="the name of 2 published runs"):
        publish([], site, remove=["run-1"])


@pytest.mark.usefixtures("quick_pages")
def test_a_run_that_went_on_takes_the_place_of_its_earlier_state(tmp_path: Path) -> None:
    """In the leaderboard; its earlier page stays, since others may have quoted it."""
    run = tiny_run(tmp_path / "run", 1)
    lines = (run.folder / "conversations.jsonl").read_text().splitlines(keepends=True)
    (run.folder / "conversations.jsonl").write_text("".join(lines[:-3]))
    publish(tiny_run_again(run), tmp_path / "site")
    (run.folder / "conversations.jsonl").write_text("".join(lines))
    publish(tiny_run_again(run), tmp_path / "site")
    board = pd.read_json(tmp_path / "site" / "leaderboard.json")

    assert len(list((tmp_path / "site" / "runs").iterdir())) == 2
    assert board["run"].nunique() == 1
    assert any("earlier state" in text for text in index_of(tmp_path / "site").texts)
    assert not (tmp_path / "site" / "compare").exists()
    assert broken_links(tmp_path / "site") == []


def tiny_run_again(run: Run) -> Run:
    """The run as a new process would load it."""
    return Run(run.folder, run.manifest)


@pytest.mark.usefixtures("quick_pages")
@pytest.mark.parametrize("after", [0, 12, 19, 20, 24, 28])
def test_a_killed_publish_leaves_a_whole_site(
    site: Path, runs: list[Run], whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Whichever file was the last: links lead somewhere, old runs are there, and the next one mends it."""
    count = 0
    replacing = layout.replacing

    def dying(path: Path) -> object:
        nonlocal count
        count += 1
        if count > after:
            raise KeyboardInterrupt
        return replacing(path)

    with monkeypatch.context() as patch:
        patch.setattr(layout, "replacing", dying)
        with pytest.raises(KeyboardInterrupt):
            publish(runs[2], site)

    begun = [path.name for path in (site / "runs").iterdir() if not (path / "summary.json").exists()]
    broken = [
        link for link in broken_links(site) if not link.startswith(tuple(f"runs/{key}/" for key in begun))
    ]
    assert broken == []
    assert not any(key in (site / "index.html").read_text() for key in begun)
    assert {"run-1", "run-2"} <= set(index_of(site).texts)
    publish(runs[2], site)
    assert contents(site) == whole


def test_a_site_without_runs_is_a_page_that_says_so(tmp_path: Path) -> None:
    publish([], tmp_path / "site")

    assert "There is no run here yet." in (tmp_path / "site" / "index.html").read_text()
    assert broken_links(tmp_path / "site") == []


@pytest.mark.usefixtures("quick_pages")
def test_a_run_without_measurements_can_be_published(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", 1)
    (run.folder / "conversations.jsonl").write_text("")
    publish(run, tmp_path / "site")
    summary = read_summary(next((tmp_path / "site" / "runs").glob("*/summary.json")))

    assert summary.num_done == 0
    assert broken_links(tmp_path / "site") == []
