"""``check``: what is read off a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hyflash_bench import registry
from hyflash_bench.cli import contract
from hyflash_bench.cli.main import app
from hyflash_bench.console import Check
from hyflash_bench.results.reader import load_run
from hyflash_bench.runner import run as runner
from hyflash_bench.spec.run import RunSpec
from tests.results.factory import DRAFTERS, FAILING, FakeDrafter, make_run

STEADY = FakeDrafter("steady", 4, keep=1.0)
DRIFTING = FakeDrafter("drifting", 4, keep=0.5)


def _greedy_run(folder: Path, drafters: Sequence[FakeDrafter]) -> Path:
    """As ``check`` runs it: greedy, without a cap."""
    make_run(folder, drafters, num_per_group=2)
    manifest = json.loads((folder / "manifest.json").read_text())
    cells = [
        cell for cell in manifest["cells"] if not cell["memory_cap_bytes"] and cell["sampling"] == "greedy"
    ]
    kept = {cell["cell_id"] for cell in cells}
    lines = (folder / "conversations.jsonl").read_text().splitlines(keepends=True)
    (folder / "manifest.json").write_text(json.dumps(manifest | {"cells": cells}))
    (folder / "conversations.jsonl").write_text("".join(x for x in lines if json.loads(x)["cell_id"] in kept))
    return folder


def _judged(folder: Path, drafter: str) -> dict[str, Check]:
    drafters = (*DRAFTERS[:1], *FAILING, STEADY, DRIFTING)
    run = load_run(_greedy_run(folder, drafters))
    return {check.name: check for check in contract.judge(run, drafter)}


def test_a_drafter_that_keeps_the_contract_is_ok_throughout(tmp_path: Path) -> None:
    """It ran, proposed, left the output alone and did the same in replay and live."""
    found = _judged(tmp_path, "steady")

    assert [name for name, check in found.items() if not check.ok] == []
    assert list(found) == ["runs", "proposes", "lossless", "replay equals live"]


@pytest.mark.parametrize(
    ("drafter", "name", "detail"),
    [
        ("crashing", "runs", "error: made up"),
        ("silent", "proposes", "0 tokens"),
        ("leaky", "lossless", "mismatch"),
        ("drifting", "replay equals live", "first difference in "),
    ],
)
def test_what_is_broken_is_found_and_named(tmp_path: Path, drafter: str, name: str, detail: str) -> None:
    """With what to look at."""
    check = _judged(tmp_path, drafter)[name]

    assert not check.ok
    assert detail in check.detail
    assert check.fix


def test_a_drafter_that_always_raises_is_told_off_once(tmp_path: Path) -> None:
    """What could not be looked at is not called a fault of its own."""
    folder = _greedy_run(tmp_path, (*DRAFTERS[:1], STEADY))
    lines = [json.loads(line) for line in (folder / "conversations.jsonl").read_text().splitlines()]
    failed = [
        line | {"status": "error", "message": "ValueError: no idea", "turns": []}
        if line["cell_id"].startswith("steady")
        else line
        for line in lines
    ]
    (folder / "conversations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in failed))

    ran, *others = contract.judge(load_run(folder), "steady")

    assert (ran.ok, ran.detail) == (False, "error: ValueError: no idea")
    assert {(check.ok, check.detail, check.fix) for check in others} == {
        (False, "not run: error: ValueError: no idea", "")
    }
    assert [check.name for check in others] == ["proposes", "lossless", "replay equals live"]


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[list[RunSpec], Result]]:
    """Call ``check`` with neither a target nor a run behind it."""

    def call(*words: str) -> tuple[list[RunSpec], Result]:
        asked: list[RunSpec] = []

        def fake(spec: RunSpec, *, output_path: Path, **_: Any) -> runner.Outcome:
            asked.append(spec)
            return runner.Outcome(_greedy_run(output_path, (*DRAFTERS[:1], STEADY, DRIFTING)))

        monkeypatch.setattr(runner, "run", fake)
        monkeypatch.setattr(registry, "require_drafter", lambda _: None)
        monkeypatch.setattr(
            contract, "keeps_contract", lambda *_: iter([Check("names itself", True, "kept")])
        )
        return asked, CliRunner().invoke(app, ["check", *words])

    return call


def test_check_runs_short_and_greedy_beside_plain_decoding(
    check: Callable[..., tuple[list[RunSpec], Result]],
) -> None:
    """The target can be chosen."""
    asked, done = check("steady", "--target", "org/model", "--json")

    assert done.exit_code == 0, done.output
    assert [drafter.name for drafter in asked[0].drafters] == ["autoregressive", "steady"]
    assert (asked[0].temperature, asked[0].limit, asked[0].target) == (0.0, 1, "org/model")
    assert {one["name"] for one in json.loads(done.stdout)} >= {"names itself", "lossless"}


def test_a_broken_contract_is_exit_code_1(check: Callable[..., tuple[list[RunSpec], Result]]) -> None:
    """For plugin authors' own tests."""
    _, done = check("drifting")

    assert done.exit_code == 1
    assert "warn  replay equals live" in done.stdout


@pytest.mark.parametrize("words", [["sufix"], ["suffix", "--suite", "quikc"]])
def test_mistyped_names_are_told_before_a_target_is_loaded(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "keeps_contract", lambda *_: pytest.fail("loaded"))
    done = CliRunner().invoke(app, ["check", *words])

    assert done.exit_code == 2
    assert "Did you mean" in done.output
