"""Drafters that fail in every way: each costs its own rows and nothing else."""

from __future__ import annotations

import pytest

from hyflash_bench.results.reader import load_run
from hyflash_bench.runner.events import Event, WorkerRestarted
from hyflash_bench.runner.run import run
from hyflash_bench.runner.supervisor import Supervisor
from hyflash_bench.spec.run import RunSpec
from tests.runner.requests import request_for

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
