"""Going on: what is there already is not measured again, whatever ended the run before."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hyflash_bench.results.layout import Layout
from hyflash_bench.results.reader import load_run
from hyflash_bench.runner.events import ConversationFinished, Event, PhaseStarted
from hyflash_bench.runner.remembered import remembered
from hyflash_bench.runner.run import run
from hyflash_bench.spec.run import RunSpec
from tests.runner.requests import request_for, stable, tables


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
