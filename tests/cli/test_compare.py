"""``compare``: tables, files, refusals, and exit codes that a build can rely on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hyflash_bench.cli.main import app
from tests.results.factory import DRAFTERS, FAILING, make_run, manifest_of


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with one drafter that fails at length; too few conversations for intervals."""
    folder = tmp_path_factory.mktemp("compare") / "old"
    return make_run(folder, [*DRAFTERS, FAILING[1]], num_per_group=2, run_id="old")


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same drafters on other dice."""
    folder = tmp_path_factory.mktemp("compare") / "new"
    return make_run(folder, DRAFTERS, num_per_group=2, seed=1, run_id="new")


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["compare", *(str(word) for word in words)])


def test_every_metric_has_a_table_with_its_unit_and_direction(old: Path, new: Path) -> None:
    done = call(old, new)
    assert done.exit_code == 0, done.output
    for title in (
        "acceptance_length (tokens per step; higher is better)",
        "decode_tok_per_s (tokens per second; higher is better)",
        "drafter_bytes (bytes; lower is better)",
    ):
        assert title in done.stdout
    for drafter in (*DRAFTERS, FAILING[1]):
        assert drafter.label in done.stdout
    assert "Conversations shared, by row: 0 to 6, of up to 6 and of up to 6 in the reference." in done.stderr


def test_drafters_of_one_run(old: Path) -> None:
    done = call(
        f"{old}::full-context", f"{old}::hyflash:window=256", "--metric", "acceptance_length", "--json"
    )
    rows = json.loads(done.stdout)["comparison"]
    assert {(row["drafter"], row["reference"]) for row in rows} == {("hyflash:window=256", "full-context")}
    assert {row["metric"] for row in rows} == {"acceptance_length"}
    assert rows[0]["reason"] == "4 conversations; an interval needs 5"
    assert rows[0]["ratio_low"] is None


@pytest.mark.parametrize("suffix", ["json", "csv", "md"])
def test_a_file_holds_every_row_and_its_path_is_printed(old: Path, tmp_path: Path, suffix: str) -> None:
    output = tmp_path / "new" / f"c.{suffix}"
    done = call(old, "--metric", "drafter_bytes", "-o", output)
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{output}\n"
    text = output.read_text()
    if suffix == "json":
        document = json.loads(text)
        assert len(document["comparison"]) == 4 * len(DRAFTERS)
        assert document["definitions"][0]["unit"] == "bytes"
    else:
        assert len(text.splitlines()) == 4 * len(DRAFTERS) + (2 if suffix == "md" else 1)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["acceptance_length<0.5"], 1, "LOST acceptance_length<0.5: too-big on quick (greedy)"),
        (["acceptance_length.value<1.5"], 1, "FAILED acceptance_length.value<1.5: autoregressive on quick"),
        (["ttft_s<0.5", "acceptance_length>1"], 1, "FAILED acceptance_length>1: "),
        (["energy_j_per_token>1"], 1, "neither side has these numbers anywhere"),
    ],
)
def test_a_build_fails_when_a_condition_holds_or_a_number_is_lost(
    old: Path, tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    broken = make_run(tmp_path / "new", [*DRAFTERS, FAILING[5]], num_per_group=1, seed=2, run_id="broken")
    healthy = make_run(tmp_path / "was", [*DRAFTERS, FAILING[1]], num_per_group=1, seed=1, run_id="healthy")
    lines = (healthy / "conversations.jsonl").read_text().replace('"status": "oom"', '"status": "ok"')
    (healthy / "conversations.jsonl").write_text(lines)
    done = call(healthy, broken, *(part for word in words for part in ("--fail-if", word)))
    assert done.exit_code == code, done.output
    assert said in done.stderr


def test_a_build_passes_when_none_holds(old: Path, new: Path) -> None:
    done = call(
        f"{old}::full-context",
        f"{new}::full-context",
        "--fail-if",
        "acceptance_length<0.5 and drafter_bytes>1",
    )
    assert done.exit_code == 0, done.output
    assert "No condition holds: 3 of 4 rows were judged." in done.stderr


def test_unlike_runs_are_refused_and_compared_under_a_banner(old: Path, tmp_path: Path) -> None:
    target = {**(manifest_of([]).target or {}), "dtype": "float16"}
    other = make_run(tmp_path / "half", DRAFTERS[:2], num_per_group=1, target=target)
    refused = call(old, other)
    assert refused.exit_code == 2
    assert "target.dtype was 'float32', is 'float16'" in refused.stderr
    assert "--allow-different" in refused.stderr
    assert refused.stdout == ""
    done = call(old, other, "--allow-different")
    assert done.exit_code == 0, done.output
    assert "NOT ALIKE: target.dtype was 'float32', is 'float16'." in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Missing argument 'RUN[::DRAFTER]...'"),
        (("nowhere",), "Unknown run 'nowhere'"),
        (("OLD::full-contxt",), "Did you mean 'full-context'"),
        (("OLD", "--metric", "acceptance"), "Unknown metric 'acceptance'. Did you mean 'acceptance_rate'"),
        (("OLD", "--fail-if", "acceptance_length=1"), "is no comparison"),
        (("OLD", "--fail-if", "speed<1"), "Unknown metric 'speed'"),
        (("OLD", "-o", "x.html"), "Unknown format of comparisons '.html'"),
    ],
)
def test_requests_that_make_no_sense(old: Path, words: tuple[str, ...], said: str) -> None:
    done = call(*(word.replace("OLD", str(old)) for word in words))
    assert done.exit_code == 2
    assert said in done.stderr
