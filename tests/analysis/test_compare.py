"""Comparisons: like with like, paired, and clear about what they are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hyflash_bench.analysis.compare import compare
from hyflash_bench.errors import UnknownName, UsageError
from hyflash_bench.results import Run, load_run
from tests.results.factory import DRAFTERS, FAILING, make_run, manifest_of, records


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load_run(make_run(tmp_path_factory.mktemp("results") / "demo", [*DRAFTERS, FAILING[1]]))


def other(folder: Path, *, cells: dict[str, Any] | None = None, **changes: Any) -> Run:
    """The same work again, with some fields of every cell or of the manifest changed."""
    manifest, _, _ = records(DRAFTERS)
    changed = [cell.model_copy(update=cells or {}) for cell in manifest.cells]
    make_run(folder, DRAFTERS, seed=1, **{"run_id": "other", "cells": changed, **changes})
    return load_run(folder)


def uncapped(frame: pd.DataFrame, **keys: str) -> pd.Series:
    frame = frame[frame["memory_cap_bytes"].isna()]
    for name, value in keys.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1
    return frame.iloc[0]


def test_drafters_against_one_of_them(run: Run) -> None:
    table = compare(run, reference="full-context")
    row = uncapped(table, drafter="hyflash:window=256", suite="longctx")
    assert row["reference"] == "full-context"
    assert row["ratio"] == pytest.approx(row["value"] / row["reference_value"])
    assert row["verdict"] == "higher"
    assert row["num_conversations"] == 18
    assert "full-context" not in set(table["drafter"])


def test_plain_decoding_is_the_default_reference(run: Run) -> None:
    table = compare(run, metric="decode_tok_per_s")
    assert set(table["reference"]) == {"autoregressive"}
    assert uncapped(table, drafter="hyflash:window=256", suite="longctx")["verdict"] == "higher"


def test_failures_stay_in_the_table_with_their_reason(run: Run) -> None:
    row = uncapped(compare(run), drafter="too-big", suite="longctx")
    assert row["status"] == row["reason"] == "oom"
    assert pd.isna(row["ratio"])
    assert pd.isna(row["verdict"])


def test_a_failed_reference_is_named_as_the_reason(run: Run) -> None:
    table = compare(run, reference="too-big")
    row = uncapped(table, drafter="prompt-lookup", suite="longctx")
    assert row["reason"] == "the reference is oom"


def test_a_run_against_itself_does_not_differ(run: Run) -> None:
    table = compare(run, load_run(run.folder))
    sound = table[table["status"] == "ok"]
    assert set(sound["verdict"]) == {"no clear difference"}
    assert sound["ratio"].eq(1.0).all()


def test_paths_do_as_well_as_runs(run: Run) -> None:
    pd.testing.assert_frame_equal(compare(run.folder), compare(str(run.folder)))


def test_two_runs_are_compared_drafter_by_drafter(run: Run, tmp_path: Path) -> None:
    table = compare(run, other(tmp_path / "b"))
    assert set(table["drafter"]) == {drafter.label for drafter in DRAFTERS}
    assert uncapped(table, drafter="prompt-lookup", suite="longctx")["reference"] == (
        "prompt-lookup in 20261129-1200-demo"
    )


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"suite_hash": "changed"}, "suite_hash of suite longctx .greedy. is hash-longctx and changed"),
        ({"target_id": "target-2"}, "target_id of suite .* is target-0001 and target-2"),
        ({"draft_budget": 4}, "draft_budget of suite .* is 16 and 4"),
        ({"max_new_tokens": 7}, "max_new_tokens of suite .* is 48 and 7"),
    ],
)
def test_unlike_runs_are_refused_by_name(run: Run, tmp_path: Path, cells: dict[str, Any], said: str) -> None:
    unlike = other(tmp_path / "b", cells=cells)
    with pytest.raises(UsageError, match=said):
        compare(run, unlike)
    table = compare(run, unlike, allow_different=True)
    assert table["differences"].notna().all()
    assert table["ratio"].notna().any()


def test_times_of_two_machines_are_refused_and_acceptance_is_not(run: Run, tmp_path: Path) -> None:
    machine = {**manifest_of([]).environment, "cpu": "faster"}
    elsewhere = other(tmp_path / "b", environment=machine)
    assert len(compare(run, elsewhere))
    with pytest.raises(UsageError, match=r"environment\.cpu was 'made up', is 'faster'"):
        compare(run, elsewhere, metric="decode_tok_per_s")


def test_runs_without_common_work_are_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="share no work"):
        compare(run, other(tmp_path / "b", cells={"suite": "another"}))


def test_wrong_names_are_answered_with_the_right_ones(run: Run) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'full-context'"):
        compare(run, reference="full-contxt")
    with pytest.raises(UnknownName, match="metric"):
        compare(run, metric="speed")
    with pytest.raises(UsageError, match="no interval to compare by"):
        compare(run, metric="drafter_bytes")


def test_a_run_without_plain_decoding_asks_for_a_reference(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "run", DRAFTERS[1:3], num_per_group=1))
    with pytest.raises(UsageError, match="Name a reference: full-context, prompt-lookup"):
        compare(run)
    assert len(compare(run, reference="prompt-lookup"))
