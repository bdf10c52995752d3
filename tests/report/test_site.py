"""The published site: it grows, loses nothing, holds together, and names nobody."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pandas as pd
import pytest

from hyflash_bench.analysis import summary
from hyflash_bench.analysis.summary import headline
from hyflash_bench.errors import DataError, SchemaTooNew, UnknownName, UsageError
from hyflash_bench.report import view
from hyflash_bench.report.site import comparisons, layout, publish, publishing
from hyflash_bench.report.site.feeds import PublishedRun
from hyflash_bench.report.site.layout import SiteLayout
from hyflash_bench.report.site.summary import read_summaries, read_summary
from hyflash_bench.results.export import content_hash
from hyflash_bench.results.reader import Run
from hyflash_bench.results.schema import TABLES
from tests.report.sites import PageParser, broken_links, figures_of, first_sections, stamps, tiny_run
from tests.results.factory import DRAFTERS, FakeDrafter

HOSTILE = "</script><script>alert(1)</script><img src=x onerror='alert(\"2\")'>../../&amp;\u202e"
ATOM = "{http://www.w3.org/2005/Atom}"


@pytest.fixture(scope="module", autouse=True)
def _made_once() -> Iterator[None]:
    """What only depends on a run's content is computed once for all tests here."""
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


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Three runs of the same target on the same suites, on three days."""
    folder = tmp_path_factory.mktemp("runs")
    return [tiny_run(folder / f"run-{day}", day) for day in (1, 2, 3)]


@pytest.fixture(scope="module")
def published(runs: list[Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of the first two; never changed."""
    folder = tmp_path_factory.mktemp("published") / "site"
    publish(runs[:2], folder, title="Ours & theirs")
    return folder


@pytest.fixture(scope="module")
def whole(published: Path, runs: list[Run], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What the site is with the third run, added without a mishap."""
    folder = shutil.copytree(published, tmp_path_factory.mktemp("whole") / "site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publishing, "render", _page_without_content)
        publish(runs[2], folder)
    return _contents(folder)


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


def _contents(site: Path) -> dict[str, bytes]:
    return {name: content for name, (content, _, _) in stamps(site).items()}


def _index(site: Path) -> PageParser:
    return PageParser((site / "index.html").read_text(encoding="utf-8"))


def test_every_link_leads_to_a_file_of_the_site(published: Path) -> None:
    """Also scripts and style sheets; nothing has an address outside."""
    pages = list(published.rglob("*.html"))

    assert len(pages) > 8
    assert broken_links(published) == []


def test_the_site_is_ready_for_any_static_host(published: Path) -> None:
    """What Pages hosts look for is there, and plotly.js once."""
    assert (published / ".nojekyll").exists()
    assert (published / "404.html").exists()
    assert len(list(published.rglob("plotly*.js"))) == 1
    for page in published.rglob("*.html"):
        assert "https://" not in re.sub(r"<script.*?</script>", "", page.read_text(), flags=re.DOTALL)


def test_adding_a_run_writes_nothing_of_those_before(site: Path, runs: list[Run]) -> None:
    """Their pages and data keep their very files; shared files too."""
    before = stamps(site / "runs"), stamps(site / "assets")
    done = publish(runs[2], site)
    after = stamps(site / "runs")

    assert done.added == [path.name for path in (site / "runs").glob("run-3-*")]
    assert before[0].items() < after.items()
    assert stamps(site / "assets") == before[1]
    assert broken_links(site) == []
    assert "run-3" in _index(site).texts


def test_publishing_the_same_again_writes_nothing(site: Path, runs: list[Run]) -> None:
    """Whichever of the runs is given, in any order."""
    before = stamps(site)
    done = publish([runs[1], runs[0]], site)

    assert (done.added, done.written) == ([], [])
    assert len(done.unchanged) == 2
    assert stamps(site) == before


def test_run_folders_are_needed_once(site: Path) -> None:
    """The index is made from the site alone, also after another version made it otherwise."""
    before = _contents(site)
    (site / "index.html").write_text("lost")
    shutil.rmtree(site / "drafters")
    publish([], site)

    assert _contents(site) == before


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
    assert any("earlier state" in text for text in _index(tmp_path / "site").texts)
    assert not (tmp_path / "site" / "compare").exists()
    assert broken_links(tmp_path / "site") == []


def tiny_run_again(run: Run) -> Run:
    """The run as a new process would load it."""
    return Run(run.folder, run.manifest)


def test_hostile_names_stay_text_and_never_leave_the_folder(tmp_path: Path) -> None:
    """Run, drafter, target, machine and suite choose names; none becomes an element or a path."""
    drafters = [DRAFTERS[0], FakeDrafter(HOSTILE, 8, keep=0.6, draft_s=0.001)]
    suites = [{"name": "quick", "title": HOSTILE, "licence": HOSTILE, "version": 1, "suite_hash": HOSTILE}]
    hostile = {
        "drafters": drafters,
        "run_id": HOSTILE,
        "target": {"name": HOSTILE},
        "environment": {"cpu": HOSTILE},
        "suites": suites,
    }
    for day in (1, 2):
        publish(tiny_run(tmp_path / f"run-{day}", day, **hostile), tmp_path / "site", title=HOSTILE)

    assert {path.name for path in tmp_path.iterdir()} == {"run-1", "run-2", "site"}
    for path in (tmp_path / "site").rglob("*"):
        assert re.fullmatch(r"[A-Za-z0-9._-]+", path.name)
    for page in (tmp_path / "site").rglob("*.html"):
        parsed = PageParser(page.read_text(encoding="utf-8"))
        assert not parsed.values("onerror")
        assert "img" not in {tag for tag, _ in parsed.tags}
        assert "\u202e" not in page.read_text(encoding="utf-8")
    assert broken_links(tmp_path / "site") == []
    feed = ET.parse(tmp_path / "site" / "feed.xml").getroot()
    assert len(feed.findall(f"{ATOM}entry")) == 2


PRIVATE = {
    "drafters": [DRAFTERS[0], FakeDrafter("/home/ada/own.py:Mine", 8, keep=0.6, draft_s=0.001)],
    "command": ["hyflash-bench", "run", "--output-path", "/home/ada/out"],
    "target": {"name": "/home/ada/models/tiny", "path": "/home/ada/models"},
    "environment": {"hostname": "adas-laptop", "user": "ada", "cwd": "/home/ada", "cpu": "fast"},
    "resolved": {"target": "/home/ada/models/tiny"},
}


def _everything(site: Path) -> str:
    """Texts of all files; tables as CSV."""
    kinds = {".html", ".json", ".csv", ".xml"}
    texts = [path.read_text(encoding="utf-8") for path in site.rglob("*") if path.suffix in kinds]
    tables = [pd.read_parquet(path).to_csv() for path in site.rglob("*.parquet")]
    return "\n".join([*texts, *tables])


def test_no_person_machine_or_folder_is_named_unless_asked_for(tmp_path: Path) -> None:
    """In pages, summaries, feeds and tables alike."""
    run = tiny_run(tmp_path / "run", 1, **PRIVATE)
    publish(run, tmp_path / "site")
    text = _everything(tmp_path / "site")

    assert not re.search(r"\bada\b|adas-laptop", text)
    assert str(tmp_path) not in text
    assert "own.py:Mine" in text


@pytest.mark.usefixtures("quick_pages")
def test_asked_for_it_tells_all_in_the_place_of_the_other(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", 1, **PRIVATE)
    publish(run, tmp_path / "site")
    publish(run, tmp_path / "site", include_host=True)

    assert "adas-laptop" in _everything(tmp_path / "site")
    assert len(list((tmp_path / "site" / "runs").iterdir())) == 1


def test_tables_of_a_run_equal_those_it_has(published: Path, runs: list[Run]) -> None:
    """In every format; a published run can be analysed like a stored one."""
    folder = next((published / "runs").glob("run-1-*")) / "data"
    run = PublishedRun.load(folder)

    for name in TABLES:
        pd.testing.assert_frame_equal(run.table(name), runs[0].table(name))
    wanted = headline(runs[0])
    pd.testing.assert_frame_equal(headline(run), wanted)
    read = {
        "csv": pd.read_csv(folder / "headline.csv"),
        "json": pd.DataFrame(json.loads((folder / "headline.json").read_text())),
        "parquet": pd.read_parquet(folder / "headline.parquet"),
    }
    for name in ("acceptance_length", "decode_tok_per_s", "speedup", "drafter_bytes"):
        for frame in read.values():
            assert frame[name].astype("float64").tolist() == pytest.approx(
                wanted[name].astype("float64").tolist(), nan_ok=True, rel=1e-12
            )


def test_definitions_explain_the_columns(published: Path) -> None:
    definitions = pd.read_csv(next((published / "runs").glob("run-1-*")) / "data" / "definitions.csv")
    row = definitions[
        (definitions["table"] == "headline") & (definitions["column"] == "acceptance_length")
    ].iloc[0]

    assert (row["unit"], row["formula"]) == ("tokens per step", "sum of committed / sum of steps")


def test_the_leaderboard_is_one_in_every_format_and_on_the_page(published: Path, runs: list[Run]) -> None:
    """A row for everything that was measured; nothing is hidden."""
    parquet = pd.read_parquet(published / "leaderboard.parquet")
    read = pd.DataFrame(json.loads((published / "leaderboard.json").read_text()))
    csv = pd.read_csv(published / "leaderboard.csv")
    lines = [tag for tag, attrs in _index(published).tags if tag == "th" and attrs.get("scope") == "row"]

    assert len(parquet) == len(lines)
    for frame in (read, csv):
        assert frame["run"].tolist() == parquet["run"].tolist()
        speeds = frame["speedup"].astype("float64").tolist()
        assert speeds == pytest.approx(parquet["speedup"].tolist(), nan_ok=True, rel=1e-12)
    wholes = parquet[parquet["context_length"].isna()]
    assert len(wholes) == sum(len(headline(run)) for run in runs[:2])


def test_what_compares_stands_together_with_the_fastest_first(published: Path) -> None:
    board = pd.read_parquet(published / "leaderboard.parquet")
    keys = ["target_id", "suite_hash", "sampling", "memory_cap_bytes", "context_length"]

    for _, part in board.groupby(keys, dropna=False):
        assert part.index.tolist() == list(range(part.index.min(), part.index.max() + 1))
        speeds = part.loc[part["status"] == "ok", "speedup"].dropna()
        assert speeds.is_monotonic_decreasing


def test_the_feed_names_every_run_newest_first(published: Path) -> None:
    feed = ET.parse(published / "feed.xml").getroot()
    entries = feed.findall(f"{ATOM}entry")
    ids = [entry.findtext(f"{ATOM}id", "") for entry in entries]

    assert feed.findtext(f"{ATOM}title") == "Ours & theirs"
    assert [entry.findtext(f"{ATOM}title", "")[:5] for entry in entries] == ["run-2", "run-1"]
    assert len(set(ids)) == 2
    assert all(text.startswith("urn:uuid:") for text in ids)
    for entry in entries:
        link = entry.find(f"{ATOM}link")
        assert link is not None
        assert (published / link.attrib["href"]).is_file()


def test_a_drafter_has_its_numbers_over_the_dates(published: Path) -> None:
    """A point a run, in one figure only what compares."""
    page = published / "drafters" / "prompt-lookup" / "index.html"
    lines = [trace for figure in figures_of(page).values() for trace in figure["data"]]

    assert lines
    assert all(line["x"] == ["2026-11-01T12:00:00Z", "2026-11-02T12:00:00Z"] for line in lines)


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
    assert {"run-1", "run-2"} <= set(_index(site).texts)
    publish(runs[2], site)
    assert _contents(site) == whole


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


def test_no_json_holds_nan(published: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    for path in published.rglob("*.json"):
        json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
