"""Enforced caps on real workers: what does not fit ends as a row, and the run goes on."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pandas as pd
import pytest

from hyflash_bench.errors import UsageError
from hyflash_bench.memory.limits import enforcement_available
from hyflash_bench.report.page import write_report
from hyflash_bench.results.reader import load_run
from hyflash_bench.runner.events import Event, PhaseStarted, WorkerRestarted
from hyflash_bench.runner.run import Outcome, run
from hyflash_bench.runner.supervisor import Supervisor
from tests.runner.requests import request_for

KIND = enforcement_available()
CAP = 96 * 2**20
denied = pytest.mark.skipif(KIND == "cgroup", reason="a cgroup denies nothing: the kernel ends who breaks it")

pytestmark = pytest.mark.skipif(
    KIND is None or sys.platform == "darwin", reason="this system enforces no memory limit on a process"
)

TALKS = """
category: chat
conversations:
  - id: short
    turns: ["Hello there."]
  - id: long
    turns: ["Hello there.", "And again.", "Once more."]
"""
DRAFTERS = """
import os, resource, torch
from hyflash_bench.drafters.base import Draft, Drafter, Held

def is_limited():
    kinds = (resource.RLIMIT_DATA, resource.RLIMIT_AS)
    return any(resource.getrlimit(kind)[0] != resource.RLIM_INFINITY for kind in kinds)

class Grows(Drafter):
    '''Holds 6 MiB more with every reading, so that one turn fits.'''
    name = "grows"
    def reset(self): self.held = []
    def observe(self, tokens, features): self.held.append(torch.ones(6 * 2**18))
    def draft(self, last_token, budget, sampler, along=None): return Draft.chain([last_token])
    def memory(self): return [Held("buffer", tensor) for tensor in self.held]

class Heavy(Grows):
    name = "heavy"
    def load(self, context): self.weights = torch.ones(2**26)
    def observe(self, tokens, features): pass

class Aborts(Grows):
    '''Native code that does not look whether it got its memory.'''
    name = "aborts"
    def observe(self, tokens, features):
        if is_limited(): os.abort()
"""


@pytest.fixture(scope="module")
def capped(
    tiny_target: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Outcome, list[Event], int, pd.DataFrame, pd.DataFrame]:
    """One run with an enforced cap: outcome, events, workers started, cells and conversations."""
    from tests.runner.conftest import write_suite

    base = tmp_path_factory.mktemp("capped")
    own = base / "own.py"
    own.write_text(DRAFTERS)
    names = ("Grows", "Heavy", "Aborts")
    suite = write_suite(base)
    (base / "talks" / "talks.yaml").write_text(TALKS)
    spec = request_for(
        tiny_target,
        suite,
        drafters=[f"{own}:{name}" for name in names],
        temperature=0.0,
        memory_caps=[f"{CAP}B"],
        cap_kind="enforced",
    )
    events: list[Event] = []
    started: list[None] = []
    start = Supervisor.start
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Supervisor, "start", lambda self: (started.append(None), start(self))[1])
        outcome = run(spec, output_path=base / "run", listener=events.append)
    loaded = load_run(base / "run")
    short = {f"{own}:{name}": name for name in names}
    cells, conversations = (
        frame.assign(drafter=frame["drafter"].replace(short))
        for frame in (loaded.cells, loaded.conversations)
    )
    return outcome, events, len(started), cells, conversations


def of(frame: pd.DataFrame, drafter: str, *, capped: bool = True) -> pd.DataFrame:
    """Rows of a drafter, with the cap or without."""
    return frame[(frame["drafter"] == drafter) & (frame["memory_cap_bytes"].notna() == capped)]


def test_without_the_cap_everything_runs(capped):
    _, _, _, cells, conversations = capped
    uncapped = cells[cells["memory_cap_bytes"].isna()]
    assert set(uncapped["status"]) == {"ok"}
    assert conversations[conversations["memory_cap_bytes"].isna()]["enforced_by"].isna().all()


def test_what_fits_is_measured_and_what_does_not_says_how_far_it_came(capped):
    _, _, _, cells, conversations = capped
    rows = of(conversations, "Grows").set_index("item_id")
    assert list(rows.loc[["small/talk/short", "small/talk/long"], "status"]) == ["ok", "oom"]
    assert set(rows["enforced_by"]) == {KIND}
    breach = rows.loc["small/talk/long"]
    assert "out of memory" in breach["message"]
    assert CAP // 2 < breach["peak_bytes"] <= CAP
    assert breach["context_reached"] > 0
    assert set(of(cells, "Grows")["cap_kind"]) == {"enforced"}


def test_a_drafter_that_does_not_fit_is_out_of_memory_before_it_runs(capped):
    _, _, _, _, conversations = capped
    rows = of(conversations, "Heavy")
    assert list(rows["status"]) == ["oom"] * 2
    reason = "SIGKILL" if KIND == "cgroup" else r"load\(\) failed"
    assert rows["message"].str.contains(reason).all()


@denied
def test_a_worker_that_the_cap_ends_is_replaced_and_does_not_loop(capped):
    _, events, num_started, _, conversations = capped
    rows = of(conversations, "Aborts")
    assert list(rows["status"]) == ["oom"] * 2
    assert rows["message"].str.contains("ended by SIGABRT").all()
    assert set(rows["enforced_by"]) == {KIND}
    assert rows["peak_bytes"].notna().all()
    # One without a cap, one for each of three drafters under it, and one in the place of one that died.
    assert num_started == 5
    assert len([event for event in events if isinstance(event, WorkerRestarted)]) == 1


@denied
def test_the_target_answers_once_and_is_walked_under_the_cap(capped):
    _, events, _, _, _ = capped
    phases = [event.phase for event in events if isinstance(event, PhaseStarted)]
    assert phases.count("trace") == 2
    assert phases.count("prefill") == 2 * 2  # one drafter of three did not load


@denied
def test_the_report_shows_what_did_not_fit(capped, tmp_path):
    outcome, _, _, _, _ = capped
    page = write_report(load_run(outcome.path), tmp_path / "report.html", split_assets=True).read_text()
    assert re.search(r"\boom\b", page)
    assert "load() failed" in page


@denied
def test_not_fitting_is_a_result_and_no_failure(capped):
    outcome, _, _, _, _ = capped
    assert outcome.num_cells == {"ok": 3, "capped": 3}
    assert outcome.exit_code == 0


def test_a_cap_below_the_weights_starts_no_worker(tiny_target, small_suite, tmp_path, monkeypatch):
    monkeypatch.setattr(Supervisor, "start", lambda self: pytest.fail("started"))
    spec = request_for(tiny_target, small_suite, memory_caps=["4KiB"], cap_kind="enforced")
    with pytest.raises(UsageError, match="below the target's weights"):
        run(spec, output_path=tmp_path / "run")
