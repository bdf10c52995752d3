"""Claims on the page: shown where the run has the drafters, every one of them, and as text only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hyflash_bench.errors import SpecError
from hyflash_bench.report.claims import claims_of, claims_table, readable, tally
from hyflash_bench.report.page import render
from hyflash_bench.results.reader import Run, load_run
from tests.results.factory import DRAFTERS, make_run

FULL, HYFLASH = DRAFTERS[2], replace(DRAFTERS[3], label="hyflash")
HOSTILE = "</script><img src=x onerror=alert(1)>"
CLAIMS = f"""
title: Made up
claims:
  - id: better
    statement: "It is better. {HOSTILE}"
    source: paper
    metric: acceptance_length
    drafter: hyflash
    against: full-context
    relation: higher
    strata: {{suites: [longctx]}}
  - id: small
    statement: It is small.
    source: control
    metric: drafter_bytes
    drafter: hyflash
    against: full-context
    relation: at-most
    threshold: 2
    strata: {{suites: [longctx], contexts: [8192]}}
  - id: absent
    statement: It beats one that did not run.
    source: control
    metric: acceptance_length
    drafter: hyflash
    against: "/home/ada/mine.py:Mine"
    relation: higher
    strata: {{suites: [longctx]}}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load_run(make_run(tmp_path_factory.mktemp("claims") / "run", [FULL, HYFLASH], num_per_group=5))


@pytest.fixture
def suites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of suites with claims of its own."""
    (tmp_path / "claims.yaml").write_text(CLAIMS)
    monkeypatch.setenv("HYFLASH_BENCH_SUITES_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("few_sections")
def test_every_claim_stands_on_the_page_as_text(tmp_path: Path, suites: Path) -> None:
    del suites
    # Too small for intervals, which take most of the time.
    page = render(load_run(make_run(tmp_path / "small", [FULL, HYFLASH], num_per_group=2)))
    assert "Claims and controls: 1 reproduced, 0 not reproduced, 1 inconclusive, 1 not tested" in page
    assert "It beats one that did not run." in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert HOSTILE not in page
    assert "/home/ada" not in page


def test_numbers_are_in_the_units_of_the_metric(run: Run, suites: Path) -> None:
    del suites
    frame = claims_of(run)
    assert frame is not None
    better, small, absent = readable(frame).to_dict("records")
    assert better["value"] == f"{frame['value'].iloc[0]:.2f}"
    assert small["value"].endswith("MiB")
    assert absent["ratio"] == absent["value"] == "\N{EN DASH}"
    table = claims_table(frame, "All")
    assert table.headings[0].text == "statement"
    shown = {heading.text: cell for heading, cell in zip(table.headings, table.rows[0], strict=True)}
    assert " to " in shown["ratio"].interval
    assert tally(frame).startswith("2 reproduced")


def test_a_run_without_the_drafters_has_no_claims_section(small: Run, small_page: str) -> None:
    assert claims_of(small) is None
    assert "-claims" not in small_page


def test_a_folder_of_suites_without_claims_is_no_error(run: Run, suites: Path) -> None:
    (suites / "claims.yaml").unlink()
    assert claims_of(run) is None


def test_a_damaged_claim_file_is_named(run: Run, suites: Path) -> None:
    (suites / "claims.yaml").write_text("claims: [")
    with pytest.raises(SpecError, match=r"claims\.yaml is not valid YAML"):
        claims_of(run)
