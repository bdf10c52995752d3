"""``simulate``: tables, files, and one message for a mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hyflash_bench.cli.main import app
from hyflash_bench.spec.device import device_names
from tests.analysis.test_simulated import INFO
from tests.results.factory import DRAFTERS, make_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_run(tmp_path_factory.mktemp("runs") / "demo", DRAFTERS, num_per_group=2, target=INFO))


def simulate(*words: str) -> Any:
    return CliRunner().invoke(app, ["simulate", *words])


def test_tables_name_what_is_simulated_and_what_is_measured(run: str):
    result = simulate(run, "--device", "raspberry-pi-5-8gb")
    assert result.exit_code == 0, result.output
    words = " ".join(result.stdout.split())
    assert "with the acceptance that was measured" in words
    assert "simulated tok/s" in words
    assert "simulated plain tok/s" in words
    assert "3 assumption" in result.stderr


def test_all_shipped_devices_are_the_default(run: str):
    document = json.loads(simulate(run, "--json").stdout)
    assert {row["device"] for row in document["simulated"]} == set(device_names())
    assert len(document["devices"]) == len(device_names())


def test_files(run: str, tmp_path: Path):
    for words in ((), ("--against-measured",)):
        path = tmp_path / "out.csv"
        assert simulate(run, "--device", "h200", "-o", str(path), *words).exit_code == 0
        assert path.read_text().startswith("device,suite,sampling,drafter,context_rung,num_steps,measured_")


def test_fewer_bits_and_another_cache(run: str):
    speeds = []
    for words in ((), ("--weight-bits", "4", "--kv-dtype", "int8")):
        document = json.loads(simulate(run, "--device", "iphone-15-pro", "--json", *words).stdout)
        speeds.append(document["simulated"][0]["simulated_tok_per_s"])
    assert speeds[1] > 3 * speeds[0]


def test_the_simulator_s_error_is_told(run: str):
    result = simulate(run, "--device", "h200", "--against-measured")
    assert result.exit_code == 0, result.output
    assert "Median absolute error" in result.stdout
    document = json.loads(simulate(run, "--device", "h200", "--against-measured", "--json").stdout)
    assert document["median_absolute_error_share"] > 0
    assert len(document["against_measured"]) == 5 * len(DRAFTERS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--device", "h100"), "Did you mean 'h200'?"),
        (("--against-measured",), "Name it: --device host"),
        (("--device", "h200", "--against-measured", "--weight-bits", "4"), "Drop --weight-bits"),
        (("--weight-bits", "5"), "'5' is not one of"),
        (("--device", "h200", "-o", "out.html"), "Unknown export format"),
    ],
)
def test_mistakes_get_one_message(run: str, words: tuple[str, ...], message: str):
    result = simulate(run, *words)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_a_run_that_does_not_know_its_target_cannot_be_simulated(tmp_path: Path):
    folder = make_run(tmp_path / "old", DRAFTERS[:1], num_per_group=1)
    result = simulate(str(folder), "--device", "h200")
    assert result.exit_code == 1
    assert "hidden_size" in result.output
