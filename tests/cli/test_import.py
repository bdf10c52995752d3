"""``import``, and data sets given to ``run`` and ``validate``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hyflash_bench.cli.main import app
from hyflash_bench.errors import SpecError
from hyflash_bench.runner.run import data_files
from hyflash_bench.spec.run import RunSpec
from tests.results.importers.files import answer, bench, write


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_files_become_a_run_that_the_other_commands_read(tmp_path):
    plain = write(
        tmp_path, [answer(n, model="m-vanilla", accept_lengths=[1] * 5) for n in range(3)], "v.jsonl"
    )
    other = write(tmp_path, [answer(n) for n in range(3)], "e.jsonl")
    folder = tmp_path / "run"
    done = call(
        "import", plain, other, "--suite", "spec-bench", "--target", "m", "--drafter", "plain",
        "--drafter", "eagle2<b>", "--temperature", "0", "-o", folder,
    )  # fmt: skip
    assert (done.exit_code, done.stdout.strip()) == (0, str(folder))
    assert "wall_time holds prefill" in done.stderr
    shown = json.loads(call("show", folder, "--json").stdout)
    assert [row["acceptance_length"] for row in shown["headline"]] == [1.0, 3.0]
    assert "Imported, not measured here: plain from v.jsonl" in call("show", folder).stderr
    assert call("report", folder, "-o", tmp_path / "page.html").exit_code == 0
    page = (tmp_path / "page.html").read_text()
    assert "imported from" in page
    assert "eagle2<b>" not in page


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--drafter", "a", "--drafter", "b"), "1 files have 2 --drafter labels"),
        (("--format", "vllm"), "Unknown format 'vllm'"),
        (("--before", "none.txt"), "belongs to vllm-metrics"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, words, reason):
    path = write(tmp_path, [bench()], "bench.json")
    done = call("import", path, "-o", tmp_path / "run", *words)
    assert done.exit_code == 2
    assert reason in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_file_that_is_not_there_is_told(tmp_path):
    done = call("import", tmp_path / "none.json", "-o", tmp_path / "run")
    assert done.exit_code == 1
    assert "none.json cannot be read" in done.stderr


def test_validate_takes_a_data_set(tmp_path):
    path = write(tmp_path, [{"question_id": 1, "turns": ["Why?"]}, {"turns": 3}], "question.jsonl")
    done = call("validate", "mt-bench", "--data", path)
    assert done.exit_code == 1
    assert "line 2: key 'turns' is a number" in " ".join(done.stdout.split())
    done = call("validate", "mt-bench", "--data", path, "--skip-bad-rows")
    assert done.exit_code == 0
    assert "1 of 2 rows are wrong" in done.stderr


def test_a_data_set_belongs_to_one_suite():
    spec = RunSpec.parse({"suites": ["mt-bench"], "data": ["~/x.jsonl", "y"], "skip_bad_rows": True})
    chosen = data_files(spec)
    assert chosen.paths == (Path("~/x.jsonl").expanduser(), Path("y"))
    assert chosen.skip_bad_rows
    assert RunSpec.parse(spec.to_mapping()) == spec
    with pytest.raises(SpecError, match="data needs exactly one suite"):
        RunSpec.parse({"suites": ["mt-bench", "quick"], "data": ["x.jsonl"]})
