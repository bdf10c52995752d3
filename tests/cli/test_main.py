"""The program as a whole: help, laziness, errors, exit codes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hyflash_bench.cli import base
from hyflash_bench.cli.main import COMMANDS, app
from hyflash_bench.errors import DataError, UsageError

ROOT = Path(__file__).parents[2]
LIGHT = {"click", "hyflash_bench"}
SLOW = {"asyncio", "importlib.metadata", "multiprocessing", "ssl", "urllib.request"}
"""Of the standard library, what a help text has no use for and takes a while to import."""

OPTIONS = {
    "run": "--allow-simulated --attention --backend --cap-kind --cap-policy --config --context "
    "--contexts --data --debug --device --devices --draft-budget --drafter --drafter-kv-dtype --drafters "
    "--dry-run --dtype --extrapolate --fresh --help --kind --kinds --kv-dtype --limit --max-new-tokens "
    "--memory-cap --memory-caps --mode --num-threads --output-path --repeats --seed "
    "--skip-bad-rows --target --temperature --timeout-s --top-k --top-p --trust-remote-code --weight-bits "
    "--workers",
    "fit": "--confirm --context --contexts --debug --device --devices --draft-budget --drafter --drafters "
    "--help --json --kv-dtype --memory-cap --memory-caps --output --run --speeds --target --weight-bits "
    "--weights-bits",
    "calibrate": "--backend --debug --dtype --help --json --num-threads --output",
    "simulate": "--against-measured --debug --device --devices --help --json --kv-dtype --output "
    "--weight-bits",
    "corpus": "--debug --help",
    "train": "--backend --config --corpus --debug --decay --device --draft-vocab-size --drafter "
    "--drafters --dry-run --ema --evaluate-every --feature-dtype --fill-features --held-out-share --help "
    "--init-from --init-without --learning-rate --long-share --match --max-minutes --max-segment-tokens "
    "--num-anchors --num-threads --output-path --precision --save-every-s --seed --segment-tokens --steps "
    "--taps --target --token-share --trust-remote-code",
    "convert": "--debug --help --target --to",
    "quality": "--add-bos-token --apply-chat-template --backend --batch-size --debug --device --draft-budget "
    "--drafter --drafters --dtype --extrapolate --fresh --help --include-path --json --length --lengths "
    "--limit --max-new-tokens --num-fewshot --num-threads --output-path --seed --target --task --tasks",
    "show": "--debug --help --json",
    "report": "--debug --help --images --include-host --output --split-assets --title",
    "publish": "--debug --help --include-host --remove --title --to",
    "ls": "--debug --help --json --verbose",
    "check": "--debug --help --json --limit --max-new-tokens --suite --target",
    "validate": "--data --debug --help --json --skip-bad-rows --target",
    "doctor": "--debug --help --json",
    "fetch": "--debug --help --target",
    "compare": "--allow-different --debug --fail-if --help --json --metric --metrics --output",
    "claims": "--backend --context --contexts --debug --device --dry-run --file --fresh --help --json "
    "--limit --max-new-tokens --num-threads --output --output-path --run --target --workers",
    "export": "--column --debug --format --help --table --to",
    "import": "--before --debug --drafter --format --fresh --help --output-path --plain --suite --target "
    "--temperature",
}


def _command(name: str) -> click.Command:
    command = app.get_command(click.Context(app), name)
    assert command is not None
    return command


@pytest.mark.parametrize("name", COMMANDS)
def test_options_are_frozen(name: str) -> None:
    """Scripts rely on them: a change here is a change for users."""
    command = _command(name)
    params = command.get_params(click.Context(command))
    found = {opt for param in params for opt in param.opts if opt.startswith("--")}

    assert found == set(OPTIONS[name].split())


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_imports_click_and_nothing_else(name: str) -> None:
    """So it answers at once, whatever else is installed."""
    code = (
        "import sys\nbefore = set(sys.modules)\nfrom hyflash_bench.cli.main import app\n"
        f"try: app({[*filter(None, [name]), '--help']!r})\n"
        "except SystemExit as end: assert not end.code\n"
        "new = set(sys.modules) - before\n"
        "others = {m.partition('.')[0] for m in new} - sys.stdlib_module_names\n"
        f"print(*sorted((others - {LIGHT!r}) | (new & {SLOW!r})), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    assert done.stderr.strip() == ""
    assert done.stdout.startswith("Usage:")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_and_why_with_an_example(name: str) -> None:
    """First sentence what, then when to use it, then something to copy."""
    shown = CliRunner().invoke(app, [name, "--help"]).output

    assert "Use it" in shown
    assert f"  hyflash-bench {name}" in shown.partition("Examples:")[2]


def test_commands_are_listed_in_order_of_use() -> None:
    """The first command of a new user comes first."""
    shown = CliRunner().invoke(app, ["--help"]).output.partition("Commands:")[2]

    assert [line.split()[0] for line in shown.splitlines() if line.startswith("  ")][: len(COMMANDS)] == [
        *COMMANDS
    ]


def test_unknown_command_is_a_usage_error_with_an_offer() -> None:
    """click says which name is near."""
    done = CliRunner().invoke(app, ["reprot"])

    assert done.exit_code == 2
    assert "Did you mean 'report'?" in done.output


def _failing(error: BaseException) -> click.Group:
    @base.command("fail", examples=())
    def fail() -> None:
        raise error

    group = base.LazyGroup("app")
    group.get_command = lambda ctx, name: fail  # type: ignore[method-assign]
    group.params.append(base.debug_option())
    return group


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UsageError("no such thing"), 2, "Error: no such thing"),
        (DataError("damaged"), 1, "Error: damaged"),
        (PermissionError(13, "Permission denied", "x"), 1, "Error: [Errno 13] Permission denied: 'x'"),
        (
            OSError(errno.ENAMETOOLONG, "File name too long", "x" * 300),
            2,
            f"Error: A name is longer than this system allows: '{'x' * 40}'... (300 characters). "
            "Give a shorter one.",
        ),
        (KeyboardInterrupt(), 130, "Interrupted."),
    ],
)
def test_errors_are_one_message_and_an_exit_code(error: BaseException, code: int, message: str) -> None:
    """No traceback for what the user can mend."""
    done = CliRunner().invoke(_failing(error), ["fail"])

    assert done.exit_code == code
    assert done.stderr.strip() == message
    assert done.stdout == ""


@pytest.mark.parametrize("words", [["--debug", "fail"], ["fail", "--debug"]])
def test_debug_adds_the_traceback(words: list[str]) -> None:
    """Before or after the command; the exit code stays."""
    done = CliRunner().invoke(_failing(UsageError("no such thing")), words)

    assert done.exit_code == 2
    assert "Traceback" in done.stderr
    assert done.stderr.strip().endswith("Error: no such thing")


def test_a_bug_is_not_hidden() -> None:
    """Anything else than a user's error keeps its traceback."""
    done = CliRunner().invoke(_failing(ZeroDivisionError()), ["fail"])

    assert isinstance(done.exception, ZeroDivisionError)


def test_unknown_log_level_names_the_allowed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is named, and what it may hold."""
    monkeypatch.setenv("HYFLASH_BENCH_LOG_LEVEL", "loud")

    done = CliRunner().invoke(app, ["ls", "drafters"])

    assert done.exit_code == 2
    assert "HYFLASH_BENCH_LOG_LEVEL='loud'" in done.output
    assert "debug, info, warning, error" in done.output


def test_a_name_that_is_not_utf8_is_refused() -> None:
    done = CliRunner().invoke(app, ["show", os.fsdecode(b"run-\xff")])

    assert done.exit_code == 2
    assert "is not UTF-8 text" in done.output


@pytest.mark.parametrize("words", [("train",), ("corpus", "build"), ("claims",)])
def test_a_device_where_a_backend_is_meant_is_pointed_there(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*words, "--device", "cuda"])
    assert result.exit_code == 2
    assert "--backend cuda" in result.output


@pytest.mark.parametrize(
    "words",
    [
        ("run", "quick", "--target", "~no-one/x"),
        ("run", "quick", "--drafter", "~no-one/x"),
        ("run", "quick", "--drafter", "~no-one/x.py:Mine"),
        ("run", "quick", "--data", "~no-one/x"),
        ("run", "quick", "--device", "~no-one/x.yaml"),
        ("run", "~no-one/x.yaml"),
        ("fit", "--target", "~no-one/x"),
    ],
)
def test_the_home_of_nobody_is_a_path_to_nothing(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, words)

    assert done.exit_code == 2
    assert "~no-one/x" in done.output
