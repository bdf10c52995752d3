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


def test_a_drafter_that_others_cannot_run_is_written_and_that_is_said(
    tiny_target: Path, tmp_path: Path
) -> None:
    from hyflash_bench.drafters.networks.checkpoint import save_network
    from hyflash_bench.drafters.networks.medusa import MedusaConfig, MedusaNetwork
    from hyflash_bench.drafters.networks.network import TargetShape
    from hyflash_bench.spec.target import TargetSpec
    from hyflash_bench.targets.load import load_target

    context = load_target(TargetSpec(target=str(tiny_target))).load_context()
    config = MedusaConfig(target=TargetShape.of(context), num_slots=2, draft_vocab_size=50)
    save_network(MedusaNetwork(config), tmp_path / "ours", {"drafter": "medusa", "steps": 4})
    (tmp_path / "ours" / "README.md").write_text("# A card\n")
    (tmp_path / "ours" / "foreign.safetensors").write_bytes(b"beside it")
    arguments = [
        "convert",
        str(tmp_path / "ours"),
        "--target",
        str(tiny_target),
        "--to",
        str(tmp_path / "to"),
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "other programs cannot run" in result.output
    assert (tmp_path / "to" / "README.md").read_text() == "# A card\n"
    assert (tmp_path / "to" / "foreign.safetensors").read_bytes() == b"beside it"
    assert '"steps": 4' in (tmp_path / "to" / "config.json").read_text()


def test_a_public_checkpoint_is_left_as_it_is(tiny_target: Path, tmp_path: Path) -> None:
    import json

    from safetensors.torch import save_file
    from torch import ones

    config = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 8,
        "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1, "vocab_size": 259,
        "bias": False,
    }  # fmt: skip
    sizes = {"q": (64, 64), "k": (32, 64), "v": (32, 64), "o": (64, 64)}
    tensors = {f"layers.0.self_attn.{key}_proj.weight": ones(size) for key, size in sizes.items()}
    mlp = {"gate": (8, 64), "up": (8, 64), "down": (64, 8)}
    tensors |= {f"layers.0.mlp.{key}_proj.weight": ones(size) for key, size in mlp.items()}
    tensors |= {"fc.weight": ones(64, 128), "layers.0.post_attention_layernorm.weight": ones(64)}
    (tmp_path / "theirs").mkdir()
    save_file(tensors, tmp_path / "theirs" / "model.safetensors")
    (tmp_path / "theirs" / "config.json").write_text(json.dumps(config))
    arguments = [
        "convert",
        str(tmp_path / "theirs"),
        "--target",
        str(tiny_target),
        "--to",
        str(tmp_path / "to"),
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "in a public layout already" in result.output
    assert not (tmp_path / "to").exists()


def test_a_checkpoint_that_is_not_there_is_named(tmp_path: Path, tiny_target: Path) -> None:
    result = CliRunner().invoke(
        app, ["convert", "nothing", "--target", str(tiny_target), "--to", str(tmp_path / "it")]
    )
    assert result.exit_code == 1
    assert "nothing" in result.output


@pytest.mark.parametrize("arguments", [["convert"], ["convert", "eagle"]])
def test_what_is_missing_is_said(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2
