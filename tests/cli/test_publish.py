"""``publish``, ``export`` and ``report --images``: what people type, and what they are told."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hyflash_bench.cli.main import app
from hyflash_bench.results.schema import TABLES
from tests.results.factory import DRAFTERS, make_run

ANALYSES = (
    *("headline", "by_context", "by_kind", "by_category", "by_turn", "positions", "latency", "capacity"),
    *("pareto", "failures"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run."""
    return make_run(tmp_path_factory.mktemp("publishing") / "a-run", DRAFTERS[:2], num_per_group=1)


@pytest.fixture
def quick_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run pages without their content."""
    from hyflash_bench.report.site import publishing

    monkeypatch.setattr(publishing, "render", lambda run, **_: f"<title>{run.run_id}</title>\n")


def _call(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.usefixtures("quick_pages")
def test_publish_prints_the_first_page_and_tells_what_it_did(folder: Path, tmp_path: Path) -> None:
    """The path alone on stdout; a second time nothing is new; remove takes it out."""
    first = _call("publish", folder, "--to", tmp_path / "site", "--title", "Ours")
    again = _call("publish", folder, "--to", tmp_path / "site")
    removed = _call("publish", "--to", tmp_path / "site", "--remove", "20261129-1200-demo")

    for done in (first, again, removed):
        assert done.exit_code == 0, done.output
        assert done.stdout == f"{tmp_path / 'site' / 'index.html'}\n"
    assert "added 20261129-1200-demo-" in first.stderr
    assert "unchanged 20261129-1200-demo-" in again.stderr
    assert "removed 20261129-1200-demo-" in removed.stderr
    assert json.loads((tmp_path / "site" / "site.json").read_text())["title"] == "Ours"


def test_publish_without_a_run_and_without_a_site_asks_for_one(tmp_path: Path) -> None:
    done = _call("publish", "--to", tmp_path / "site")

    assert done.exit_code == 2
    assert "Give at least one run folder" in done.stderr
    assert not (tmp_path / "site").exists()


def test_publish_into_a_foreign_folder_is_one_message(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    done = _call("publish", folder, "--to", tmp_path)

    assert done.exit_code == 2
    assert "no site made by publish (thesis.tex)" in done.stderr
    assert "Traceback" not in done.stderr


def test_export_writes_chosen_tables_in_chosen_formats(folder: Path, tmp_path: Path) -> None:
    """With what their columns mean beside them."""
    words = ["--table", "headline", "--table", "turns", "--format", "latex", "--format", "json"]
    done = _call("export", folder, *words, "--to", tmp_path / "out")

    assert done.exit_code == 0, done.output
    names = {f"{name}.{kind}" for name in ("headline", "turns", "definitions") for kind in ("tex", "json")}
    assert {Path(line).name for line in done.stdout.splitlines()} == names
    assert {path.name for path in (tmp_path / "out").iterdir()} == names


def test_export_writes_every_table_by_default(folder: Path, tmp_path: Path) -> None:
    """Stored ones and those made from them; every column of them is explained."""
    done = _call("export", folder, "--to", tmp_path)
    names = [path.stem for path in tmp_path.iterdir()]

    assert done.exit_code == 0, done.output
    assert {*ANALYSES, *TABLES, "definitions"} <= set(names)
    with (tmp_path / "definitions.csv").open(encoding="utf-8") as file:
        explained = [(row["table"], row["column"]) for row in csv.DictReader(file)]
    for name in names:
        with (tmp_path / f"{name}.csv").open(encoding="utf-8") as file:
            columns = next(csv.reader(file))
        assert name == "definitions" or [column for table, column in explained if table == name] == columns


def test_export_writes_chosen_columns_in_their_order(folder: Path, tmp_path: Path) -> None:
    wanted = ["--column", "speedup", "--column", "drafter"]
    done = _call("export", folder, "--table", "headline", *wanted, "--to", tmp_path)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "headline.csv").read_text().splitlines()[0] == "speedup,drafter"

    for words, told in (
        (["--table", "turns", "--column", "drafer"], "Did you mean 'drafter'"),
        (["--column", "drafter"], "add --table NAME"),
    ):
        refused = _call("export", folder, *words, "--to", tmp_path / "none")
        assert refused.exit_code == 2
        assert told in refused.stderr
        assert not (tmp_path / "none").exists()


def test_the_help_names_every_table() -> None:
    text = _call("export", "--help").stdout

    assert [name for name in (*ANALYSES, *TABLES) if name not in text] == []


def test_export_of_an_unknown_table_offers_the_nearest(folder: Path, tmp_path: Path) -> None:
    done = _call("export", folder, "--table", "headlines", "--to", tmp_path / "out")

    assert done.exit_code == 2
    assert "Unknown table 'headlines'. Did you mean 'headline'?" in done.stderr
    assert not (tmp_path / "out").exists()


def test_report_draws_images_beside_the_page(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's path stays alone on stdout."""
    from hyflash_bench.report import images, page

    monkeypatch.setattr(images, "write_images", lambda _runs, to, **_: [to / "speed.svg"])
    monkeypatch.setattr(page, "render", lambda *_, **__: "<title>page</title>")
    done = _call("report", folder, "-o", tmp_path / "r.html", "--images", tmp_path / "figures")

    assert done.exit_code == 0, done.output
    assert done.stdout == f"{tmp_path / 'r.html'}\n"
    assert str(tmp_path / "figures" / "speed.svg") in done.stderr
