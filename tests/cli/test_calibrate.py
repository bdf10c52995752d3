"""``calibrate``, ``ls devices`` and the device ``host`` that come of it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hyflash_bench.cli.main import app
from hyflash_bench.memory import calibrate as module
from hyflash_bench.runner import environment
from hyflash_bench.spec.device import device_names, read_device
from tests.memory.test_calibrate import SMALL


def invoke(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYFLASH_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "calibrate", partial(module.calibrate, effort=SMALL))
    monkeypatch.setattr(environment, "busy_share", lambda: 0.0)


def test_the_host_is_there_once_it_is_calibrated(tmp_path: Path):
    missing = invoke("fit", "--device", "host", "--target", "smollm2-135m")
    assert missing.exit_code == 2
    assert "hyflash-bench calibrate" in missing.output
    done = invoke("calibrate", "--dtype", "float32")
    assert done.exit_code == 0, done.output
    assert "use it as --device host" in done.stderr
    assert "Passes of 1 to 40 rows" in done.stderr
    assert "overhead layer" in done.stdout or "overhead_layer_s" in done.stdout
    profile = read_device("host")
    assert profile.kind == "host"
    rows = json.loads(invoke("ls", "devices", "--json").stdout)
    assert [row["name"] for row in rows] == [*device_names(), "host"]
    assert all("measured" in basis for basis in rows[-1]["basis"])


def test_another_file_and_a_busy_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(environment, "busy_share", lambda: 0.9)
    path = tmp_path / "mine.yaml"
    done = invoke("calibrate", "-o", str(path), "--dtype", "float32", "--json")
    assert done.exit_code == 0, done.output
    assert "use 90% of this machine" in done.stderr
    assert json.loads(done.stdout)["product_rates"]["float32"]["basis"] == "measured"
    assert read_device(str(path)).product_rates["float32"].flop_per_s
    assert "host" not in [row["name"] for row in json.loads(invoke("ls", "devices", "--json").stdout)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-o", "host.json"), "is a .yaml file"),
        (("--backend", "tpu"), "backend"),
        (("--num-threads", "0"), "0 is not in the range"),
        (("--dtype", "int8"), "'int8' is not one of"),
    ],
)
def test_mistakes_get_one_message(words: tuple[str, ...], message: str):
    result = invoke("calibrate", *words)
    assert result.exit_code == 2
    assert message in result.output


def test_every_number_of_every_device_has_its_source():
    rows = json.loads(invoke("ls", "devices", "-v", "--json").stdout)
    assert {row["name"] for row in rows} == set(device_names())
    assert all(row["source"] and row["basis"] and row["value"] for row in rows)
