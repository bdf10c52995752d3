"""Comparisons: like with like, paired, and clear about what they are not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from hyflash_bench.analysis.compare import compare
from hyflash_bench.errors import UnknownName, UsageError
from hyflash_bench.results import Run, load_run
from tests.results.factory import DRAFTERS, FAILING, make_run

HYFLASH = "hyflash:window=256"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load_run(make_run(tmp_path_factory.mktemp("results") / "demo", [*DRAFTERS, FAILING[1]]))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same work once more, of so few conversations that nothing is resampled."""
    folder = tmp_path_factory.mktemp("results") / "other"
    return load_run(make_run(folder, DRAFTERS, num_per_group=2, seed=1, run_id="other"))


def changed(run: Run, *, cells: dict[str, Any] | None = None, **manifest: Any) -> Any:
    """A run with some fields of every cell or of the manifest changed."""
    frames = {name: run.table(name) for name in ("cells", "conversations", "turns")}
    frames = {
        name: frame.assign(**{key: value for key, value in (cells or {}).items() if key in frame})
        for name, frame in frames.items()
    }
    return SimpleNamespace(run_id=run.run_id, manifest=run.manifest.model_copy(update=manifest), **frames)


def uncapped(frame: pd.DataFrame, metric: str = "acceptance_length", **keys: str) -> pd.Series:
    frame = frame[frame["memory_cap_bytes"].isna() & (frame["metric"] == metric)]
    for name, value in {"suite": "longctx", **keys}.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1
    return frame.iloc[0]


def test_drafters_against_one_of_them(run: Run) -> None:
    table = compare((run, "full-context"), metric="acceptance_length")
    row = uncapped(table, drafter=HYFLASH)
    assert row["reference"] == "full-context"
    assert row["ratio"] == pytest.approx(row["value"] / row["reference_value"])
    assert row["num_conversations"] == row["num_in_run"] == row["num_in_reference"] == 18
    assert (row["interval_method"], row["p_holm"] > row["p_value"]) == ("BCa", True)
    assert uncapped(table, drafter="autoregressive")["verdict"] == "lower"
    assert "full-context" not in set(table["drafter"])


def test_verdicts_are_corrected_for_the_number_of_rows(run: Run) -> None:
    row = uncapped(compare((run, "full-context"), metric="acceptance_length"), drafter=HYFLASH)
    assert row["ratio_low"] > 1
    assert row["p_value"] < 0.05 < row["p_holm"]
    assert row["verdict"] == "no clear difference"


def test_two_drafters_by_name_however_their_options_are_written(run: Run) -> None:
    pair = compare(f"{run.folder}::full-context", f"{run.folder}::hyflash:window= 256")
    assert set(pair["drafter"]) == {HYFLASH}
    assert set(pair["metric"]) == {"acceptance_length", "decode_tok_per_s", "drafter_bytes"}
    alone = compare((run, "full-context"), metric="acceptance_length")
    row, same = uncapped(pair, drafter=HYFLASH), uncapped(alone, drafter=HYFLASH)
    for name in ("ratio", "ratio_low", "ratio_high", "p_value"):
        assert row[name] == same[name]
    assert row["p_holm"] < same["p_holm"]  # fewer comparisons


def test_a_whole_run_stands_for_its_drafters(run: Run, small: Run) -> None:
    table = compare((run, "full-context"), small, metric="acceptance_length")
    assert set(table["drafter"]) == {drafter.label for drafter in DRAFTERS}
    assert set(table["reference"]) == {"full-context"}
    assert set(table["reference_run"]) == {"20261129-1200-demo"}


def test_plain_decoding_is_the_default_reference(run: Run) -> None:
    table = compare(run, metric="decode_tok_per_s")
    assert set(table["reference"]) == {"autoregressive"}
    assert uncapped(table, "decode_tok_per_s", drafter=HYFLASH)["verdict"] == "higher"


def test_counts_of_bytes_are_compared_without_sampling(run: Run) -> None:
    table = compare((run, "full-context"), metric=["drafter_bytes", "drafter_kv_bytes"])
    row = uncapped(table, "drafter_bytes", drafter=HYFLASH)
    assert row["interval_method"] == "extremes"
    assert row["ratio_low"] == row["ratio"] < 1 < row["ratio_high"]  # less at long contexts alone
    assert (row["verdict"], pd.isna(row["p_value"])) == ("no clear difference", True)
    kv = uncapped(table, "drafter_kv_bytes", drafter=HYFLASH)
    assert (kv["ratio"], kv["ratio_high"], kv["verdict"]) == (0, 0, "lower")
    same = uncapped(
        compare((run, "autoregressive"), metric="drafter_bytes"), "drafter_bytes", drafter="prompt-lookup"
    )
    assert (same["value"], same["ratio"], same["verdict"]) == (0, 1, "no clear difference")


def test_failures_stay_in_the_table_with_their_reason(run: Run) -> None:
    row = uncapped(compare(run, metric="acceptance_length"), drafter="too-big")
    assert row["status"] == row["reason"] == "oom"
    assert pd.isna(row["ratio"])
    assert pd.isna(row["verdict"])


def test_a_failed_reference_is_named_as_the_reason(run: Run) -> None:
    row = uncapped(compare((run, "too-big"), metric="acceptance_length"), drafter="prompt-lookup")
    assert row["reason"] == "the reference is oom"


def test_a_run_against_itself_does_not_differ(run: Run) -> None:
    table = compare(run, load_run(run.folder), metric="acceptance_length")
    sound = table[table["status"] == "ok"]
    assert set(sound["verdict"]) == {"no clear difference"}
    assert sound["ratio"].eq(1.0).all()


def test_paths_do_as_well_as_runs(run: Run) -> None:
    asked = {"metric": "drafter_bytes"}
    pd.testing.assert_frame_equal(compare(run.folder, **asked), compare(str(run.folder), **asked))


def test_two_runs_are_compared_drafter_by_drafter(run: Run, small: Run) -> None:
    row = uncapped(compare(run, small), drafter="prompt-lookup")
    assert (row["run"], row["reference_run"]) == ("other", "20261129-1200-demo")
    assert row["reference"] == "prompt-lookup"


def test_a_drafter_that_only_one_run_has_is_not_hidden(run: Run, small: Run) -> None:
    lost = uncapped(compare(run, small), drafter="too-big")
    assert (lost["status"], lost["reason"], lost["run"]) == ("not run", "not run in other", "other")
    added = uncapped(compare(small, run), drafter="too-big")
    assert (added["status"], added["reason"]) == ("oom", "not run in other")


def test_only_shared_conversations_are_compared_and_counted(run: Run) -> None:
    turns = run.turns[run.turns["item_id"].str.contains("/[012]/")]
    part = SimpleNamespace(
        run_id="part", manifest=run.manifest, cells=run.cells, conversations=run.conversations, turns=turns
    )
    row = uncapped(compare(run, part), drafter="prompt-lookup")
    assert (row["num_conversations"], row["num_in_run"], row["num_in_reference"]) == (9, 9, 18)
    assert row["ratio"] == 1.0
    assert row["reason"] == "3 documents; an interval needs 5"


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"suite_hash": "changed"}, "suite_hash was hash-[a-z]+, is changed"),
        ({"target_id": "target-2"}, "target_id was target-0001, is target-2"),
        ({"draft_budget": 4}, "draft_budget was 16, is 4"),
        ({"max_new_tokens": 7}, "max_new_tokens was 48, is 7"),
    ],
)
def test_unlike_runs_are_refused_by_name(small: Run, cells: dict[str, Any], said: str) -> None:
    unlike = changed(small, cells=cells)
    with pytest.raises(UsageError, match=said):
        compare(small, unlike)
    table = compare(small, unlike, allow_different=True)
    assert table["differences"].str.contains(said).all()
    assert table["ratio"].notna().any()


@pytest.mark.parametrize("key", ["dtype", "kv_dtype", "backend", "fingerprint"])
def test_another_target_or_precision_is_named(small: Run, key: str) -> None:
    known = {"name": "tiny", key: "one"}
    old, new = changed(small, target=known), changed(small, target={**known, key: "two"})
    with pytest.raises(UsageError, match=rf"target\.{key} was 'one', is 'two'"):
        compare(old, new)
    # A version that did not tell is not another one.
    assert compare(changed(small, target={"name": "tiny"}), new)["differences"].isna().all()


def test_another_precision_of_the_drafters_is_named(small: Run) -> None:
    old, new = (changed(small, resolved={"drafter_kv_dtype": dtype}) for dtype in ("float32", "int8"))
    with pytest.raises(UsageError, match=r"request\.drafter_kv_dtype was 'float32', is 'int8'"):
        compare(old, new)


def test_times_of_two_machines_are_refused_and_acceptance_is_not(small: Run) -> None:
    elsewhere = changed(small, environment={**small.manifest.environment, "cpu": "faster"})
    table = compare(small, elsewhere)
    assert set(table["metric"]) == {"acceptance_length", "drafter_bytes"}
    assert table.attrs["left_out"] == {"decode_tok_per_s": "environment.cpu was 'made up', is 'faster'"}
    with pytest.raises(UsageError, match=r"environment\.cpu was 'made up', is 'faster'"):
        compare(small, elsewhere, metric="decode_tok_per_s")
    forced = compare(small, elsewhere, metric="decode_tok_per_s", allow_different=True)
    assert uncapped(forced, "decode_tok_per_s", drafter="prompt-lookup")["differences"]


def test_another_sampling_or_cap_is_compared_only_on_demand(small: Run) -> None:
    warm = changed(small, cells={"sampling": "T=1"})
    sides = (small, "full-context"), (warm, "full-context")
    with pytest.raises(UsageError, match=r"share no work: one has longctx \(greedy, memory cap 512 MiB\); "):
        compare(*sides)
    table = compare(*sides, metric="acceptance_length", allow_different=True)
    row = uncapped(table, drafter="full-context")
    assert row["differences"] == "sampling was greedy, is T=1"
    assert row["ratio"] > 0
    # Which of two works of the suite would be meant is not guessed.
    row = uncapped(table, drafter="full-context", suite="quick")
    assert row["reason"] == "not run in other::full-context"


def test_runs_without_common_work_are_refused(small: Run) -> None:
    with pytest.raises(UsageError, match="share no work"):
        compare(small, changed(small, cells={"suite": "another"}))


def test_wrong_names_are_answered_with_the_right_ones(run: Run) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'full-context'"):
        compare((run, "full-contxt"))
    with pytest.raises(UnknownName, match="metric"):
        compare(run, metric="speed")
    with pytest.raises(UsageError, match="does not compare drafters"):
        compare(run, metric="num_identical")


def test_a_run_without_plain_decoding_asks_for_a_reference(small: Run) -> None:
    run = changed(small, cells={"is_reference": False})
    with pytest.raises(UsageError, match=r"RUN::drafter: autoregressive, full-context, hyflash"):
        compare(run)
    assert len(compare((run, "prompt-lookup")))
