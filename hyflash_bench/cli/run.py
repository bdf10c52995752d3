"""``run``: measure drafters on suites."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hyflash_bench.cli.base import command as declare
from hyflash_bench.cli.base import typed
from hyflash_bench.cli.options import (
    PathType,
    backend_option,
    contexts_option,
    devices_option,
    draft_budget_option,
    drafters_option,
    dtype_option,
    folder_option,
    kv_dtype_option,
    memory_caps_option,
    new_tokens_option,
    option,
    target_option,
    threads_option,
    workers_option,
)

if TYPE_CHECKING:
    from hyflash_bench.spec.run import RunSpec

__all__ = ["command", "show_plan", "stoppable"]


@declare(
    "run",
    examples=(
        "run quick --drafter autoregressive --drafter prompt-lookup:max_ngram=3",
        "run longctx --context 2048 --context 7680 --memory-cap 700MiB --limit 4",
        "run longctx --mode replay --workers 8",
        "run quick --device phone-android-midrange --weight-bits 8 --cap-policy no-draft",
        "run mt-bench --data question.jsonl --limit 10",
        "run --config run.yaml --dry-run",
    ),
)
@click.argument("suites", nargs=-1, metavar="[SUITE]...")
@target_option()
@option(
    "--data",
    metavar="FILE",
    multiple=True,
    shown="from the hub, or none",
    help="File or folder of the data set that the suite reads: JSON lines, JSON, either as .gz, or Parquet. "
    "Repeatable.",
)
@option(
    "--skip-bad-rows/--no-skip-bad-rows",
    default=None,
    shown="no",
    help="Leave out rows of data sets that are wrong, instead of refusing the file.",
)
@drafters_option(
    "NAME, NAME:key=value,key=value, FILE.py:Class or the folder of a checkpoint; see ls drafters -v.",
    shown="autoregressive, prompt-lookup, suffix, and the baselines shipped for the target",
)
@memory_caps_option("Also answer as if there were this much memory")
@devices_option(
    "Also answer as if on this device: a memory cap of what a program can use there. Name as in devices/, "
    "or a YAML file.",
    shown="none",
)
@option(
    "--cap-policy",
    type=click.Choice(["stop", "no-draft", "window"]),
    shown="stop",
    help="At a cap: stop there, go on without the drafter, or replay with one that keeps a window of the "
    "context (see ls drafters -v: window).",
)
@option(
    "--cap-kind",
    type=click.Choice(["simulated", "enforced"]),
    shown="simulated",
    help="The ledger decides about --memory-cap, or a worker of its own is limited to it.",
)
@option(
    "--allow-simulated/--no-allow-simulated",
    default=None,
    shown="no",
    help="Simulate caps that were to be enforced where that cannot be done.",
)
@option(
    "--weight-bits",
    type=click.Choice(["32", "16", "8", "4"]),
    callback=lambda ctx, param, value: None if value is None else int(value),
    shown="32",
    help="Under simulated caps, count the target's weights with so many bits; 32 for as loaded.",
)
@contexts_option("Only this context length.", shown="all")
@option(
    "--kind",
    "--kinds",
    "kinds",
    metavar="KIND",
    multiple=True,
    shown="all",
    help="Only this kind of work. Repeatable.",
)
@option(
    "--limit",
    type=int,
    metavar="N",
    shown="all",
    help="Conversations per task, spread over kinds and context lengths.",
)
@new_tokens_option(shown="as the suite says")
@option(
    "--temperature",
    type=float,
    metavar="T",
    shown="as the suite says",
    help="One temperature for all; 0 is greedy.",
)
@option("--top-k", type=int, metavar="K", help="With --temperature: keep the K likeliest tokens.")
@option("--top-p", type=float, metavar="P", help="With --temperature: nucleus mass, 0 to 1.")
@option("--seed", type=int, metavar="N", shown="0", help="Seed of every random choice.")
@option(
    "--repeats",
    type=int,
    metavar="N",
    shown="1",
    help="Timed repetitions of the live loop; more make the speed figures firmer.",
)
@option(
    "--mode",
    type=click.Choice(["both", "replay", "live"]),
    shown="both",
    help="Score against the trace, run the timed loop, or both.",
)
@workers_option(only=" Only with --mode replay.")
@draft_budget_option()
@option(
    "--timeout-s",
    type=float,
    metavar="SECONDS",
    shown="1800",
    help="Longest silence of the worker before it is stopped.",
)
@dtype_option()
@kv_dtype_option("Precision of the target's KV cache; auto is that of the weights.", shown="auto")
@kv_dtype_option(
    "Precision of the drafters' own keys and values; becomes the option kv_dtype of those that have it.",
    shown="auto",
    name="--drafter-kv-dtype",
)
@backend_option(is_device_taken=True)
@option(
    "--attention",
    type=click.Choice(["auto", "grouped", "sdpa"]),
    shown="auto",
    help="Attention kernel; auto picks the fastest for each pass.",
)
@threads_option()
@option(
    "--trust-remote-code/--no-trust-remote-code",
    default=None,
    shown="no",
    help="Run code that ships with the model. A hub id needs a pinned commit; a local folder runs as it "
    "is, and the hash of its code is recorded.",
)
@option(
    "--extrapolate/--no-extrapolate",
    default=None,
    shown="no",
    help="Allow contexts past the target's own limit; results are labelled.",
)
@folder_option("Exactly the run folder to write, or to continue.", shown="results/SUITE-TARGET")
@option(
    "--config",
    type=PathType(dir_okay=False),
    metavar="FILE",
    help="YAML with the same names as these options; options win over it.",
)
@option("--fresh", is_flag=True, help="Start over instead of continuing a run.")
@option("--dry-run", is_flag=True, help="Print the plan and the resolved YAML; measure nothing.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    output_path: Path | None,
    config: Path | None,
    fresh: bool,
    dry_run: bool,
    **flags: Any,
) -> None:
    """Measure drafters on suites and write a run folder.

    Use it to learn which drafter pays on your target, context lengths and memory. The same command
    again continues where it stopped; the path of the run folder is the only line on stdout.
    Exit code: 0 all measured (not fitting a memory cap is a measurement), 1 some cells failed,
    2 usage, 130 interrupted.
    """
    spec = _request(config, flags)
    if dry_run:
        show_plan(spec, output_path)
    else:
        ctx.exit(_measure(spec, output_path, fresh, typed(ctx)))


def _measure(spec: RunSpec, output_path: Path | None, fresh: bool, words: tuple[str, ...]) -> int:
    """Run, show the outcome, and give the exit code."""
    from hyflash_bench import console
    from hyflash_bench.runner.run import run

    with stoppable(), console.Progress() as progress:
        outcome = run(spec, output_path=output_path, fresh=fresh, listener=progress, command=words)
    if outcome.interrupted:
        console.note("Interrupted. What was measured is stored; the same command goes on.")
    else:
        _show_outcome(outcome.path)
    console.line(outcome.path)
    return outcome.exit_code


@contextmanager
def stoppable() -> Iterator[None]:
    """End on SIGTERM as on Ctrl-C: containers and batch systems stop a job that way."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _request(config: Path | None, flags: Mapping[str, Any]) -> RunSpec:
    """Merge the layers: defaults < YAML file < flags."""
    from hyflash_bench.spec.run import RunSpec
    from hyflash_bench.spec.yaml import read_yaml

    written = read_yaml(config) if config else {}
    given = {key: value for key, value in flags.items() if value is not None and value != ()}
    return RunSpec.parse({**written, **given}, where=str(config) if config else "run")


def show_plan(spec: RunSpec, output_path: Path | None) -> None:
    """The plan on stderr, the YAML that repeats it on stdout."""
    from hyflash_bench import console
    from hyflash_bench.report.text import cell_text, duration_text, heading
    from hyflash_bench.runner.run import preview
    from hyflash_bench.spec.yaml import dump_yaml

    with console.Progress() as progress:
        described = preview(spec, output_path=output_path, listener=progress).describe()
    resolved = described.pop("resolved")
    if "estimated_s" in described:
        described["estimated time"] = duration_text(described.pop("estimated_s"))
    for key, value in described.items():
        console.note(f"{heading(key)}: {cell_text(key, value)}")
    console.line(dump_yaml(resolved).rstrip())


def _show_outcome(path: Path) -> None:
    """What a reader of the terminal wants to know first, beside the result on stdout."""
    from hyflash_bench import console
    from hyflash_bench.analysis.summary import headline
    from hyflash_bench.report.columns import HEADLINE, WHERE
    from hyflash_bench.results import load_run

    run = load_run(path)
    console.table(console.rows_of(headline(run)), "Headline", (*WHERE, *HEADLINE), err=True)
    console.note(f"More: hyflash-bench show {path}")
