"""``train``: from words to a plan, and what comes back."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from hyflash_bench.cli.main import app
from hyflash_bench.spec.yaml import load_yaml
from hyflash_bench.training import events, preview, trainer
from hyflash_bench.training.plan import TrainingPlan

NOT_IN_PLAN = {"more", "output_path", "config", "fill_features", "dry_run", "debug", "device"}


class Trainer:
    """Stands in for the trainer and remembers what it was asked."""

    def __init__(self, ended: str) -> None:
        self.ended = ended
        self.plan: TrainingPlan | None = None
        self.folder: Path | None = None
        self.was_stopped = False
        self.examined: list[dict[str, Any]] = []

    def __call__(self, plan: TrainingPlan, folder: Path, **asked: Any) -> trainer.Outcome:
        self.plan, self.folder = plan, folder
        asked["listener"](events.Said("hello"))
        asked["listener"](events.Stepped(5, 10, {"medusa": None, "eagle": 1.5}, 123.4, 60.0))
        row = {"drafter": "medusa", "step": 5, "acceptance_length": 1.5, "slot_1": 0.5, "tokens_seen": 9}
        asked["listener"](events.Evaluated(5, (row,)))
        for drafter, gain in (("medusa", 0.0), ("eagle", 0.25)):
            span = {"context_from": 80, "context_to": 255, "acceptance_length": 2.0 + gain, "gain": gain}
            errors = {"acceptance_length_error": 0.04, "gain_error": None}
            self.examined.append({"drafter": drafter, **span, **errors})
        asked["listener"](events.Examined(5, tuple(self.examined)))
        if self.ended == "stopped":
            assert not asked["should_stop"](), "after the first step"
        if self.ended in ("stopped", "early"):
            os.kill(os.getpid(), signal.SIGINT)
        self.was_stopped = asked["should_stop"]()
        return trainer.Outcome(folder, 5, self.ended)


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Trainer, Result]]:
    """Call ``train`` with some words; gives the trainer's double and the result."""

    def call(*words: str, ended: str = "finished") -> tuple[Trainer, Result]:
        double = Trainer(ended)
        monkeypatch.setattr(trainer, "train", double)
        return double, CliRunner().invoke(app, ["train", "--corpus", "texts", *words])

    return call


def _options() -> dict[str, click.Parameter]:
    command = app.get_command(click.Context(app), "train")
    assert command is not None
    return {str(param.name): param for param in command.get_params(click.Context(command))}


def test_every_option_is_a_field_of_the_plan() -> None:
    assert {*_options()} - NOT_IN_PLAN - {"_click_default_help", "help"} <= {*TrainingPlan.model_fields}


def test_shown_defaults_are_those_of_the_plan() -> None:
    for name, param in _options().items():
        if isinstance(param, click.Option) and "[default: " in (param.help or ""):
            shown = str(param.help).rpartition("[default: ")[2].rstrip("]")
            value = TrainingPlan.model_fields[name].default if name in TrainingPlan.model_fields else None
            if isinstance(value, float):
                assert float(shown) == value, name
            elif isinstance(value, int | str) and not isinstance(value, bool):
                assert shown == str(value), name


def test_drafters_may_be_words_lists_and_options(train) -> None:
    double, done = train("eagle", "medusa", "--drafters", "hyflash,window:window=32,num_layers=2")
    assert done.exit_code == 0
    assert [drafter.label for drafter in double.plan.drafters] == [
        "hyflash",
        "window:num_layers=2,window=32",
        "eagle",
        "medusa",
    ]


def test_options_win_over_the_file(train, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("corpus: other\nsteps: 7\nseed: 3\n")
    double, _ = train("--config", str(tmp_path / "plan.yaml"), "--steps", "9", "--output-path", "there")
    assert (double.plan.corpus, double.plan.steps, double.plan.seed) == ("texts", 9, 3)
    assert double.folder == Path("there")


def test_the_folder_is_the_only_line_on_stdout(train) -> None:
    double, done = train()
    assert done.stdout.strip() == str(double.folder) == "drafters/smollm2-135m"
    assert "hello" in done.stderr
    assert "[5/10] 123 tok/s, about 60 s left; loss medusa -  eagle 1.500" in done.stderr
    assert "Held out, step 5" in done.stderr


def test_acceptance_by_context_and_the_gains_on_the_first_are_shown(train) -> None:
    shown = train()[1].stderr
    lengths, gains = shown.split("Above medusa")
    assert "80-255" in lengths.replace(" ", "")
    assert re.search(r"medusa +2\.000 ± 0\.040", lengths)
    assert re.search(r"eagle +2\.250 ± 0\.040", lengths)
    assert re.search(r"eagle +\+0\.250", gains)
    assert "medusa" not in gains


def test_ctrl_c_asks_the_trainer_to_stop(train) -> None:
    before = signal.getsignal(signal.SIGINT)
    double, done = train(ended="stopped")
    assert double.was_stopped
    assert done.exit_code == 130
    assert "The same command goes on" in done.stderr
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_before_the_first_step_ends_it_at_once(train) -> None:
    double, done = train(ended="early")
    assert done.exit_code == 130
    assert double.folder is not None
    assert not double.was_stopped


def test_bad_plans_are_usage_errors(train) -> None:
    _, done = train("--steps", "0")
    assert done.exit_code == 2
    assert "steps" in done.stderr
    done = CliRunner().invoke(app, ["train"])
    assert done.exit_code == 2
    assert "'corpus' is missing" in done.stderr


def test_a_dry_run_prints_sizes_and_yaml(train, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"drafter": "medusa", "num_parameters": 12, "full_context": None, "difference": None}
    monkeypatch.setattr(preview, "preview", lambda plan: preview.Preview([row], ["Features take 1 GiB"]))
    double, done = train("--dry-run", "--steps", "4")
    assert double.plan is None
    assert "Features take 1 GiB" in done.stderr
    assert TrainingPlan.parse(load_yaml(done.stdout, "stdout")).steps == 4


def test_features_can_be_filled_beforehand(train, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview, "fill_features", lambda plan, listener: Path("filled"))
    _, done = train("--fill-features")
    assert done.stdout.strip() == "filled"
