"""``convert`` writes a checkpoint that ``run`` takes as a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from hyflash_bench.cli.main import app


def test_help_has_examples() -> None:
    result = CliRunner().invoke(app, ["convert", "--help"])
    assert result.exit_code == 0
    assert "convert my-training/eagle --to eagle-speculators" in result.output


def test_a_trained_eagle_is_converted_and_run(tiny_target: Path, tmp_path: Path) -> None:
    from hyflash_bench.drafters.networks.checkpoint import save_network
    from hyflash_bench.drafters.networks.eagle import EagleConfig, EagleNetwork
    from hyflash_bench.drafters.networks.network import TargetShape
    from hyflash_bench.results import load_run
    from hyflash_bench.spec.target import TargetSpec
    from hyflash_bench.targets.load import load_target

    context = load_target(TargetSpec(target=str(tiny_target))).load_context()
    config = EagleConfig(
        target=TargetShape.of(context), num_slots=3, draft_vocab_size=200, taps=(0,),
        last_hidden=False, token_residual=False, intermediate_size=32,
    )  # fmt: skip
    save_network(EagleNetwork(config), tmp_path / "ours", {"drafter": "eagle"})
    runner = CliRunner()
    to = str(tmp_path / "theirs")
    converted = runner.invoke(
        app, ["convert", str(tmp_path / "ours"), "--target", str(tiny_target), "--to", to]
    )
    assert converted.exit_code == 0, converted.output
    assert "model.safetensors" in converted.output
    ran = runner.invoke(
        app,
        [
            *("run", "quick", "--target", str(tiny_target), "--limit", "1", "--max-new-tokens", "6"),
            *("--drafter", "autoregressive", "--drafter", f"{to}:num_draft_tokens=2"),
            *("--output-path", str(tmp_path / "run")),
        ],
    )  # fmt: skip
    assert ran.exit_code == 0, ran.output
    turns = load_run(tmp_path / "run").turns
    live = turns[(turns["mode"] == "live") & turns["drafter"].str.startswith("eagle:")]
    assert not live.empty
    assert set(live["lossless"]) == {"identical", "not_judged"}  # greedy and sampled


def test_a_drafter_that_cannot_be_expressed_says_why(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["convert", "eagle", "--to", str(tmp_path / "it")])
    assert result.exit_code == 1
    assert "cannot express this drafter" in result.output


def test_a_checkpoint_that_is_not_there_is_named(tmp_path: Path, tiny_target: Path) -> None:
    result = CliRunner().invoke(
        app, ["convert", "nothing", "--target", str(tiny_target), "--to", str(tmp_path / "it")]
    )
    assert result.exit_code == 1
    assert "nothing" in result.output


@pytest.mark.parametrize("arguments", [["convert"], ["convert", "eagle"]])
def test_what_is_missing_is_said(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2
