"""``claims``: what is claimed of drafters, held against runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hyflash_bench.cli.base import command as declare
from hyflash_bench.cli.base import typed
from hyflash_bench.cli.options import (
    PathType,
    backend_option,
    contexts_option,
    folder_option,
    json_option,
    new_tokens_option,
    option,
    output_option,
    target_option,
    threads_option,
    workers_option,
)
from hyflash_bench.cli.run import show_plan, stoppable
from hyflash_bench.errors import UnknownName, UsageError

if TYPE_CHECKING:
    import pandas as pd

    from hyflash_bench.spec.claims import ClaimFile
    from hyflash_bench.spec.run import RunSpec

__all__ = ["command"]

IN_TERMINAL = (
    *("run", "statement", "verdict", "ratio", "interval", "wanted", "num_conversations"),
    *("value", "reference_value", "strata", "budget", "reason"),
)


@declare(
    "claims",
    examples=(
        "claims results/RUN",
        "claims --run --limit 8 -o claims.md",
        "claims --run --context 512 --context 2048 --dry-run",
        "claims results/RUN --file my-claims.yaml --json",
    ),
)
@click.argument("runs", nargs=-1, metavar="[RUN]...", type=PathType())
@option(
    "--file",
    "files",
    type=PathType(dir_okay=False),
    metavar="FILE",
    multiple=True,
    shown="suites/claims-paper.yaml and suites/claims-checks.yaml",
    help="Claims as YAML; the format stands in suites/README.md. Repeatable.",
)
@option(
    "--run", "measure", is_flag=True, help="First measure what the claims need: greedy replay, no speeds."
)
@option("--dry-run", is_flag=True, help="With --run: print the plan and the resolved YAML; measure nothing.")
@target_option("With --run: model whose output is wanted.")
@contexts_option(
    "With --run: only this context length, in suites that fix lengths.", shown="all that the target takes"
)
@option("--limit", type=int, metavar="N", shown="all", help="With --run: conversations per task.")
@new_tokens_option(shown="as the suites say", when="With --run")
@backend_option(when="With --run")
@workers_option(when="With --run")
@threads_option(when="With --run")
@folder_option("With --run: exactly the run folder to write, or to continue.", shown="results/claims-TARGET")
@option("--fresh", is_flag=True, help="With --run: start over instead of continuing.")
@json_option
@output_option("Write the verdicts: .json, .csv, .md, .tex or .parquet.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    runs: tuple[Path, ...],
    files: tuple[Path, ...],
    measure: bool,
    dry_run: bool,
    output_path: Path | None,
    fresh: bool,
    as_json: bool,
    output: Path | None,
    **flags: Any,
) -> None:
    """Test claims on runs: reproduced, not reproduced, inconclusive or not tested, with the numbers.

    Use it to see whether what the HyFlash paper claims holds for the drafters at hand, and where a
    gain comes from. With --run it measures what the claims need first; the same command again
    continues where it stopped. Exit code: 0 tested, whatever the verdicts, 1 some cells failed,
    2 usage, 130 interrupted.
    """
    from hyflash_bench.analysis.claims import require_claimable
    from hyflash_bench.spec.claims import read_claims, shipped_claims

    given = {key: value for key, value in flags.items() if value is not None and value != ()}
    _check_request(runs, measure, {**given, "output_path": output_path, "fresh": fresh, "dry_run": dry_run})
    _check_output(output)
    claims = read_claims(*(files or shipped_claims()))
    require_claimable(claims)
    code = 0
    if measure:
        requests = _requests(claims, given)
        folder = output_path or _folder(requests[0])
        if dry_run:
            for request in requests:
                show_plan(request, folder)
            return
        code, was_interrupted = _measure(requests, folder, fresh, typed(ctx))
        if was_interrupted:
            ctx.exit(code)
        runs = (folder,)
    _show(_evaluated(claims, runs), claims.title, as_json, output)
    ctx.exit(code)


def _check_request(runs: Sequence[Path], measure: bool, given: Mapping[str, Any]) -> None:
    if measure and runs:
        raise UsageError(
            "--run measures what the claims need in a folder of its own, and runs were given too. "
            "Drop --run to test those, or drop them; --output-path chooses the folder."
        )
    if measure:
        return
    names = sorted(name for name, value in given.items() if value)
    idle = ["--context" if name == "contexts" else f"--{name.replace('_', '-')}" for name in names]
    if idle:
        raise UsageError(f"{', '.join(idle)} only means something with --run. Add --run, or drop it.")
    if not runs:
        raise UsageError(
            "No run was given to test the claims on. Give a run folder, or add --run to measure "
            "what they need; hyflash-bench ls runs lists those there are."
        )


def _check_output(path: Path | None) -> None:
    """Refuse a file's format before hours are spent on its content."""
    from hyflash_bench.results.export import FORMATS

    known = [f".{name}" for name in ("json", *FORMATS)]
    if path is not None and path.suffix not in known:
        raise UnknownName("format of verdicts", path.suffix, known)


def _requests(claims: ClaimFile, given: Mapping[str, Any]) -> list[RunSpec]:
    """What has to be measured: one request, or two where context lengths fit only some suites."""
    from hyflash_bench.spec.run import RunSpec
    from hyflash_bench.suites.catalog import load_suite

    target = str(given.get("target", RunSpec.model_fields["target"].default))
    fixed = {"drafters": _at_hand(claims, target), "mode": "replay", "temperature": 0.0}
    if "contexts" not in given:
        return [RunSpec.parse({**given, **fixed, "suites": claims.suites}, "claims")]
    others = {name: value for name, value in given.items() if name != "contexts"}
    suites = {name: load_suite(name) for name in claims.suites}
    has_lengths = {
        name for name, suite in suites.items() if any(item.context_length for item in suite.items())
    }
    parts = [(given, [name for name in suites if name in has_lengths])]
    parts += [(others, [name for name in suites if name not in has_lengths])]
    return [RunSpec.parse({**values, **fixed, "suites": names}, "claims") for values, names in parts if names]


def _at_hand(claims: ClaimFile, target: str) -> list[str]:
    """Labels of the drafters that can be run; the others' claims will say that they were not."""
    from hyflash_bench import console
    from hyflash_bench.analysis.budgets import is_shipped

    missing = [label for label in claims.drafters if not is_shipped(target, label)]
    for label in missing:
        console.note(f"{label} is left out: no such checkpoint is shipped for {target}.")
    return [label for label in claims.drafters if label not in missing]


def _folder(request: RunSpec) -> Path:
    """A folder of its own: cells that were only replayed are not mixed with timed ones."""
    from hyflash_bench.results.layout import RESULTS_FOLDER

    name = f"claims-{Path(request.target).name}".lower()
    return RESULTS_FOLDER / "".join(c if c.isalnum() or c in "-_." else "-" for c in name)


def _measure(
    requests: Sequence[RunSpec], folder: Path, fresh: bool, words: tuple[str, ...]
) -> tuple[int, bool]:
    """Run every request in one folder; the exit code, and whether it was interrupted."""
    from hyflash_bench import console
    from hyflash_bench.runner import run as runner

    code = 0
    for number, request in enumerate(requests):
        with stoppable(), console.Progress() as progress:
            outcome = runner.run(
                request,
                output_path=folder,
                fresh=fresh and number == 0,
                listener=progress,
                command=words,
            )
        if outcome.interrupted:
            console.note("Interrupted. What was measured is stored; the same command goes on.")
            return outcome.exit_code, True
        code = max(code, outcome.exit_code)
    console.note(f"Measured in {folder}")
    return code, False


def _evaluated(claims: ClaimFile, runs: Sequence[Path]) -> pd.DataFrame:
    """A row per run and claim; runs are not mixed."""
    import pandas as pd

    from hyflash_bench.analysis.claims import evaluate
    from hyflash_bench.results import load_run

    loaded = [load_run(run) for run in runs]
    frames = [evaluate(claims, run).assign(run=run.run_id) for run in loaded]
    frame = pd.concat(frames, ignore_index=True)
    return frame[["run", *(name for name in frame.columns if name != "run")]]


def _show(frame: pd.DataFrame, title: str, as_json: bool, output: Path | None) -> None:
    from hyflash_bench import console
    from hyflash_bench.report.claims import tally

    document = {"title": title, "claims": console.rows_of(frame)}
    if output is not None:
        _write(frame, document, output)
    if as_json:
        console.write_json(document)
    else:
        columns = IN_TERMINAL if frame["run"].nunique() > 1 else IN_TERMINAL[1:]
        console.table(_in_words(frame), title, columns, err=output is not None)
    console.note(f"{tally(frame)}.")
    if (frame["verdict"] == "not tested").any():
        console.note(
            "Not tested are those whose drafters or contexts no run has; claims --run measures them."
        )
    if output is not None and not as_json:
        console.line(output)


def _write(frame: pd.DataFrame, document: Mapping[str, Any], path: Path) -> None:
    import json

    from hyflash_bench.atomic import write_text
    from hyflash_bench.results.export import export_table

    if path.suffix == ".json":
        write_text(path, json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        export_table(frame, path)


def _in_words(frame: pd.DataFrame) -> list[dict[str, Any]]:
    from hyflash_bench import console
    from hyflash_bench.report.claims import readable
    from hyflash_bench.report.text import NOT_MEASURED

    rows = console.rows_of(readable(frame))
    for row in rows:
        ends = [row["ratio_low"], row["ratio_high"]]
        row["interval"] = None if NOT_MEASURED in ends else " to ".join(ends)
    return rows
