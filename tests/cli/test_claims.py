"""``claims``: verdicts on stored runs, and the run that they need."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hyflash_bench.cli.main import app
from hyflash_bench.runner import run as runner
from hyflash_bench.spec.run import RunSpec
from tests.results.factory import DRAFTERS, make_run

CLAIMS = """
title: Made up
claims:
  - id: better
    statement: It accepts more than full-context attention.
    source: paper
    metric: acceptance_length
    drafter: hyflash:window=256
    against: full-context
    relation: higher
    strata: {suites: [longctx]}
  - id: less-kv
    statement: It holds far less.
    source: control
    metric: drafter_kv_bytes
    drafter: prompt-lookup
    against: full-context
    relation: at-most
    threshold: 0.1
    strata: {suites: [longctx], contexts: [8192]}
  - id: absent
    statement: An absent drafter is better.
    source: control
    metric: acceptance_length
    drafter: nobody
    against: full-context
    relation: higher
    strata: {suites: [multiturn]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(CLAIMS)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("claims") / "a-run", DRAFTERS, num_per_group=5)


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["claims", *(str(word) for word in words)])


def test_every_claim_has_a_row_with_its_verdict(folder: Path, file: Path) -> None:
    done = call(folder, "--file", file)
    assert done.exit_code == 0, done.output
    for words in ("It accepts more", "reproduced", "not tested", "nobody: not run", "above 1"):
        assert words in done.stdout
    assert "2 reproduced, 0 not reproduced, 0 inconclusive, 1 not tested." in done.stderr
    assert "claims --run measures them" in done.stderr


def test_json_is_one_document_with_every_column(folder: Path, file: Path, tmp_path: Path) -> None:
    document = json.loads(call(folder, "--file", file, "--json").stdout)
    rows = {row["claim"]: row for row in document["claims"]}
    assert rows["better"]["ratio_low"] > 1
    assert rows["absent"]["ratio"] is None
    assert {row["run"] for row in document["claims"]} == {"20261129-1200-demo"}

    output = tmp_path / "new" / "verdicts.json"
    done = call(folder, "--file", file, "-o", output)
    assert done.stdout == f"{output}\n"
    assert json.loads(output.read_text()) == document


def test_claims_of_several_files_make_one_table(folder: Path, file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(CLAIMS.replace("Made up", "More").replace("- id: ", "- id: more-"))
    document = json.loads(call(folder, "--file", file, "--file", other, "--json").stdout)
    assert document["title"] == "Made up; More"
    assert [row["claim"] for row in document["claims"]][2:4] == ["absent", "more-better"]
    twice = call(folder, "--file", file, "--file", file)
    assert twice.exit_code == 2
    assert "Claim better is in" in twice.stderr


def test_runs_are_judged_one_by_one(folder: Path, file: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path / "b", DRAFTERS[:2], num_per_group=2, run_id="other")
    output = tmp_path / "verdicts.csv"
    done = call(folder, other, "--file", file, "-o", output)
    assert done.exit_code == 0, done.output
    assert len(output.read_text().splitlines()) == 1 + 2 * 3


def test_the_shipped_claims_are_the_default(folder: Path) -> None:
    document = json.loads(call(folder, "--json").stdout)
    assert {row["verdict"] for row in document["claims"]} == {"not tested"}
    assert {row["source"] for row in document["claims"]} == {"paper", "this project's control"}
    assert document["title"] == "The HyFlash paper's claims; Checks of where a gain comes from"
    assert all(row["reason"] for row in document["claims"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "No run was given"),
        (("a-run", "--run"), "--run measures what the claims need"),
        (("a-run", "--limit", "2", "--context", "512"), "--context, --limit only means something with --run"),
        (("--dry-run",), "--dry-run only means something with --run"),
        (("nowhere",), "Unknown run 'nowhere'"),
        (("a-run", "-o", "x.html"), "Unknown format of verdicts '.html'"),
        (("a-run", "--file", "nothing.yaml"), "No file nothing.yaml"),
    ],
)
def test_requests_that_make_no_sense(words: tuple[str, ...], said: str) -> None:
    done = call(*words)
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_wrong_file_is_named_before_anything_runs(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(CLAIMS.replace("metric: acceptance_length", "metrik: acceptance_length", 1))
    done = call("--run", "--file", path)
    assert done.exit_code == 2
    assert "mine.yaml" in done.stderr
    assert "unknown key 'claims.0.metrik'" in done.stderr


Measure = Callable[..., tuple[list[dict[str, Any]], Result]]


@pytest.fixture
def measure(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> Measure:
    """Call ``claims --run`` with a double of the runner; gives what it was asked and the result."""
    monkeypatch.setenv("HYFLASH_BENCH_BASELINES_DIR", str(tmp_path))
    for name in ("hyflash-l1", "full-context-l1"):
        shipped = tmp_path / "smollm2-135m" / name
        shipped.mkdir(parents=True)
        (shipped / "config.json").write_text("{}")

    def measured(*words: str, **outcome: Any) -> tuple[list[dict[str, Any]], Result]:
        asked: list[dict[str, Any]] = []

        def run(spec: RunSpec, **others: Any) -> runner.Outcome:
            asked.append({"spec": spec, **others})
            path = make_run(tmp_path / "the-run", DRAFTERS, num_per_group=2)
            return runner.Outcome(path, **{"num_cells": {"ok": 1}, **outcome})

        monkeypatch.setattr(runner, "run", run)
        words = ("--file", str(file), "--output-path", str(tmp_path / "the-run"), *words)
        return asked, call("--run", *words)

    return measured


def test_what_the_claims_need_is_run_first(measure: Measure, tmp_path: Path) -> None:
    asked, done = measure("--limit", "3", "--num-threads", "2", "--fresh")
    assert done.exit_code == 0, done.output
    (request,) = asked
    spec = request["spec"]
    assert spec.suites == ("longctx", "multiturn")
    assert [drafter.label for drafter in spec.drafters] == [
        *("hyflash:window=256", "full-context", "prompt-lookup", "nobody"),
    ]
    assert (spec.mode, spec.temperature, spec.limit, spec.num_threads) == ("replay", 0.0, 3, 2)
    assert (request["output_path"], request["fresh"]) == (tmp_path / "the-run", True)
    assert request["command"][:3] == ("hyflash-bench", "claims", "--run")
    assert "It accepts more" in done.stdout


def test_context_lengths_are_laid_on_the_suites_that_have_them(measure: Measure) -> None:
    asked, done = measure("--context", "512", "--contexts", "2048", "--fresh")
    assert done.exit_code == 0, done.output
    specs = [(request["spec"].suites, request["spec"].contexts, request["fresh"]) for request in asked]
    assert specs == [(("longctx",), (512, 2048), True), (("multiturn",), None, False)]
    assert asked[0]["output_path"] == asked[1]["output_path"]


@pytest.mark.parametrize(
    ("outcome", "code", "tested"),
    [({"num_cells": {"ok": 2, "error": 1}}, 1, True), ({"interrupted": True}, 130, False)],
)
def test_the_exit_code_is_that_of_the_run(
    measure: Measure, outcome: dict[str, Any], code: int, tested: bool
) -> None:
    _, done = measure(**outcome)
    assert done.exit_code == code
    assert ("It accepts more" in done.stdout) is tested


def test_a_checkpoint_that_is_not_shipped_is_left_out_aloud(measure: Measure, file: Path) -> None:
    file.write_text(CLAIMS.replace("drafter: nobody", "drafter: window:checkpoint=never-trained"))
    asked, done = measure()
    assert done.exit_code == 0, done.output
    assert len(asked[0]["spec"].drafters) == 3
    assert "window:checkpoint=never-trained is left out: no such checkpoint is shipped" in done.stderr
    assert "not tested" in done.stdout


def test_dry_run_prints_yaml_for_run(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    class Plan:
        def __init__(self, spec: RunSpec) -> None:
            self.spec = spec

        def describe(self) -> dict[str, Any]:
            """As the runner's own."""
            return {"num_cells": 4, "resolved": self.spec.to_mapping()}

    monkeypatch.setattr(runner, "preview", lambda spec, **_: Plan(spec))
    asked, done = measure("--dry-run")
    assert done.exit_code == 0, done.output
    assert not asked
    assert "mode: replay" in done.stdout
