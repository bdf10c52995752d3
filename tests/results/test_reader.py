"""Reading: frames, strictness, lists."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pandas as pd
import pytest

from hyflash_bench.errors import DataError, SchemaTooNew, UnknownName
from hyflash_bench.results import RunWriter, list_runs, load_run, tables
from hyflash_bench.results.layout import Layout
from hyflash_bench.results.schema import TABLES
from tests.results.factory import DRAFTERS, FAILING, FakeDrafter, make_run, manifest_of, records


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("results") / "demo", num_per_group=2)


def assert_schema(frame: pd.DataFrame, name: str) -> None:
    assert {column: str(dtype) for column, dtype in frame.dtypes.items()} == {
        column.name: column.dtype for column in TABLES[name]
    }


@pytest.mark.parametrize("name", TABLES)
def test_frames_have_the_documented_columns(folder: Path, name: str) -> None:
    frame = load_run(folder).table(name)
    assert len(frame)
    assert_schema(frame, name)


@pytest.mark.parametrize("name", TABLES)
def test_an_empty_run_has_the_same_columns(tmp_path: Path, name: str) -> None:
    with RunWriter(tmp_path / "run") as writer:
        writer.write_manifest(manifest_of([]))
        writer.write_tables()
    assert tables.are_fresh(Layout(tmp_path / "run"))
    frame = load_run(tmp_path / "run").table(name)
    assert frame.empty
    assert_schema(frame, name)


def test_a_run_without_a_line_has_pending_cells(tmp_path: Path) -> None:
    manifest, _, _ = records(DRAFTERS[:2], num_per_group=2)
    with RunWriter(tmp_path / "run") as writer:
        writer.write_manifest(manifest)
    cells = load_run(tmp_path / "run").cells
    assert set(cells["status"]) == {"interrupted"}
    assert (cells["num_pending"] == cells["num_conversations"]).all()
    assert cells["message"].iloc[0] == "4 of 4 conversations not run yet"
    assert cells["acceptance_length"].isna().all()


def test_sums_survive_the_way_through_the_frames(folder: Path) -> None:
    _, traces, conversations = records(num_per_group=2)
    run = load_run(folder)
    steps = [turn.steps for conversation in conversations for turn in conversation.turns]
    for name in ("drafted", "accepted", "committed"):
        expected = sum(sum(getattr(columns, name)) for columns in steps)
        assert run.steps[name].sum() == expected
        assert run.turns[f"num_{name}"].sum() == expected
        uncut = run.steps.loc[~run.steps["limit_cut"], name].sum()
        assert run.turns[f"num_uncut_{name}"].sum() == uncut
    assert run.steps["limit_cut"].any()
    assert run.turns["num_eos_cut_steps"].sum() == run.steps["eos_cut"].sum()
    assert run.turns["num_steps"].sum() == len(run.steps)
    assert run.turns["num_uncut_steps"].sum() == (~run.steps["limit_cut"]).sum()
    assert len(run.traces) == sum(len(trace.turns) for trace in traces)
    known = [size for c in conversations for t in c.turns for size in t.memory.values() if size is not None]
    assert run.memory["bytes"].sum() == sum(known)


def test_each_step_stands_at_its_context_length(folder: Path) -> None:
    run = load_run(folder)
    keys = ["cell_id", "item_id", "turn", "mode"]
    turns = run.turns.set_index(keys)
    for key, steps in list(run.steps.groupby(keys))[:20]:
        turn = turns.loc[key]
        assert list(steps["step"]) == list(range(len(steps)))
        assert steps["context_length"].iloc[0] == turn["context_length"] + 1
        end = steps["context_length"].iloc[-1] + steps["committed"].iloc[-1]
        assert end == turn["context_length"] + turn["num_output_tokens"]


def test_null_stays_null(folder: Path) -> None:
    turns = load_run(folder).turns
    replayed = turns[turns["mode"] == "replay"]
    assert replayed[["decode_s", "ttft_s", "draft_s", "overhead_s"]].isna().all(axis=None)
    live = turns[turns["mode"] == "live"]
    assert live["decode_s"].notna().all()
    parts = live[["draft_s", "verify_s", "observe_s", "overhead_s"]].sum(axis=1)
    assert parts.to_numpy() == pytest.approx(live["decode_s"].to_numpy())


def test_what_was_rejected_and_what_it_was_about_is_in_the_tables_or_missing(tmp_path: Path) -> None:
    """Runs of older versions do not say; that is not the same as nothing."""
    manifest, traces, conversations = records(DRAFTERS[:2], num_per_group=1)
    told = tmp_path / "told"
    with RunWriter(told) as writer:
        writer.write_manifest(manifest)
        for trace in traces:
            writer.append_trace(trace.model_copy(update={"document": "a text"}))
        for conversation in conversations:
            writer.append_conversation(conversation)
    steps = load_run(told).steps
    for _, row in steps[~steps["limit_cut"]].fillna({"rejected_tokens": "", "rejected_text": ""}).iterrows():
        ids = row["rejected_tokens"].split()
        assert len(ids) == row["drafted"] - row["accepted"]
        assert row["rejected_text"].count("slot") == len(ids)
    assert set(load_run(told).turns["document"]) == {"a text"}

    old = make_run(tmp_path / "old", DRAFTERS[:2], num_per_group=1, schema_version=2)
    for name, lost in (("traces", ("document",)), ("conversations", ("rejected_tokens", "rejected_text"))):
        path = old / f"{name}.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for holder in lines if name == "traces" else [t["steps"] for line in lines for t in line["turns"]]:
            for field in lost:
                del holder[field]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert load_run(old).steps[["rejected_tokens", "rejected_text"]].isna().all(axis=None)
    assert load_run(old).turns["document"].isna().all()


def test_a_sum_of_bytes_with_an_unknown_part_is_unknown(tmp_path: Path) -> None:
    manifest, _, conversations = records(DRAFTERS[1:2], num_per_group=1)
    turn = conversations[0].turns[0]
    memory = {**turn.memory, "drafter_kv": None}
    odd = conversations[0].model_copy(update={"turns": [turn.model_copy(update={"memory": memory})]})
    with RunWriter(tmp_path / "run") as writer:
        writer.write_manifest(manifest)
        writer.append_conversation(odd)
    turns = load_run(tmp_path / "run").turns
    assert turns["drafter_bytes"].isna().all()
    assert (turns["drafter_weights_bytes"] == 0).all()


def test_every_status_shows_and_only_sound_ones_have_numbers(folder: Path) -> None:
    cells = load_run(folder).cells
    assert set(cells["status"]) == {
        "ok", "oom", "incompatible", "mismatch", "timeout", "error", "interrupted",
    }  # fmt: skip
    has_number = cells["acceptance_length"].notna()
    assert set(cells.loc[has_number, "status"]) == {"ok", "interrupted"}
    assert cells.loc[cells["status"] != "ok", "message"].notna().all()
    statuses = ["ok", "oom", "incompatible", "mismatch", "timeout", "error", "interrupted"]
    counted = cells[[f"num_{status}" for status in statuses]].sum(axis=1) + cells["num_pending"]
    assert (counted == cells["num_conversations"]).all()


def test_a_silent_drafter_is_an_error_and_plain_decoding_is_not(folder: Path) -> None:
    cells = load_run(folder).cells
    silent = cells[cells["drafter"] == "silent"]
    assert set(silent["status"]) == {"error"}
    assert silent["message"].str.contains(r"proposed no token in \d+ steps").all()
    assert silent["acceptance_length"].isna().all()
    plain = cells[cells["drafter"] == "autoregressive"]
    assert plain["acceptance_length"].dropna().eq(1.0).all()
    assert plain["acceptance_rate"].isna().all()


def test_a_drafter_that_was_never_asked_is_an_error(tmp_path: Path) -> None:
    manifest, _, conversations = records([FakeDrafter("mute", 4, 0.5)], num_per_group=1)
    names = ("drafted", "depth", "accepted", "committed", "eos_cut", "limit_cut")
    turn = conversations[0].turns[0]
    empty = turn.model_copy(update={"steps": type(turn.steps)(**{name: [] for name in names})})
    with RunWriter(tmp_path / "run") as writer:
        writer.write_manifest(manifest)
        writer.append_conversation(conversations[0].model_copy(update={"turns": [empty]}))
    assert load_run(tmp_path / "run").cells["message"].iloc[0].startswith("was never asked for a draft")


def test_replayed_cells_are_scored_by_replay_alone(folder: Path) -> None:
    turns = load_run(folder).turns
    assert (turns["is_scored"] == (turns["mode"] == "replay")).all()


def test_live_only_cells_are_scored_live(tmp_path: Path) -> None:
    manifest, _, conversations = records(DRAFTERS[1:2], num_per_group=1)
    live = [turn for turn in conversations[0].turns if turn.mode == "live"]
    with RunWriter(tmp_path / "run") as writer:
        writer.write_manifest(manifest)
        writer.append_conversation(conversations[0].model_copy(update={"turns": live}))
    assert load_run(tmp_path / "run").turns["is_scored"].all()


def test_failures_before_a_trace_still_know_their_context(folder: Path) -> None:
    conversations = load_run(folder).conversations
    long = conversations[conversations["suite"] == "longctx"]
    assert long["context_rung"].notna().all()


@pytest.mark.parametrize("name", TABLES)
def test_parquet_gives_the_same_frames(tmp_path: Path, name: str) -> None:
    run = make_run(tmp_path / "run", [*DRAFTERS[:2], FAILING[1]], num_per_group=1)
    from_lines = load_run(run).table(name)
    with RunWriter(run) as writer:
        writer.write_tables()
    assert tables.are_fresh(Layout(run))
    pd.testing.assert_frame_equal(load_run(run).table(name), from_lines)


def test_changed_parquet_is_not_used(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", DRAFTERS[:2], num_per_group=1)
    from_lines = load_run(run).turns
    layout = Layout(run)
    with RunWriter(run) as writer:
        writer.write_tables()
    stamped = layout.table("turns").stat()
    other = from_lines.assign(acceptance_length=99.0)
    other.to_parquet(layout.table("turns"), index=False)
    os.utime(layout.table("turns"), ns=(stamped.st_atime_ns, stamped.st_mtime_ns))
    assert tables.are_fresh(layout)
    pd.testing.assert_frame_equal(load_run(run).turns, from_lines)


def test_results_without_a_manifest_are_told_apart_from_no_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", DRAFTERS[:2], num_per_group=1)
    (run / "manifest.json").unlink()
    with pytest.raises(DataError, match=r"run holds results, but no file manifest\.json"):
        load_run(run)


@pytest.mark.parametrize(("field", "value"), [("text", '"\\ud800"'), ("context_length", "1" + "0" * 30)])
def test_values_that_no_column_takes_are_told(tmp_path: Path, field: str, value: str) -> None:
    run = make_run(tmp_path / "run", DRAFTERS[:2], num_per_group=1)
    traces = run / "traces.jsonl"
    changed = re.sub(rf'"{field}": ("[^"]*"|\d+)', lambda _: f'"{field}": {value}', traces.read_text())
    assert changed != traces.read_text()
    traces.write_text(changed)
    with pytest.raises(DataError, match="changed by something else"):
        [load_run(run).table(name) for name in TABLES]


def test_stale_parquet_is_not_used(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", DRAFTERS[:2], num_per_group=1)
    layout = Layout(run)
    with RunWriter(run) as writer:
        writer.write_tables()
    assert tables.are_fresh(layout)
    later = max(path.stat().st_mtime_ns for path in layout.tables.iterdir()) + 10**9
    os.utime(layout.traces, ns=(later, later))
    assert not tables.are_fresh(layout)
    os.utime(layout.traces, ns=(0, 0))
    assert tables.are_fresh(layout)
    layout.conversations.write_text("")
    os.utime(layout.conversations, ns=(0, 0))
    assert not tables.are_fresh(layout)
    assert load_run(run).turns.empty
    layout.stamp.write_text("nonsense")
    assert not tables.are_fresh(layout)


@pytest.mark.parametrize("kind", ["traces", "conversations"])
def test_a_torn_last_line_is_ignored(tmp_path: Path, kind: str) -> None:
    run = make_run(tmp_path / "run", DRAFTERS[:2], num_per_group=1)
    path = run / f"{kind}.jsonl"
    before = len(load_run(run).table(kind))
    path.write_bytes(path.read_bytes()[:-1])
    assert len(load_run(run).table(kind)) < before


def test_a_record_that_does_not_fit_names_file_line_and_field(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", DRAFTERS[:2], num_per_group=1)
    path = run / "conversations.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    values = json.loads(lines[1])
    values["statsu"] = values.pop("status")
    path.write_text("".join([lines[0], json.dumps(values) + "\n", *lines[2:]]))
    with pytest.raises(DataError, match=r"conversations\.jsonl, line 2: .*'status' is missing.*'statsu'"):
        load_run(run).turns  # noqa: B018 - reading is what fails


def test_a_conversation_of_an_unknown_cell_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", DRAFTERS[:2], num_per_group=1, cells=[])
    with pytest.raises(DataError, match="which the manifest does not know"):
        load_run(run).cells  # noqa: B018 - reading is what fails


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", DRAFTERS[:1], num_per_group=1, schema_version=99, package_version="7.0")
    with pytest.raises(SchemaTooNew, match=r"written by hyflash-bench 7\.0 with schema 99"):
        load_run(run)


def test_runs_are_found_by_path_and_by_name(tmp_path: Path) -> None:
    run = make_run(tmp_path / "demo", DRAFTERS[:1], num_per_group=1)
    assert load_run(run).run_id == load_run("demo", tmp_path).run_id
    with pytest.raises(UnknownName, match="Did you mean 'demo'"):
        load_run("dem", tmp_path)


def test_runs_in_a_folder_of_runs_are_listed_too(tmp_path: Path) -> None:
    make_run(tmp_path / "reference" / "inner", DRAFTERS[:1], num_per_group=1)
    make_run(tmp_path / "outer", DRAFTERS[:1], num_per_group=1)
    assert {listing.folder.name for listing in list_runs(tmp_path)} == {"inner", "outer"}
    with pytest.raises(UnknownName, match="Did you mean 'reference/inner'"):
        load_run("reference/iner", tmp_path)
    assert load_run("reference/inner", tmp_path).folder == tmp_path / "reference" / "inner"


def test_lists_show_newest_first_and_the_damaged_too(tmp_path: Path) -> None:
    assert list_runs(tmp_path / "nowhere") == []
    make_run(tmp_path / "old", DRAFTERS[:1], num_per_group=1, created_at="2026-01-01T00:00:00Z")
    make_run(tmp_path / "new", DRAFTERS[:1], num_per_group=1, created_at="2026-02-01T00:00:00Z")
    (make_run(tmp_path / "bad", DRAFTERS[:1], num_per_group=1) / "manifest.json").write_text("{")
    (tmp_path / "unrelated").mkdir()
    listings = list_runs(tmp_path)
    assert [listing.folder.name for listing in listings] == ["new", "old", "bad"]
    assert "not valid JSON" in (listings[2].problem or "")


def test_an_unknown_table_is_named(folder: Path) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'turns'"):
        load_run(folder).table("turn")


def test_a_damaged_parquet_file_is_made_of_the_lines_again(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", DRAFTERS[:2], num_per_group=1)
    expected = load_run(run).turns
    with RunWriter(run) as writer:
        writer.write_tables()
    Layout(run).table("turns").write_bytes(b"PAR1junk")
    pd.testing.assert_frame_equal(load_run(run).turns, expected)
