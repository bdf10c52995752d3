"""Writing: locks, crashes, continuing."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from hyflash_bench.atomic import write_text
from hyflash_bench.errors import DataError, RunLocked, SchemaTooNew, UsageError
from hyflash_bench.results import RunWriter, load_run
from hyflash_bench.results.merge import mixed_limits
from hyflash_bench.results.records import ConversationRecord, LikelihoodRecord, Manifest, TraceRecord
from hyflash_bench.results.schema import TABLES
from tests.results.factory import DRAFTERS, FAILING, make_run, manifest_of, records

Records = tuple[Manifest, list[TraceRecord], list[ConversationRecord]]


@pytest.fixture(scope="module")
def work() -> Records:
    return records([*DRAFTERS[:2], *FAILING], num_per_group=1)


def write_all(folder: Path, work: Records) -> None:
    manifest, traces, conversations = work
    with RunWriter(folder) as writer:
        writer.write_manifest(manifest)
        for trace in traces:
            if trace.trace_id not in writer.traces():
                writer.append_trace(trace)
        for conversation in conversations:
            if (conversation.cell_id, conversation.item_id) not in writer.finished():
                writer.append_conversation(conversation)


def assert_same_tables(one: Path, other: Path) -> None:
    for name in TABLES:
        left, right = load_run(one).table(name), load_run(other).table(name)
        keys = [key for key in ("cell_id", "trace_id", "item_id", "turn", "mode", "step") if key in left]
        keys += [key for key in ("owner", "memory_kind") if key in left]
        pd.testing.assert_frame_equal(
            left.sort_values(keys, ignore_index=True), right.sort_values(keys, ignore_index=True)
        )


def test_a_run_is_read_as_written(tmp_path: Path, work: Records) -> None:
    write_all(tmp_path / "run", work)
    assert load_run(tmp_path / "run").manifest == work[0]
    assert_same_tables(
        tmp_path / "run", make_run(tmp_path / "plain", [*DRAFTERS[:2], *FAILING], num_per_group=1)
    )


def test_likelihoods_are_kept_until_the_run_is_discarded(tmp_path: Path) -> None:
    """A run that asks for none has no file of them."""
    scored = LikelihoodRecord(keys=["a", "b"], logprobs=[-1.5, -2.0], greedy=[True, False], recorded_at="now")
    with RunWriter(tmp_path / "run") as writer:
        assert not writer.layout.likelihoods.exists()
        writer.append_likelihoods(scored)
    with writer.layout.likelihoods.open("a") as file:
        file.write('{"record": "likel')
    with RunWriter(tmp_path / "run") as writer:
        writer.append_likelihoods(scored)
        assert list(writer.likelihoods()) == [scored, scored]
    with RunWriter(tmp_path / "run", fresh=True) as writer:
        assert not list(writer.likelihoods())


def test_conversations_are_found_by_cell_and_item(tmp_path: Path, work: Records) -> None:
    write_all(tmp_path / "run", work)
    with RunWriter(tmp_path / "run") as writer:
        stored = writer.conversations()
        assert list(stored.values()) == list({(c.cell_id, c.item_id): c for c in work[2]}.values())


def test_a_second_writer_is_turned_away(tmp_path: Path) -> None:
    with RunWriter(tmp_path / "run"), pytest.raises(RunLocked, match="Another process is writing"):
        RunWriter(tmp_path / "run")
    RunWriter(tmp_path / "run").close()


def test_a_second_process_is_turned_away(tmp_path: Path) -> None:
    code = "import sys; from hyflash_bench.results.writer import RunWriter; RunWriter(sys.argv[1])"
    with RunWriter(tmp_path / "run"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "run")], capture_output=True, text=True, check=False
        )
    assert done.returncode == 1
    assert "RunLocked" in done.stderr


def test_importing_the_package_is_light() -> None:
    code = (
        "import sys, hyflash_bench.results, hyflash_bench.results.export; "
        "heavy = {'torch', 'pandas', 'numpy', 'pyarrow'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.51, 0.9999])
def test_a_crash_and_the_same_command_again_give_the_same_tables(tmp_path: Path, share: float) -> None:
    few = [DRAFTERS[1], FAILING[0], FAILING[5]]
    whole, crashed = make_run(tmp_path / "whole", few, num_per_group=1), tmp_path / "crashed"
    make_run(crashed, few, num_per_group=1)
    for name in ("traces.jsonl", "conversations.jsonl"):
        lines = (whole / name).read_bytes()
        (crashed / name).write_bytes(lines[: int(len(lines) * share)])
    write_all(crashed, records(few, num_per_group=1))
    assert_same_tables(whole, crashed)


def test_only_final_states_count_as_finished(tmp_path: Path, work: Records) -> None:
    write_all(tmp_path / "run", work)
    with RunWriter(tmp_path / "run") as writer:
        finished = writer.finished()
    statuses = {c.status for c in work[2] if (c.cell_id, c.item_id) in finished}
    retried = {c.status for c in work[2] if (c.cell_id, c.item_id) not in finished}
    assert statuses == {"ok", "incompatible", "oom", "mismatch"}
    assert retried == {"error", "timeout", "interrupted"}


def test_a_later_line_wins(tmp_path: Path, work: Records) -> None:
    manifest, _, conversations = work
    failed = next(c for c in conversations if c.status == "error")
    with RunWriter(tmp_path / "run") as writer:
        writer.write_manifest(manifest)
        writer.append_conversation(failed)
        assert not writer.finished()
        writer.append_conversation(failed.model_copy(update={"status": "oom"}))
        assert writer.finished() == {(failed.cell_id, failed.item_id)}
    assert list(load_run(tmp_path / "run").conversations["status"]) == ["oom"]


def test_traces_are_read_when_asked_for(tmp_path: Path, work: Records) -> None:
    write_all(tmp_path / "run", work)
    with RunWriter(tmp_path / "run") as writer:
        traces = writer.traces()
        assert len(traces) == len(work[1])
        assert [traces[trace.trace_id] for trace in work[1]] == work[1]
        assert "nothing" not in traces
        with pytest.raises(KeyError):
            traces["nothing"]


def test_cells_of_a_continued_run_are_united(tmp_path: Path, work: Records) -> None:
    cells = work[0].cells
    with RunWriter(tmp_path / "run") as writer:
        first = writer.write_manifest(manifest_of(cells[:3], created_at="2026-01-01T00:00:00Z"))
        second = writer.write_manifest(manifest_of(cells[2:5], request={"suites": ["other"]}))
    assert [cell.cell_id for cell in second.cells] == [cell.cell_id for cell in cells[:5]]
    assert second.created_at == first.created_at == "2026-01-01T00:00:00Z"
    assert second.request == {"suites": ["other"]}
    assert load_run(tmp_path / "run").manifest == second


def test_all_commands_of_a_folder_are_kept(tmp_path: Path) -> None:
    with RunWriter(tmp_path / "run") as writer:
        for command in (["one"], ["two"], ["two"], [], ["one"]):
            written = writer.write_manifest(manifest_of([], command=command))
    assert [*written.earlier_commands, written.command] == [["two"], ["one"]]


def test_other_limits_in_one_task_are_named(work: Records) -> None:
    cells = [cell.model_copy(update={"max_new_tokens": 8}) for cell in work[0].cells]
    assert mixed_limits(cells) == []
    mixed = mixed_limits([*cells, cells[0].model_copy(update={"max_new_tokens": 4})])
    assert mixed == [f"{cells[0].suite}/{cells[0].task}: max_new_tokens 4, 8"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"environment": {"python": "3.11", "torch": "2.14.0", "cpu": "made up", "num_threads": 2}},
         "environment.torch was '2.13.0', is '2.14.0'"),
        ({"target": {"name": "tiny", "fingerprint": "e" * 16, "dtype": "float32", "backend": "cpu"}},
         "target.fingerprint was 'ffffffffffffffff', is 'eeeeeeeeeeeeeeee'"),
    ],
)  # fmt: skip
def test_other_conditions_are_refused_by_name(
    tmp_path: Path, work: Records, changes: dict[str, object], said: str
) -> None:
    make_run(tmp_path / "run", DRAFTERS[:1], num_per_group=1)
    before = (tmp_path / "run" / "manifest.json").read_bytes()
    with RunWriter(tmp_path / "run") as writer, pytest.raises(UsageError, match="--fresh") as caught:
        writer.write_manifest(manifest_of(work[0].cells, **changes))
    assert said in str(caught.value)
    assert (tmp_path / "run" / "manifest.json").read_bytes() == before


def test_facts_of_the_moment_may_differ(tmp_path: Path, work: Records) -> None:
    environment = {**manifest_of([]).environment, "load_average": 3.0, "calibration_s": 2.0}
    target = {**(manifest_of([]).target or {}), "name": "the same by another name"}
    make_run(tmp_path / "run", DRAFTERS[:1], num_per_group=1)
    with RunWriter(tmp_path / "run") as writer:
        written = writer.write_manifest(manifest_of([], environment=environment, target=target))
    assert written.target == target


def test_fresh_discards_a_run_and_nothing_else(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", DRAFTERS[:2], num_per_group=1)
    (folder / "notes.txt").write_text("mine")
    with RunWriter(folder, fresh=True) as writer:
        assert not writer.finished()
        assert not writer.traces()
        writer.write_manifest(manifest_of([], target={"name": "other"}))
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_folder_with_other_things_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(UsageError, match="holds no run"):
        RunWriter(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(UsageError, match="holds no run"):
        RunWriter(tmp_path / "run")


def test_newer_and_older_runs_are_not_continued(tmp_path: Path) -> None:
    make_run(tmp_path / "newer", DRAFTERS[:1], num_per_group=1, schema_version=99)
    with pytest.raises(SchemaTooNew, match="Upgrade hyflash-bench"):
        RunWriter(tmp_path / "newer")
    RunWriter(tmp_path / "newer", fresh=True).close()


def test_a_full_disk_leaves_the_manifest_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_run(tmp_path / "run", DRAFTERS[:1], num_per_group=1)
    before = (folder / "manifest.json").read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with RunWriter(folder) as writer:
        monkeypatch.setattr(Path, "write_text", full)
        with pytest.raises(DataError, match="Disk full"):
            writer.write_manifest(manifest_of([]))
    assert (folder / "manifest.json").read_bytes() == before
    assert not list(folder.glob(".*.tmp"))


def test_nan_in_a_record_is_refused(tmp_path: Path, work: Records) -> None:
    turn = next(t for c in work[2] for t in c.turns if t.mode == "live")
    bad = work[2][0].model_copy(update={"turns": [turn.model_copy(update={"decode_s": float("nan")})]})
    with RunWriter(tmp_path / "run") as writer:
        with pytest.raises(DataError, match=r"turns\[0\]\.decode_s is NaN"):
            writer.append_conversation(bad)
        assert not writer.finished()


def test_fresh_spares_the_folder_of_another_program(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "mine.csv").write_text("precious")
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(UsageError, match="holds no run"):
        RunWriter(tmp_path, fresh=True)
    assert (tmp_path / "tables" / "mine.csv").read_text() == "precious"


def test_a_folder_that_refuses_everything_gives_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    for method in ("write_text", "unlink"):
        monkeypatch.setattr(Path, method, refuse)
    with pytest.raises(DataError, match="cannot be written: Read-only"):
        write_text(tmp_path / "x.html", "x")


def test_a_file_needs_a_name() -> None:
    with pytest.raises(UsageError, match="is empty"):
        write_text(Path(), "x")
