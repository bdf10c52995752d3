"""The numbers behind a site: tables of a run and of all, and news of runs."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pandas as pd
import pytest

from hyflash_bench.analysis.summary import headline
from hyflash_bench.report.site.feeds import PublishedRun
from hyflash_bench.results.reader import Run
from hyflash_bench.results.schema import TABLES
from tests.report.sites import ATOM, index_of


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
    lines = [tag for tag, attrs in index_of(published).tags if tag == "th" and attrs.get("scope") == "row"]

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


def test_no_json_holds_nan(published: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    for path in published.rglob("*.json"):
        json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
