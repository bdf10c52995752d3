"""A run from request to tables on a tiny model, in real worker processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from hyflash_bench.errors import RunLocked, UnknownName, UsageError
from hyflash_bench.results.layout import Layout
from hyflash_bench.results.reader import load_run
from hyflash_bench.results.writer import RunWriter
from hyflash_bench.runner.events import (
    ConversationFinished,
    Event,
    PhaseStarted,
    WorkerRestarted,
    WorkFinished,
)
from hyflash_bench.runner.remembered import remembered
from hyflash_bench.runner.run import preview, run
from hyflash_bench.runner.supervisor import Supervisor
from hyflash_bench.spec.run import RunSpec

DRAFTERS = ["autoregressive", "prompt-lookup:num_draft_tokens=4", "suffix", "suffix:tree=true"]
TIMINGS = ("_s", "recorded_at", "process_rss", "tok_per_s")


def request_for(target: Path, suite: Path, **more) -> RunSpec:
    values = {"target": str(target), "suites": [str(suite)], "drafters": DRAFTERS, "num_threads": 1}
    return RunSpec.parse({**values, **more})


def stable(frame: pd.DataFrame) -> list[str]:
    """Rows as text without what a clock or the process's memory put there, sorted."""
    kept = frame[[c for c in frame.columns if not any(mark in c for mark in TIMINGS)]]
    if "owner" in kept.columns:
        kept = kept[kept["owner"] != "process"]
    return sorted(kept.to_json(orient="records", lines=True).splitlines())


def tables(folder: Path) -> dict[str, list[str]]:
    loaded = load_run(folder)
    return {name: stable(getattr(loaded, name)) for name in ("cells", "turns", "steps", "traces", "memory")}


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
    by_mode = {
        (mode, repeat): part.set_index(keys)[columns].sort_index()
        for (mode, repeat), part in steps.groupby(["mode", "repeat"])
    }
    assert set(by_mode) == {("replay", 0), ("live", 0), ("live", 1)}
    for other in (("live", 0), ("live", 1)):
        pd.testing.assert_frame_equal(by_mode["replay", 0], by_mode[other])


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


def test_facts_are_only_remembered_while_nothing_changed(tiny_target, small_suite, tmp_path):
    target = tmp_path / "target"
    shutil.copytree(tiny_target, target)
    spec = request_for(target, small_suite, drafters=["autoregressive"], temperature=0.0, limit=1)
    run(spec, output_path=tmp_path / "run")
    layout = Layout(tmp_path / "run")
    assert remembered(layout, spec) is not None

    for file in ("model.safetensors", "config.json", "chat_template.jinja"):
        before = (target / file).read_bytes()
        (target / file).write_bytes(before + b" ")
        assert remembered(layout, spec) is None, file
        (target / file).write_bytes(before)
    assert remembered(layout, spec) is not None
    for asked in ({"dtype": "bfloat16"}, {"drafters": ["suffix"]}, {"extrapolate": True}):
        assert remembered(layout, RunSpec.parse({**spec.to_mapping(), **asked})) is None
    assert remembered(layout, RunSpec.parse({**spec.to_mapping(), "limit": 2})) is not None
    layout.manifest.write_text(json.dumps(json.loads(layout.manifest.read_text()) | {"package_version": "0"}))
    assert remembered(layout, spec) is None


def test_a_new_drafter_is_added_without_tracing_again(tiny_target, small_suite, tmp_path):
    first = request_for(tiny_target, small_suite, drafters=["autoregressive"], temperature=0.0)
    run(first, output_path=tmp_path / "run")
    more = request_for(tiny_target, small_suite, drafters=["autoregressive", "suffix"], temperature=0.0)
    events: list[Event] = []
    run(more, output_path=tmp_path / "run", listener=events.append)
    phases = {event.phase for event in events if isinstance(event, PhaseStarted)}
    assert "trace" not in phases
    finished = {event.drafter for event in events if isinstance(event, ConversationFinished)}
    assert finished == {"suffix"}
    run(more, output_path=tmp_path / "whole")
    steps_of = [load_run(tmp_path / name).steps for name in ("run", "whole")]
    grown, whole = (stable(steps[steps["drafter"] == "suffix"]) for steps in steps_of)
    assert grown == whole


def test_the_manifest_holds_request_command_and_environment(finished):
    _, folder = finished
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["command"] == ["hyflash-bench", "run"]
    assert manifest["resolved"]["drafters"] == DRAFTERS
    assert manifest["target"]["fingerprint"]["weights"]
    assert manifest["environment"]["packages"]["torch"]
    assert manifest["finished_at"] >= manifest["created_at"]


CHILD = """
import sys
from pathlib import Path
from hyflash_bench.runner.run import run
from hyflash_bench.spec.run import RunSpec
from hyflash_bench.runner.events import ConversationFinished
if __name__ == "__main__":
    target, suite, folder, wait_for = sys.argv[1:5]
    spec = RunSpec.parse({"target": target, "suites": [suite], "drafters": sys.argv[5:], "num_threads": 1})
    def tell(event):
        print(type(event).__name__, flush=True)
    run(spec, output_path=Path(folder), listener=tell)
"""


@pytest.fixture(scope="module")
def undisturbed(tiny_target: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Tables of a run that nobody killed."""
    from tests.runner.conftest import write_suite

    base = tmp_path_factory.mktemp("undisturbed")
    spec = request_for(tiny_target, write_suite(base), drafters=["autoregressive", "suffix"])
    run(spec, output_path=base / "run")
    return tables(base / "run")


@pytest.mark.parametrize("moment", ["TargetLoaded", "PhaseStarted:4", "TurnFinished:7", "WorkFinished:3"])
def test_a_killed_run_resumes_to_the_same_tables(moment, undisturbed, tiny_target, small_suite, tmp_path):
    """Kill -9 at several moments, then torn bytes on top; the tables end as if nothing had happened."""
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    drafters = ["autoregressive", "suffix"]
    arguments = [str(tiny_target), str(small_suite), str(tmp_path / "killed"), moment, *drafters]
    name, _, count = moment.partition(":")
    child = subprocess.Popen(
        [sys.executable, str(script), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=tmp_path,
    )
    left = int(count or 1)
    assert child.stdout is not None
    for line in child.stdout:
        left -= line.strip() == name
        if left == 0:
            break
    assert left == 0, "the run ended before the moment came"
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    lines = tmp_path / "killed" / "conversations.jsonl"
    if lines.exists():
        with lines.open("ab") as file:
            file.write(b'{"record":"conversation","cell_id":"torn')
    spec = request_for(tiny_target, small_suite, drafters=drafters)
    run(spec, output_path=tmp_path / "killed")
    assert tables(tmp_path / "killed") == undisturbed


def test_a_script_without_a_main_guard_runs_once(
    tiny_target: Path, small_suite: Path, tmp_path: Path
) -> None:
    script = tmp_path / "plain.py"
    options = f"target={str(tiny_target)!r}, suites=[{str(small_suite)!r}], drafters=['autoregressive']"
    script.write_text(
        "from hyflash_bench import run\nprint('started')\n"
        f"print(len(run({options}, limit=1, mode='replay', output_path='out').cells), 'cells')\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == ["started", "2 cells", ""]


patient_run = Supervisor.run


def impatient(self, work):
    """Wait long for a worker to start and not for one that works."""
    self._timeout_s = 8.0
    try:
        return patient_run(self, work)
    finally:
        self._timeout_s = 600.0


BAD_DRAFTERS = """
import os, signal, torch
from hyflash_bench.drafters.base import Draft, Drafter, Requires

class Quiet(Drafter):
    name = "quiet"
    def reset(self): self.seen = 0
    def observe(self, tokens, features): self.seen += len(tokens)
    def draft(self, last_token, budget, sampler, along=None): return Draft.empty()
    def memory(self): return []

class Raises(Quiet):
    name = "raises"
    def draft(self, last_token, budget, sampler, along=None): raise ValueError("no idea")

class Greedy(Quiet):
    name = "too-much"
    def draft(self, last_token, budget, sampler, along=None): return Draft.chain([1] * (budget + 1))

class Dies(Quiet):
    name = "dies"
    def draft(self, last_token, budget, sampler, along=None): os.kill(os.getpid(), signal.SIGKILL)

class Hangs(Quiet):
    name = "hangs"
    def draft(self, last_token, budget, sampler, along=None):
        signal.pause()

class Full(Quiet):
    name = "full"
    def draft(self, last_token, budget, sampler, along=None): raise MemoryError("no room")

class Huge(Quiet):
    name = "huge"
    def draft(self, last_token, budget, sampler, along=None): return Draft(torch.empty(10**15))

class HugeWeights(Quiet):
    name = "huge-weights"
    def load(self, context): self.weights = torch.empty(10**15)

class Unloadable(Quiet):
    name = "unloadable"
    def load(self, context): raise ValueError("no weights")

class Undecided(Quiet):
    name = "undecided"
    def skip(self, facts): raise ValueError("no opinion")

class Deeper(Quiet):
    name = "deeper"
    @property
    def requires(self): return Requires(taps=(99,))

class Leaves(Quiet):
    name = "leaves"
    def draft(self, last_token, budget, sampler, along=None): raise KeyboardInterrupt("bye")

class Picky(Quiet):
    name = "picky"
    def skip(self, facts): return "only works on Sundays"
"""


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("Quiet", "error", "proposed no"),
        ("Raises", "error", "ValueError: no idea"),
        ("Greedy", "error", "budget"),
        ("Dies", "error", "SIGKILL"),
        ("Hangs", "timeout", "timeout-s"),
        ("Full", "oom", "no room"),
        ("Huge", "oom", "can't allocate memory"),
        ("HugeWeights", "oom", "load() failed"),
        ("Unloadable", "error", "ValueError: no weights"),
        ("Undecided", "error", "ValueError: no opinion"),
        ("Deeper", "error", "reads layer 99"),
        ("Leaves", "error", "KeyboardInterrupt: bye"),
        ("Picky", "incompatible", "Sundays"),
    ],
)
def test_a_bad_drafter_costs_its_own_rows_only(
    name, status, words, tiny_target, small_suite, tmp_path, monkeypatch
):
    if name == "Hangs":
        monkeypatch.setattr(Supervisor, "run", impatient)
    own = tmp_path / "own.py"
    own.write_text(BAD_DRAFTERS)
    spec = request_for(
        tiny_target,
        small_suite,
        drafters=["autoregressive", f"{own}:{name}", "suffix"],
        temperature=0.0,
        limit=1,
        timeout_s=600.0,
    )
    outcome = run(spec, output_path=tmp_path / "run")
    cells = load_run(tmp_path / "run").cells.set_index("drafter_name")
    assert cells.loc[f"{own}:{name}", "status"] == status
    assert words in cells.loc[f"{own}:{name}", "message"]
    assert cells.loc["autoregressive", "status"] == "ok"
    assert cells.loc["suffix", "status"] == "ok"
    assert outcome.exit_code == (0 if status == "incompatible" else 1)


def test_a_dead_worker_is_replaced_only_when_there_is_work_for_a_new_one(
    tiny_target, small_suite, tmp_path, monkeypatch
):
    own = tmp_path / "own.py"
    own.write_text(BAD_DRAFTERS)
    starts: list[None] = []
    start = Supervisor.start
    monkeypatch.setattr(Supervisor, "start", lambda self: (starts.append(None), start(self))[1])
    spec = request_for(tiny_target, small_suite, drafters=[f"{own}:Dies"], temperature=0.0, limit=1)
    told: list[Event] = []

    outcome = run(spec, output_path=tmp_path / "run", listener=told.append)

    assert outcome.exit_code == 1
    assert len(starts) == 1
    assert not [event for event in told if isinstance(event, WorkerRestarted)]
    two = RunSpec.parse({**spec.to_mapping(), "limit": 2})
    starts.clear()
    run(two, output_path=tmp_path / "two", listener=told.append)
    assert len(starts) == 2
    assert [event.reason for event in told if isinstance(event, WorkerRestarted)]


def test_a_drafter_can_spoil_neither_stdout_nor_the_trace(tiny_target, small_suite, tmp_path, capfd):
    own = tmp_path / "own.py"
    own.write_text(
        BAD_DRAFTERS
        + """
class Vandal(Quiet):
    name = "vandal"
    def observe(self, tokens, features):
        print("LOOK AT ME", flush=True)
        tokens.fill_(7)
    def draft(self, last_token, budget, sampler, along=None):
        if along is not None:
            along.fill_(9)
        return Draft.chain([last_token])
"""
    )
    spec = request_for(tiny_target, small_suite, drafters=[f"{own}:Vandal", "suffix"], limit=1)
    run(spec, output_path=tmp_path / "run")
    assert list(load_run(tmp_path / "run").cells["status"]) == ["ok"] * 4
    printed = capfd.readouterr()
    assert "LOOK AT ME" not in printed.out
    assert "LOOK AT ME" in printed.err


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


def test_a_context_that_does_not_fit_is_a_row(small_suite, tmp_path):
    from tests.tiny import save_tiny_target

    short = save_tiny_target(tmp_path / "short", max_positions=96)
    spec = request_for(short, small_suite, drafters=["autoregressive"], temperature=0.0)
    outcome = run(spec, output_path=tmp_path / "run")
    assert outcome.exit_code == 1, "nothing was measured"
    cells = load_run(tmp_path / "run").cells
    assert list(cells["status"]) == ["incompatible"]
    assert "was made for 96" in cells.loc[0, "message"]
