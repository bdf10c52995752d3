"""``run``: from words to a request, and what comes back."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import click
import pytest
from click.testing import CliRunner, Result

from hyflash_bench.cli.main import app
from hyflash_bench.cli.run import stoppable
from hyflash_bench.runner import events
from hyflash_bench.runner import run as runner
from hyflash_bench.spec.baselines import shipped_baselines
from hyflash_bench.spec.run import DEFAULT_DRAFTERS, RunSpec
from hyflash_bench.spec.yaml import load_yaml
from tests.results.factory import DRAFTERS, make_run

NOT_IN_SPEC = {"output_path", "config", "fresh", "dry_run", "_click_default_help"}


class Runner:
    """Stands in for the runner and remembers what it was asked."""

    def __init__(self, folder: Path, **outcome: Any) -> None:
        self.folder = folder
        self.outcome = outcome
        self.asked: dict[str, Any] = {}

    def __call__(self, spec: RunSpec, **asked: Any) -> runner.Outcome:
        self.asked = {"spec": spec, **asked}
        asked["listener"](events.Planned(3, 0))
        return runner.Outcome(self.folder, **self.outcome)

    @property
    def spec(self) -> RunSpec:
        """The request."""
        spec = self.asked["spec"]
        assert isinstance(spec, RunSpec)
        return spec


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Runner, Result]]:
    """Call ``run`` with some words; gives the runner's double and the result."""

    def call(*words: str, **outcome: Any) -> tuple[Runner, Result]:
        folder = make_run(tmp_path / "the-run", DRAFTERS, num_per_group=2)
        double = Runner(folder, **outcome)
        monkeypatch.setattr(runner, "run", double)
        return double, CliRunner().invoke(app, ["run", *words])

    return call


def _run_options() -> dict[str, click.Parameter]:
    command = app.get_command(click.Context(app), "run")
    assert command is not None
    return {str(param.name): param for param in command.get_params(click.Context(command))}


def test_every_field_of_the_request_is_an_option_and_nothing_else_is() -> None:
    """One name for a thing as flag, keyword and YAML key."""
    names = {*_run_options()} - NOT_IN_SPEC - {"debug"}

    assert names == set(RunSpec.model_fields)


def test_shown_defaults_are_those_of_the_request() -> None:
    """Help must not import the request to show them, so they are written twice."""
    shown = {
        name: param.help.rpartition("[default: ")[2].rstrip("]")
        for name, param in _run_options().items()
        if isinstance(param, click.Option) and param.help and "[default: " in param.help
    }
    values = {name: field.default for name, field in RunSpec.model_fields.items()}
    for name in ("target", "seed", "repeats", "mode", "draft_budget", "dtype", "backend", "attention",
                 "cap_policy", "cap_kind", "kv_dtype", "drafter_kv_dtype", "weight_bits"):  # fmt: skip
        assert shown[name] == str(values[name])
    assert float(shown["timeout_s"]) == values["timeout_s"]
    labels = [drafter.label for drafter in RunSpec.parse({}).drafters]
    always = [name for name in shown["drafters"].split(", ") if "baselines" not in name]
    assert always == [*DEFAULT_DRAFTERS] == labels[: len(always)]
    trained = [baseline.spec.label for baseline in shipped_baselines("smollm2-135m")]
    assert trained == labels[len(always) :]
    assert RunSpec.parse({"target": "org/other"}).drafters == RunSpec.parse({}).drafters[: len(always)]
    assert (values["trust_remote_code"], values["extrapolate"]) == (False, False)


@pytest.mark.parametrize(
    "name",
    ["mode", "dtype", "attention", "cap_policy", "cap_kind", "kv_dtype", "drafter_kv_dtype", "weight_bits"],
)
def test_choices_are_those_of_the_request(name: str) -> None:
    """Neither more nor fewer."""
    kind = _run_options()[name].type
    assert isinstance(kind, click.Choice)

    assert tuple(kind.choices) == tuple(map(str, get_args(RunSpec.model_fields[name].annotation)))


def test_flags_become_the_request(measure: Callable[..., tuple[Runner, Result]]) -> None:
    """Repeatable flags feed the plural keys."""
    double, done = measure(
        *("quick", "longctx", "--drafter", "suffix", "--drafter", "prompt-lookup:max_ngram=2"),
        *("--memory-cap", "512MiB", "--context", "2048", "--kinds", "code", "--limit", "2"),
        *("--temperature", "0.7", "--top-p", "0.9", "--extrapolate", "--output-path", "here", "--fresh"),
        *("--device", "h200", "--device", "mine.yaml", "--cap-policy", "no-draft", "--weight-bits", "4"),
        *("--backend", "cuda:1", "--kv-dtype", "int8", "--drafter-kv-dtype", "bfloat16"),
    )

    assert done.exit_code == 0, done.output
    spec = double.spec
    assert spec.suites == ("quick", "longctx")
    assert [drafter.label for drafter in spec.drafters] == ["suffix", "prompt-lookup:max_ngram=2"]
    assert spec.memory_caps == (512 * 2**20,)
    assert (spec.contexts, spec.kinds, spec.limit) == ((2048,), ("code",), 2)
    assert (spec.temperature, spec.top_p, spec.extrapolate) == (0.7, 0.9, True)
    assert (spec.devices, spec.cap_policy, spec.weight_bits) == (("h200", "mine.yaml"), "no-draft", 4)
    assert (spec.backend, spec.kv_dtype, spec.drafter_kv_dtype) == ("cuda:1", "int8", "bfloat16")
    assert (double.asked["output_path"], double.asked["fresh"]) == (Path("here"), True)
    assert double.asked["command"][:4] == ("hyflash-bench", "run", "quick", "longctx")


def test_flags_win_over_the_file_and_the_file_over_the_defaults(
    measure: Callable[..., tuple[Runner, Result]], tmp_path: Path
) -> None:
    """defaults < --config < flags."""
    config = tmp_path / "run.yaml"
    config.write_text("suites: [longctx]\nseed: 3\nlimit: 9\nextrapolate: true\n")
    double, done = measure("--config", str(config), "--limit", "1", "--no-extrapolate")

    assert done.exit_code == 0, done.output
    spec = double.spec
    assert (spec.suites, spec.seed, spec.limit, spec.extrapolate) == (("longctx",), 3, 1, False)
    assert spec.repeats == 1


def test_a_wrong_key_in_the_file_names_file_and_nearest_key(
    measure: Callable[..., tuple[Runner, Result]], tmp_path: Path
) -> None:
    """A typo is an error, never a default."""
    config = tmp_path / "run.yaml"
    config.write_text("drafter: [suffix]\n")
    _, done = measure("--config", str(config))

    assert done.exit_code == 2
    assert "run.yaml" in done.stderr
    assert "did you mean 'drafters'" in done.stderr


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        ({"num_cells": {"ok": 3}}, 0),
        ({"num_cells": {"ok": 2, "error": 1}}, 1),
        ({"interrupted": True}, 130),
    ],
)
def test_stdout_is_the_folder_alone_and_the_exit_code_tells_the_outcome(
    measure: Callable[..., tuple[Runner, Result]], outcome: dict[str, Any], code: int
) -> None:
    """``hyflash-bench report $(hyflash-bench run ...)`` works."""
    double, done = measure("quick", **outcome)

    assert done.exit_code == code
    assert done.stdout == f"{double.folder}\n"
    assert "3 conversations" in done.stderr


def test_dry_run_prints_yaml_that_can_be_fed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan goes to stderr, the resolved request to stdout."""

    class Plan:
        def __init__(self, spec: RunSpec) -> None:
            self.spec = spec

        def describe(self) -> dict[str, Any]:
            """As the runner's own."""
            return {"num_cells": 4, "estimated_s": 600, "resolved": self.spec.to_mapping()}

    monkeypatch.setattr(runner, "preview", lambda spec, **_: Plan(spec))
    done = CliRunner().invoke(app, ["run", "longctx", "--memory-cap", "1GiB", "--seed", "7", "--dry-run"])

    assert done.exit_code == 0, done.output
    spec = RunSpec.parse(load_yaml(done.stdout, "stdout"))
    assert (spec.suites, spec.memory_caps, spec.seed) == (("longctx",), (2**30,), 7)
    assert "estimated time: 10 min" in done.stderr


def test_a_terminated_run_ends_as_an_interrupted_one() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), stoppable():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
