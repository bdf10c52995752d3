"""``corpus build`` and ``corpus show`` as typed."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from hyflash_bench.cli.corpus import build, command, show
from hyflash_bench.cli.main import app
from hyflash_bench.spec.yaml import dump_yaml, load_yaml
from tests.training.corpus.conftest import folder, recipe_values

__all__ = ["folder"]

OPTIONS = {
    build: "--backend --debug --device --dry-run --dtype --features --help --max-tokens --num-threads "
    "--output-path --parts --recipe --seed --taps --target",
    show: "--debug --help --json --sample",
}


@pytest.fixture
def recipe_file(folder: Path) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(dump_yaml(recipe_values()))
    return path


def typed(*words: object) -> Result:
    return CliRunner().invoke(app, ["corpus", *map(str, words)])


@pytest.mark.parametrize("one", [build, show])
def test_options_are_frozen(one: click.Command) -> None:
    params = one.get_params(click.Context(one))

    assert {opt for param in params for opt in param.opts if opt.startswith("--")} == set(
        OPTIONS[one].split()
    )


@pytest.mark.parametrize("name", ["build", "show"])
def test_help_has_examples(name: str) -> None:
    shown = typed(name, "--help").output

    assert f"  hyflash-bench corpus {name}" in shown.partition("Examples:")[2]
    assert name in command.commands


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
def test_a_file_that_is_not_there_is_told_before_anything_is_loaded(
    folder: Path, tmp_path: Path, dry_run: list[str]
) -> None:
    values = recipe_values()
    values["sources"]["rows"] = {"type": "rows", "files": ["nowhere.jsonl"], "licence": "CC0-1.0"}
    recipe, corpus = folder / "recipe.yaml", tmp_path / "corpus"
    recipe.write_text(dump_yaml(values))
    done = typed("build", "--recipe", recipe, "--target", "no-such/target", "--output-path", corpus, *dry_run)
    assert done.exit_code == 1, done.output
    assert "nowhere.jsonl cannot be read" in done.stderr
    assert not corpus.exists()


def test_a_corpus_is_built_continued_and_shown(recipe_file: Path, tiny_target: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    words = ("build", "--recipe", recipe_file, "--target", tiny_target, "--output-path", corpus)

    first = typed(*words, "--parts", "documents, self-talk", "--num-threads", 1)
    assert first.exit_code == 0, first.output
    assert first.stdout == f"{corpus}\n"
    assert "self-talk: 0 of about 960 tokens" in first.stderr
    assert typed(*words, "--num-threads", 1).exit_code == 0

    shown = typed("show", corpus, "--sample", 2)
    assert shown.exit_code == 0, shown.output
    assert "self-talk" in shown.stdout
    assert shown.stdout.count("--- document") == 2
    described = json.loads(typed("show", corpus, "--json").stdout)
    assert [part["name"] for part in described["parts"]] == ["documents", "answers", "self-talk"]
    assert all(part["tokens"] > 0 for part in described["parts"])

    other = typed(*words, "--seed", 5)
    assert other.exit_code == 1
    assert "another recipe" in other.stderr


def test_a_dry_run_prints_the_plan_and_builds_nothing(recipe_file: Path, tmp_path: Path) -> None:
    done = typed("build", "--recipe", recipe_file, "--output-path", tmp_path / "no", "--dry-run", "--seed", 3)

    assert done.exit_code == 0, done.output
    assert load_yaml(done.stdout, "stdout")["seed"] == 3
    assert "self-talk: about 960 tokens" in done.stderr
    assert not (tmp_path / "no").exists()


def test_features_are_stated_kept_and_found_by_train(
    recipe_file: Path, tiny_target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYFLASH_BENCH_CACHE", str(tmp_path / "cache"))
    corpus = tmp_path / "corpus"
    words = ("build", "--recipe", recipe_file, "--target", tiny_target, "--output-path", corpus, "--features")

    planned = typed(*words, "--dry-run")
    assert planned.exit_code == 0, planned.output
    assert "Features of about 11,728 tokens take 4.29 MiB of disk, 384 bytes a token" in planned.stderr
    assert load_yaml(planned.stdout, "stdout")["seed"] == 0
    assert not corpus.exists()

    built = typed(*words, "--taps", "0,1", "--num-threads", 1)
    assert built.exit_code == 0, built.output
    assert "of disk, 384 bytes a token" in built.stderr
    train = ("train", "eagle", "--corpus", corpus, "--target", tiny_target, "--draft-vocab-size", 64)
    told = CliRunner().invoke(app, [*map(str, train), "--held-out-share", "0.4", "--dry-run"])
    assert told.exit_code == 0, told.output
    assert "0 B of it still to be computed" in told.stderr

    assert "add --features" in typed("build", "--recipe", recipe_file, "--taps", "1").stderr
    assert "has layers 0 to 1" in typed(*words, "--taps", "5", "--dry-run").stderr
    assert "no list of layers" in typed(*words, "--taps", "a").stderr


def test_mistakes_are_one_message(recipe_file: Path, tmp_path: Path) -> None:
    unknown = typed("build", "--recipe", recipe_file, "--parts", "answer")
    assert unknown.exit_code == 2
    assert "Did you mean 'answers'?" in unknown.stderr
    recipe_file.write_text("waves: 3\n")
    assert "unknown key 'waves'" in typed("build", "--recipe", recipe_file).stderr
    assert typed("build", "--recipe", tmp_path / "none.yaml").exit_code == 2
    missing = typed("show", tmp_path)
    assert missing.exit_code == 1
    assert "hyflash-bench corpus build" in missing.stderr
