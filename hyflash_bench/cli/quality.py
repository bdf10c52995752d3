"""``quality``: scores of lm-eval tasks, alone and with each drafter."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hyflash_bench.cli.base import command as declare
from hyflash_bench.cli.base import typed
from hyflash_bench.cli.options import (
    PathType,
    backend_option,
    draft_budget_option,
    drafters_option,
    dtype_option,
    folder_option,
    json_option,
    new_tokens_option,
    option,
    target_option,
    threads_option,
)
from hyflash_bench.cli.run import stoppable

if TYPE_CHECKING:
    from hyflash_bench.integrations.quality import Outcome
    from hyflash_bench.integrations.scores import Score

__all__ = ["command"]


@declare(
    "quality",
    examples=(
        "quality --tasks niah_single_1,vt,cwe --length 2048 --limit 20 --drafter hyflash --drafter suffix",
        "quality --tasks my_task --include-path my-tasks --apply-chat-template",
    ),
)
@option(
    "--tasks",
    "--task",
    "tasks",
    metavar="NAMES",
    multiple=True,
    required=True,
    help="Tasks, groups or patterns of lm-eval, with commas or repeated. Without a download: niah_single_1, "
    "niah_multikey_2, vt, cwe, fwe.",
)
@option(
    "--include-path",
    type=PathType(file_okay=False),
    metavar="DIR",
    multiple=True,
    help="Folder with tasks of your own. Repeatable.",
)
@option(
    "--length",
    "--lengths",
    "lengths",
    type=int,
    metavar="TOKENS",
    multiple=True,
    shown="4096",
    help="Context length of tasks that make their own texts. Repeatable.",
)
@target_option()
@drafters_option("As for run; the target alone is always there.", shown="as for run")
@option("--limit", type=int, metavar="N", shown="all", help="Prompts per task, the first ones.")
@option("--num-fewshot", type=int, metavar="N", shown="as the task says", help="Examples before each prompt.")
@option(
    "--apply-chat-template/--no-apply-chat-template",
    default=None,
    shown="no",
    help="Write prompts as the target's chat template does.",
)
@option(
    "--add-bos-token/--no-add-bos-token",
    default=None,
    shown="no",
    help="Begin every prompt as the tokenizer does by itself.",
)
@new_tokens_option(shown="as the task says")
@draft_budget_option()
@option(
    "--batch-size",
    type=int,
    metavar="N",
    shown="as many as fit",
    help="Most answers of one question that are scored in one pass, where texts are scored and not written.",
)
@option("--seed", type=int, metavar="N", shown="0", help="Seed of texts and of drawn tokens.")
@dtype_option()
@backend_option()
@threads_option()
@option(
    "--extrapolate/--no-extrapolate",
    default=None,
    shown="no",
    help="Allow contexts past the target's own limit.",
)
@folder_option("Exactly the run folder to write.", shown="results/quality-TASKS-TARGET")
@option("--fresh", is_flag=True, help="Discard what the folder holds, instead of going on with it.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, /, output_path: Path | None, fresh: bool, as_json: bool, **flags: Any
) -> None:
    """Score a target alone and with each drafter on tasks of lm-eval.

    Use it to see that a drafter leaves quality alone, and what it brings on real tasks. Greedy scores must be
    equal; if a reply differs from the target's own, the task is shown as a mismatch. Writes a run folder
    that show and report read, with the scores in quality.json; its path is the only line on stdout. The same
    command goes on where it was stopped. Needs lm-eval (pip install 'hyflash-bench[lm-eval]'). Exit code:
    0 all equal, 1 a mismatch or a drafter that failed, 2 usage, 130 interrupted.
    """
    os.environ["TQDM_DISABLE"] = "1"  # read when tqdm is imported; the console alone shows progress
    from hyflash_bench import console
    from hyflash_bench.integrations.asked import QualitySpec
    from hyflash_bench.integrations.quality import measure, prepare

    given = {key: value for key, value in flags.items() if value is not None and value != ()}
    names = [name.strip() for text in flags["tasks"] for name in text.split(",")]
    spec = QualitySpec.of({**given, "tasks": tuple(filter(None, names))})
    try:
        with stoppable():
            prepared = prepare(spec, console.Progress())
            with console.Progress() as progress:
                outcome = measure(
                    prepared, output_path=output_path, fresh=fresh, listener=progress, command=typed(ctx)
                )
    except KeyboardInterrupt:
        console.note("What was answered is stored; the same command goes on.")
        raise
    if as_json:
        from dataclasses import asdict

        console.write_json([asdict(score) for score in outcome.scores])
    else:
        _show(outcome)
        console.line(outcome.path)
    ctx.exit(outcome.exit_code)


def _show(outcome: Outcome) -> None:
    """Scores side by side, and what the drafters brought on each task."""
    from hyflash_bench import console
    from hyflash_bench.analysis.summary import headline
    from hyflash_bench.report.columns import HEADLINE, WHERE
    from hyflash_bench.results import load_run

    console.table(_side_by_side(outcome.scores), "Scores", err=True)
    for label, message in {score.drafter: score.message for score in outcome.scores if score.message}.items():
        console.note(f"{label} has no scores: {message}")
    run = load_run(outcome.path)
    if len(run.cells):
        rows = console.rows_of(headline(run))
        console.table(rows, "Acceptance and speed by task", (*WHERE, *HEADLINE), err=True)
    console.note(f"More: hyflash-bench show {outcome.path}")


def _side_by_side(scores: Sequence[Score]) -> list[dict[str, Any]]:
    """A row per task and metric, a column per drafter, and how far greedy replies are the target's own."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for score in scores:
        if score.message:
            continue
        row = rows.setdefault(
            (score.task, score.metric),
            {"task": score.task, "metric": score.metric, "num_prompts": score.num_prompts},
        )
        row[score.drafter] = score.score
    for key, row in rows.items():
        here = [score for score in scores if (score.task, score.metric) == key]
        for score in here:
            row.setdefault(score.drafter, None)
        found = {score.agreement for score in here}
        row["replies"] = next((name for name in ("mismatch", "near_tie", "identical") if name in found), None)
    labels = list(dict.fromkeys(score.drafter for score in scores))
    columns = ["task", "metric", "num_prompts", *labels, "replies"]
    return [{name: row.get(name) for name in columns} for row in rows.values()]
