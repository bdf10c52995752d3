"""``train``: train drafters on one stream."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hyflash_bench.cli.base import EXIT_INTERRUPTED
from hyflash_bench.cli.base import command as declare
from hyflash_bench.cli.options import (
    PathType,
    backend_option,
    folder_option,
    option,
    taps_option,
    target_option,
    threads_option,
)

if TYPE_CHECKING:
    from hyflash_bench.training.events import Event
    from hyflash_bench.training.plan import TrainingPlan

__all__ = ["command"]


def _names(text: str | None) -> list[str]:
    """Take a list with commas apart."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


@declare(
    "train",
    examples=(
        "train --corpus corpora/default --output-path runs/first --max-minutes 60",
        "train hyflash full-context window medusa eagle --corpus corpora/default --steps 3000",
        "train --drafters hyflash:num_layers=3,window:window=32 --corpus corpora/default --dry-run",
        "train hyflash hyflash:memory=gated-linear window-equal-bytes memory-only --corpus corpora/default",
        "train hyflash 'hyflash:label=slow,half_lives=[256,8192]' --corpus corpora/default",
    ),
)
@click.argument("more", nargs=-1, metavar="[DRAFTER]...")
@option(
    "--drafter",
    "--drafters",
    "drafters",
    metavar="SPEC",
    multiple=True,
    shown="those that are shipped",
    help="NAME or NAME:key=value,key=value of hyflash, full-context, window, window-equal-bytes, "
    "memory-only, medusa, eagle; label=WORD names a variant, [1,2] is a list. Repeatable, or a list "
    "with commas.",
)
@option("--corpus", metavar="DIR", help="Folder made by: hyflash-bench corpus build.")
@target_option("Model to draft for.")
@option("--steps", type=int, metavar="N", shown="1500", help="Gradient steps of each drafter in all.")
@option(
    "--max-minutes", type=float, metavar="M", help="Save and stop after so long; the same command goes on."
)
@taps_option("Layers of the target that drafters read.")
@option(
    "--init-from",
    metavar="DIR",
    help="Start from the drafters that a former training exported there, or all from the one in this folder.",
)
@option(
    "--init-without",
    metavar="PART,...",
    callback=lambda ctx, param, value: tuple(_names(value)),
    help="Parts of these that are left behind, as in copying,markov; they start as in a new training.",
)
@option(
    "--match",
    type=click.Choice(["full-context", "none"]),
    shown="full-context",
    help="Choose widths so that block drafters have as many parameters as full-context.",
)
@option("--draft-vocab-size", type=int, metavar="N", shown="8192", help="Tokens that can be proposed.")
@option("--segment-tokens", type=int, metavar="N", shown="1024", help="Tokens of a batch.")
@option("--max-segment-tokens", type=int, metavar="N", shown="4096", help="Most tokens of a long document.")
@option(
    "--long-share", type=float, metavar="P", shown="0.5", help="How often a long document is taken whole."
)
@option("--num-anchors", type=int, metavar="N", shown="96", help="Anchors of a batch.")
@option("--learning-rate", type=float, metavar="R", shown="0.0003", help="At its highest.")
@option(
    "--decay",
    type=click.Choice(["wsd", "cosine", "linear"]),
    shown="wsd",
    help="Constant with a linear end (wsd), or falling all the way.",
)
@option("--token-share", type=float, metavar="P", shown="0", help="Share of plain cross-entropy in the loss.")
@option("--ema", type=float, metavar="D", shown="none", help="Average the weights with this decay.")
@option(
    "--precision",
    type=click.Choice(["auto", "float32", "bfloat16"]),
    shown="auto",
    help="Of the drafters' passes; auto is bfloat16 where that is fast.",
)
@option(
    "--feature-dtype",
    type=click.Choice(["auto", "float32", "bfloat16"]),
    shown="auto",
    help="Of the target's pass over the corpus.",
)
@option("--held-out-share", type=float, metavar="P", shown="0.05", help="Share of texts to evaluate on.")
@option("--evaluate-every", type=int, metavar="STEPS", shown="250", help="Steps between evaluations.")
@option("--save-every-s", type=float, metavar="SECONDS", shown="180", help="Seconds between saves.")
@option("--seed", type=int, metavar="N", shown="0", help="Seed of every random choice.")
@backend_option()
@threads_option()
@option(
    "--trust-remote-code/--no-trust-remote-code",
    default=None,
    shown="no",
    help="Run code that ships with the model; demands a pinned revision.",
)
@folder_option("Folder to write, or to go on with.", shown="drafters/TARGET")
@option(
    "--config",
    type=PathType(dir_okay=False),
    metavar="FILE",
    help="YAML with these names and further ones; see recipe.yaml of any drafter. Options win over it.",
)
@option("--fill-features", is_flag=True, help="Only compute the target's features of the corpus.")
@option("--dry-run", is_flag=True, help="Print sizes, disk and the resolved YAML; train nothing.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    more: tuple[str, ...],
    output_path: Path | None,
    config: Path | None,
    fill_features: bool,
    dry_run: bool,
    **flags: Any,
) -> None:
    """Train drafters on one stream and write a folder for each.

    All see the same batches, so their budgets are equal. Use it to make drafters for a target of your
    own, or to repeat the shipped ones. The same command again goes on where it stopped; more --steps
    extend it. Exit code: 0 finished or --max-minutes are over, 1 failed, 2 usage, 130 interrupted.
    """
    plan = _plan(config, {**flags, "drafters": (*flags["drafters"], *more)})
    folder = output_path or Path("drafters") / "".join(
        c if c.isalnum() or c in "-_." else "-" for c in plan.target
    )
    if dry_run:
        _show_plan(plan)
    elif fill_features:
        _fill(plan)
    else:
        ctx.exit(_train(plan, folder))


def _train(plan: TrainingPlan, folder: Path) -> int:
    from hyflash_bench import console
    from hyflash_bench.training.trainer import train

    with _asked_to_stop() as should_stop:
        outcome = train(plan, folder, listener=_show, should_stop=should_stop)
    console.line(outcome.folder)
    if outcome.ended == "stopped":
        console.note(f"Interrupted after step {outcome.step}, which is saved. The same command goes on.")
        return EXIT_INTERRUPTED
    return 0


def _plan(config: Path | None, flags: Mapping[str, Any]) -> TrainingPlan:
    """Merge the layers: defaults < YAML file < flags."""
    from hyflash_bench.spec.yaml import read_yaml
    from hyflash_bench.training.plan import TrainingPlan, split_drafters

    written = read_yaml(config) if config else {}
    given = {key: value for key, value in flags.items() if value is not None and value != ()}
    if "drafters" in given:
        given["drafters"] = split_drafters(given["drafters"])
    return TrainingPlan.parse({**written, **given}, where=str(config) if config else "train")


@contextmanager
def _asked_to_stop() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C or SIGTERM ends the training after its step; the second one at once.

    Before the first step is done there is nothing to save, so then one is enough.
    """
    asked = has_begun = False
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(*_: object) -> None:
        nonlocal asked
        if asked or not has_begun:
            raise KeyboardInterrupt
        asked = True
        os.write(2, b"Stopping when this step is done and saved; once more to stop at once.\n")

    def should_stop() -> bool:
        nonlocal has_begun
        has_begun = True
        return asked

    for number in before:
        signal.signal(number, stop)
    try:
        yield should_stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(event: Event) -> None:
    """Tell the terminal what goes on."""
    from hyflash_bench import console
    from hyflash_bench.report.text import duration_text
    from hyflash_bench.training import events

    match event:
        case events.Said(text=text):
            console.note(text)
        case events.Stepped():
            losses = "  ".join(
                f"{label} {'-' if loss is None else format(loss, '.3f')}"
                for label, loss in event.losses.items()
            )
            console.note(
                f"[{event.step}/{event.steps}] {event.tok_per_s:.0f} tok/s, about "
                f"{duration_text(event.eta_s)} left; loss {losses}"
            )
        case events.Evaluated(step=step, rows=rows):
            columns = list(dict.fromkeys(key for row in rows for key in row))
            padded = [{key: row.get(key) for key in columns} for row in rows]
            kept = [key for key in columns if key not in ("step", "tokens_seen", "num_skipped")]
            console.table(padded, f"Held out, step {step}", kept, err=True)
        case events.Examined(step=step, rows=rows):
            _show_contexts(step, rows)


def _show_contexts(step: int, rows: Sequence[Mapping[str, Any]]) -> None:
    """Acceptance lengths, a column for each span of contexts; then the gains on the first drafter."""
    from hyflash_bench import console
    from hyflash_bench.training.card import estimate_text

    def pivot(name: str, sign: str = "") -> list[dict[str, Any]]:
        table: dict[str, dict[str, Any]] = {}
        for row in rows:
            line = table.setdefault(row["drafter"], {"drafter": row["drafter"]})
            line[f"{row['context_from']}-{row['context_to']}"] = estimate_text(row, name, sign)
        return list(table.values())

    lengths = pivot("acceptance_length")
    console.table(lengths, f"By context, step {step}", err=True)
    if len(lengths) > 1:
        console.table(pivot("gain", "+")[1:], f"Above {lengths[0]['drafter']}", err=True)


def _show_plan(plan: TrainingPlan) -> None:
    """Sizes on stderr, the YAML that repeats it on stdout."""
    from hyflash_bench import console
    from hyflash_bench.spec.yaml import dump_yaml
    from hyflash_bench.training.preview import preview

    shown = preview(plan)
    console.table(shown.drafters, "Drafters", err=True)
    for text in shown.facts:
        console.note(text)
    console.line(dump_yaml(plan.to_mapping()).rstrip())


def _fill(plan: TrainingPlan) -> None:
    from hyflash_bench import console
    from hyflash_bench.training.preview import fill_features

    console.line(fill_features(plan, _show))
