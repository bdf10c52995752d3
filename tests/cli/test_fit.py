"""``fit``: tables from a configuration alone, and messages before anything is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hyflash_bench.cli.main import app
from hyflash_bench.spec.device import device_names
from tests.results.factory import DRAFTERS, make_run

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "max_position_embeddings": 131072,
}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("fit") / "llama-8b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return str(folder)


def fit(*words: str) -> Result:
    return CliRunner().invoke(app, ["fit", *words])


def document(*words: str) -> Any:
    result = fit(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_model_too_large_to_load_is_planned_for(target: str):
    found = document("--target", target, "--drafter", "hyflash", "--memory-cap", "24GiB", "--context", "8192")
    assert found["target"]["num_parameters"] == 8_030_261_248
    assert found["target"]["weight_bytes"] == 4 * 8_030_261_248
    assert {row["drafter"] for row in found["limits"]} == {"autoregressive", "hyflash"}
    assert {row["limited_by"] for row in found["limits"]} == {"weights"}
    assert {row["verdict"] for row in found["verdicts"]} == {"does not fit"}


def test_no_room_is_said_with_the_way_out(target: str):
    told = fit("--target", target, "--memory-cap", "24GiB", "--memory-cap", "64GiB", "--drafter", "hyflash")
    assert told.exit_code == 0, told.output
    (line,) = [line for line in told.stderr.splitlines() if "leave no room" in line]
    assert line.startswith("24GiB: weights alone leave no room for a context, with autoregressive, hyflash.")
    assert "--weight-bits" in line


def test_fewer_bits_make_it_fit(target: str):
    words = ("--target", target, "--memory-cap", "8GiB", "--weight-bits", "4")
    longest = [
        document(*words, "--kv-dtype", dtype)["limits"][0]["memory_context"] for dtype in ("auto", "int8")
    ]
    assert 0 < longest[0] < longest[1]


def test_all_devices_are_the_default(target: str):
    found = document("--target", target)
    assert {row["budget"] for row in found["limits"]} == set(device_names())
    assert len({row["context_length"] for row in found["verdicts"]}) == 9
    assert "simulated" not in found


def test_tables_for_people(target: str):
    result = fit("--target", target, "--weight-bits", "4", "--device", "iphone-15-pro", "--speeds")
    assert result.exit_code == 0, result.output
    assert "Longest context of llama-8b" in result.stdout
    assert "Simulated: plain decoding" in result.stdout
    assert "without drafter" in result.stdout or "fits" in result.stdout
    assert "about 240 bytes a token" in result.stderr


def test_simulated_numbers_carry_their_name(target: str):
    rows = document("--target", target, "--device", "h200", "--context", "1024", "--speeds")["simulated"]
    assert len(rows) == 1
    assert all(name in ("device", "context_length") or name.startswith("simulated_") for name in rows[0])


def test_files(target: str, tmp_path: Path):
    words = ("--target", target, "--memory-cap", "40GiB", "--context", "100")
    for name in ("out.json", "out.csv", "out.md"):
        assert fit(*words, "-o", str(tmp_path / name)).exit_code == 0
    assert json.loads((tmp_path / "out.json").read_text())["target"]["name"] == "llama-8b"
    assert (tmp_path / "out.csv").read_text().startswith("budget,budget_bytes,drafter,largest_context")


def test_a_device_of_ones_own(target: str, tmp_path: Path):
    from hyflash_bench.spec.yaml import dump_yaml
    from tests.spec.test_device import GOOD

    path = tmp_path / "toaster.yaml"
    path.write_text(dump_yaml(GOOD))
    found = document("--target", target, "--device", str(path))
    assert {row["budget"] for row in found["limits"]} == {"toaster"}


def test_a_run_says_which_drafters(target: str, tmp_path: Path):
    run = make_run(tmp_path / "a-run", DRAFTERS[:2], num_per_group=2)
    found = document("--run", str(run), "--target", target, "--device", "h200", "--weight-bits", "4")
    assert {row["drafter"] for row in found["limits"]} == {"autoregressive", "prompt-lookup"}


def test_limits_are_confirmed_only_where_the_target_runs_as_planned(target: str):
    result = fit("--target", target, "--memory-cap", "8GiB", "--weight-bits", "4", "--confirm")
    assert result.exit_code == 2
    assert "Drop --weight-bits and --kv-dtype" in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--device", "iphone-15"), "Did you mean 'iphone-15-pro'?"),
        (("--memory-cap", "1GiB", "--speeds"), "Add --device PROFILE"),
        (("--device", "nowhere.yaml"), "No file nowhere.yaml"),
        (("--memory-cap", "512"), "not a number with a unit"),
        (("--memory-cap", "0MiB"), "at least 1B"),
        (("--memory-cap", "-1GiB"), "is negative"),
        (("--drafter", "hyflsh"), "Did you mean 'hyflash'?"),
        (("--drafter", "eagle:checkpoint=nowhere"), "no checkpoint 'nowhere'"),
        (("--target", "smollm"), "Unknown target 'smollm'"),
        (("--context", "0"), "0 is not in the range"),
        (("--weight-bits", "5"), "'5' is not one of"),
        (("-o", "out.txt"), "Unknown format of tables '.txt'"),
    ],
)
def test_mistakes_get_one_message(words: tuple[str, ...], message: str, target: str):
    given = words if "--target" in words else ("--target", target, *words)
    result = fit(*given)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output
