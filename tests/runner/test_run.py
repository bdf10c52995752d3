"""A run from request to tables on a tiny model, in real worker processes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from hyflash_bench.errors import RunLocked, UnknownName, UsageError
from hyflash_bench.results.reader import load_run
from hyflash_bench.results.writer import RunWriter
from hyflash_bench.runner.events import Event, WorkFinished
from hyflash_bench.runner.run import preview, run
from hyflash_bench.runner.supervisor import Supervisor
from hyflash_bench.spec.run import RunSpec
from tests.runner.requests import DRAFTERS, request_for, tables


@pytest.fixture(scope="module")
def finished(tiny_target: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunSpec, Path]:
    """A whole run, made once."""
    from tests.runner.conftest import write_suite

    base = tmp_path_factory.mktemp("finished")
    spec = request_for(tiny_target, write_suite(base), memory_caps=["400KiB", "1GiB"], repeats=2)
    outcome = run(spec, output_path=base / "run", command=["hyflash-bench", "run"])
    assert not outcome.interrupted
    return spec, base / "run"


def test_every_cell_is_measured_on_every_conversation(finished):
    _, folder = finished
    cells = load_run(folder).cells
    assert len(cells) == 4 * 2 * 3 * 2  # drafters x samplings x (no cap, two caps) x repeats
    uncapped = cells[cells["memory_cap_bytes"].isna()]
    assert set(uncapped["status"]) == {"ok"}
    assert set(uncapped["num_conversations"]) == {3}


def test_an_interruption_before_the_first_line_is_one(tiny_target, small_suite, tmp_path, monkeypatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RunWriter, "write_manifest", interrupt)
    spec = request_for(tiny_target, small_suite, drafters=["autoregressive"], limit=1)
    outcome = run(spec, output_path=tmp_path / "run")
    assert (outcome.interrupted, outcome.exit_code, outcome.num_cells) == (True, 130, {})


def test_greedy_live_output_is_the_targets_own(finished):
    _, folder = finished
    turns = load_run(folder).turns
    greedy = turns[(turns["mode"] == "live") & (turns["temperature"] == 0)]
    assert len(greedy)
    assert set(greedy["lossless"]) == {"identical"}
    sampled = turns[(turns["mode"] == "live") & (turns["temperature"] > 0)]
    assert set(sampled["lossless"]) == {"not_judged"}


def test_greedy_replay_equals_live_step_for_step(finished):
    _, folder = finished
    loaded = load_run(folder)
    steps = loaded.steps.merge(loaded.cells[["cell_id", "repeat"]], on="cell_id")
    steps = steps[(steps["sampling"] == "greedy") & steps["memory_cap_bytes"].isna()]
    keys = ["drafter", "item_id", "turn", "step"]
    columns = ["drafted", "depth", "accepted", "committed", "eos_cut", "limit_cut"]
    columns += ["rejected_tokens", "rejected_text"]
    by_mode = {
        (mode, repeat): part.set_index(keys)[columns].sort_index()
        for (mode, repeat), part in steps.groupby(["mode", "repeat"])
    }
    assert set(by_mode) == {("replay", 0), ("live", 0), ("live", 1)}
    for other in (("live", 0), ("live", 1)):
        pd.testing.assert_frame_equal(by_mode["replay", 0], by_mode[other])


def test_rejected_tokens_are_told_with_their_text(finished):
    """On a vocabulary of bytes, so that a text is its tokens; of a tree, one path of what was left."""
    steps = load_run(finished[1]).steps
    chains = steps[steps["drafter"].str.startswith("prompt-lookup") & steps["rejected_tokens"].notna()]
    counts = chains["rejected_tokens"].str.split().str.len()
    assert (counts == chains["drafted"] - chains["accepted"]).all()
    assert counts.max() > 1
    texts = chains["rejected_text"]
    plain = chains[texts.str.isascii() & ~texts.str.contains("<|", regex=False)]
    assert len(plain)
    assert (plain["rejected_text"].str.len() == plain["rejected_tokens"].str.split().str.len()).all()

    trees = steps[steps["drafter"].str.contains("tree") & steps["rejected_tokens"].notna()]
    lengths = trees["rejected_tokens"].str.split().str.len()
    assert (lengths <= trees["depth"] - trees["accepted"]).all()
    assert lengths.max() > 0


def test_caps_cut_deterministically_and_keep_what_fits(finished):
    _, folder = finished
    cells = load_run(folder).cells
    roomy = cells[cells["memory_cap_bytes"] == 2**30]
    tight = cells[cells["memory_cap_bytes"] == 400 * 2**10]
    assert set(roomy["status"]) == {"ok"}
    assert "oom" in set(tight["status"])


def test_the_same_request_again_does_nothing_and_changes_nothing(finished):
    spec, folder = finished
    before = tables(folder)
    events: list[Event] = []
    run(spec, output_path=folder, listener=events.append, command=["hyflash-bench", "run"])
    assert not [event for event in events if isinstance(event, WorkFinished)]
    assert before == tables(folder)


def test_a_finished_request_starts_no_worker(finished, monkeypatch):
    """Its plan needs the target's facts, which the manifest holds as long as the files are the same."""
    spec, folder = finished
    monkeypatch.setattr(Supervisor, "start", lambda self: pytest.fail("started"))
    manifest = folder / "manifest.json"
    stored = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(stored | {"environment": stored["environment"] | {"busy_share": 0.9}}))

    run(spec, output_path=folder, command=["hyflash-bench", "run"])

    assert load_run(folder).manifest.environment["busy_share"] == 0.9, "of when it was measured"


def test_the_manifest_holds_request_command_and_environment(finished):
    _, folder = finished
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["command"] == ["hyflash-bench", "run"]
    assert manifest["resolved"]["drafters"] == DRAFTERS
    assert manifest["target"]["fingerprint"]["weights"]
    assert manifest["environment"]["packages"]["torch"]
    assert manifest["finished_at"] >= manifest["created_at"]


def test_a_conversation_that_cannot_be_told_is_a_row(tiny_target, small_suite, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(tiny_target, broken)
    (broken / "chat_template.jinja").write_text("{{ raise_exception('no users here') }}")
    spec = request_for(broken, small_suite, drafters=["autoregressive"], temperature=0.0)
    outcome = run(spec, output_path=tmp_path / "run")
    conversations = load_run(tmp_path / "run").conversations
    assert list(conversations["status"]) == ["error"] * 3
    assert conversations["message"].str.contains("no users here").all()
    assert outcome.exit_code == 1


def test_a_second_process_is_refused(tiny_target, small_suite, tmp_path):
    with RunWriter(tmp_path / "run"), pytest.raises(RunLocked):
        run(request_for(tiny_target, small_suite), output_path=tmp_path / "run")


def test_mistakes_are_told_before_a_worker_starts(tiny_target, small_suite, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "hyflash_bench.runner.supervisor.Supervisor.start", lambda self: pytest.fail("started")
    )
    out = tmp_path / "run"
    with pytest.raises(UnknownName, match="prompt-lookup"):
        run(request_for(tiny_target, small_suite, drafters=["promt-lookup"]), output_path=out)
    with pytest.raises(UnknownName, match="smollm2-135m"):
        run(request_for(Path("smolm2-135m"), small_suite), output_path=out)
    with pytest.raises(UnknownName, match="quick"):
        run(request_for(tiny_target, Path("quikc")), output_path=out)
    with pytest.raises(UsageError):
        run(request_for(tiny_target, small_suite, kinds=["poetry"]), output_path=out)
    with pytest.raises(UsageError, match="no file"):
        run(request_for(tiny_target, small_suite, drafters=["nowhere.py:X"]), output_path=out)
    with pytest.raises(UsageError, match=r"300 characters\) cannot be a run folder: File name too long"):
        run(request_for(tiny_target, small_suite), output_path=Path("x" * 300))


def test_a_preview_counts_and_measures_nothing(tiny_target, small_suite, tmp_path):
    plan = preview(request_for(tiny_target, small_suite))
    told = plan.describe()
    assert told["num_conversations"] == 6
    assert told["num_cells"] == 8
    assert RunSpec.parse(told["resolved"]) == plan.spec
    assert not list(tmp_path.glob("results*"))


@pytest.mark.parametrize(("num_cores", "gain"), [(1, 1), (2, 1), (8, 4), (64, 6)])
def test_workers_shorten_a_preview_where_there_are_cores_for_them(
    num_cores, gain, tiny_target, small_suite, monkeypatch
):
    monkeypatch.setattr("hyflash_bench.runner.plan.num_cores", lambda: num_cores)
    monkeypatch.setattr("hyflash_bench.runner.estimate.WRITE_S", 600.0)
    alone, shared = (
        preview(request_for(tiny_target, small_suite, mode="replay", workers=workers)).describe()
        for workers in (1, 6)
    )
    assert alone["estimated_s"] / shared["estimated_s"] == pytest.approx(gain, rel=1e-3)


def test_a_context_that_does_not_fit_is_a_row(small_suite, tmp_path):
    from tests.tiny import save_tiny_target

    short = save_tiny_target(tmp_path / "short", max_positions=96)
    spec = request_for(short, small_suite, drafters=["autoregressive"], temperature=0.0)
    outcome = run(spec, output_path=tmp_path / "run")
    assert outcome.exit_code == 1, "nothing was measured"
    cells = load_run(tmp_path / "run").cells
    assert list(cells["status"]) == ["incompatible"]
    assert "was made for 96" in cells.loc[0, "message"]
