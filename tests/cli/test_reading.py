"""Commands that read: show, report, export, ls, validate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hyflash_bench.cli.main import app
from hyflash_bench.results.schema import TABLES
from tests.results.factory import DRAFTERS, FAILING, make_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run with every kind of failure."""
    return make_run(tmp_path_factory.mktemp("reading") / "a-run", DRAFTERS + FAILING, num_per_group=2)


def _call(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_show_prints_headline_context_and_failures(folder: Path) -> None:
    """Every drafter has a row, also those without a number."""
    done = _call("show", folder)

    assert done.exit_code == 0, done.output
    for title in ("Headline", "By context length", "Failures"):
        assert title in done.stdout
    for drafter in (*DRAFTERS, *FAILING):
        assert drafter.label in done.stdout


def test_show_as_json_is_one_document_with_everything(folder: Path) -> None:
    """Also the columns that a terminal has no room for; null is not measured."""
    document = json.loads(_call("show", folder, "--json").stdout)

    assert set(document) == {"run_id", "headline", "by_context", "failures"}
    row = next(row for row in document["headline"] if row["drafter"] == "too-big")
    assert (row["status"], row["acceptance_length"]) == ("oom", None)
    assert "draft_share" in row


def test_a_mistyped_run_gets_the_nearest_name_offered() -> None:
    """Names are those of results/."""
    make_run(Path("results") / "monday", DRAFTERS[:1], num_per_group=1)
    done = _call("show", "mnday")

    assert done.exit_code == 2
    assert done.stderr.startswith("Error: Unknown run 'mnday'. Did you mean 'monday'?")
    assert done.stdout == ""


def test_report_writes_the_file_and_prints_its_path(folder: Path, tmp_path: Path) -> None:
    """The title can be chosen."""
    done = _call("report", folder, "-o", tmp_path / "new" / "r.html", "--title", "A & B")

    assert done.exit_code == 0, done.output
    assert done.stdout == f"{tmp_path / 'new' / 'r.html'}\n"
    assert "<title>A &amp; B</title>" in (tmp_path / "new" / "r.html").read_text()


def test_report_to_stdout(folder: Path) -> None:
    """A dash is stdout, and nothing else is on it."""
    done = _call("report", folder, "-o", "-")

    assert done.stdout.startswith("<!doctype html>")
    assert done.stdout.rstrip().endswith("</html>")


@pytest.mark.parametrize(("name", "suffix"), [("csv", "csv"), ("parquet", "parquet"), ("markdown", "md")])
def test_export_writes_every_table_and_prints_the_paths(
    folder: Path, tmp_path: Path, name: str, suffix: str
) -> None:
    """One file a table."""
    done = _call("export", folder, "--format", name, "--to", tmp_path)

    assert done.exit_code == 0, done.output
    paths = [Path(line) for line in done.stdout.splitlines()]
    assert {f"{table}.{suffix}" for table in (*TABLES, "headline", "definitions")} <= {p.name for p in paths}
    assert all(path.is_file() for path in paths)


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("drafters", "prompt-lookup"),
        ("metrics", "acceptance_length"),
        ("targets", "smollm2-135m"),
        ("suites", "quick"),
    ],
)
@pytest.mark.parametrize("verbose", [(), ("-v",)])
def test_lists_name_what_can_be_asked_for(what: str, name: str, verbose: tuple[str, ...]) -> None:
    """As a table and as JSON."""
    table = _call("ls", what, *verbose)
    rows = json.loads(_call("ls", what, *verbose, "--json").stdout)

    assert table.exit_code == 0, table.output
    assert name in table.stdout
    assert name in {row["name"] for row in rows}


def test_verbose_drafters_show_options_with_defaults() -> None:
    """One row an option."""
    rows = json.loads(_call("ls", "drafters", "-v", "--json").stdout)
    option = next(row for row in rows if (row["name"], row["option"]) == ("prompt-lookup", "max_ngram"))

    assert option["default"] == 3
    assert option["description"]


def test_runs_are_listed_with_those_that_cannot_be_read() -> None:
    """A damaged run does not hide the others."""
    make_run(Path("results") / "good", DRAFTERS[:1], num_per_group=1)
    (Path("results") / "bad").mkdir()
    (Path("results") / "bad" / "manifest.json").write_text("{")
    rows = {row["run"]: row for row in json.loads(_call("ls", "runs", "--json").stdout)}

    assert rows["results/good"]["problem"] is None
    assert rows["results/good"]["suites"] == ["quick", "longctx"]
    assert rows["results/bad"]["problem"]
    assert _call("ls", "runs", "-v").exit_code == 0


def test_validate_tells_errors_by_the_exit_code(tmp_path: Path) -> None:
    """With what is wrong and where, as a table and as JSON."""
    suite = tmp_path / "mine.yaml"
    suite.write_text("name: mine\n")
    table = _call("validate", suite)
    findings = json.loads(_call("validate", suite, "--json").stdout)

    assert table.exit_code == 1
    assert "missing" in table.stdout
    assert [finding["level"] for finding in findings] == ["error"]


@pytest.mark.real
def test_validate_builds_every_conversation_for_a_target() -> None:
    """Exact prompt lengths are part of what quick promises."""
    result = _call("validate", "quick", "--target", "smollm2-135m", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == []


@pytest.mark.parametrize(
    "arguments", [["show", ""], ["export", "RUN", "--to", ""], ["run", "--output-path", ""]]
)
def test_an_empty_name_is_not_this_folder(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert "An empty name was given" in done.output
