"""``compare``: runs, or drafters within runs, like with like."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hyflash_bench.cli.base import command as declare
from hyflash_bench.cli.options import json_option, option, output_option
from hyflash_bench.errors import UnknownName

if TYPE_CHECKING:
    import pandas as pd


__all__ = ["command"]

WHO = (
    "run",
    "drafter",
    "reference_run",
    "reference",
    "suite",
    "sampling",
    "memory_cap_bytes",
    "cap_policy",
    "device",
)
IN_TERMINAL = (
    *WHO,
    *("status", "value", "reference_value", "ratio", "interval", "verdict"),
    *("num_conversations", "num_in_run", "num_in_reference", "reason", "differences"),
)


@declare(
    "compare",
    examples=(
        "compare results/RUN",
        "compare results/RUN::full-context results/RUN::hyflash",
        "compare results/MONDAY results/TUESDAY --metric acceptance_length -o changes.csv",
        "compare results/BASE results/NEW --fail-if 'acceptance_length<0.97'",
    ),
)
@click.argument("sides", nargs=-1, required=True, metavar="RUN[::DRAFTER]...")
@option(
    "--metric",
    "--metrics",
    "metrics",
    metavar="NAME",
    multiple=True,
    shown="acceptance_length, decode_tok_per_s and drafter_bytes, where measured",
    help="What to compare; see ls metrics. Repeatable.",
)
@option(
    "--fail-if",
    "conditions",
    metavar="CONDITION",
    multiple=True,
    help="Exit 1 if this holds of any row: METRIC<NUMBER of its ratio, joined by 'and'. METRIC.low, .high, "
    ".value mean the interval's ends and the metric itself. Repeatable.",
)
@option(
    "--allow-different",
    is_flag=True,
    help="Compare in spite of another target, precision, suite version, sampling, cap, limit or machine.",
)
@json_option
@output_option("Write the comparison: .json (with definitions), .csv, .md, .tex or .parquet.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    sides: tuple[str, ...],
    metrics: tuple[str, ...],
    conditions: tuple[str, ...],
    allow_different: bool,
    as_json: bool,
    output: Path | None,
) -> None:
    """Compare runs, or drafters within runs, with the first one, on the conversations they share.

    Use it to see what a change did, and to stop a build when it made drafting worse. One run alone: its
    drafters against plain decoding. RUN::DRAFTER alone: the run's others against that one. A run after a
    run: every drafter against the one of the same label. Only like is compared with like. Exit code:
    0 compared, 1 a condition of --fail-if holds or a number was lost, 2 usage.
    """
    from hyflash_bench.analysis.compare import compare
    from hyflash_bench.analysis.conditions import judge, parse_condition

    _check_output(output)
    asked = [parse_condition(text) for text in conditions]
    wanted = tuple(dict.fromkeys([*metrics, *(name for each in asked for name in each.metrics)]))
    frame = compare(*sides, metric=wanted or None, allow_different=allow_different)
    judged = judge(asked, frame) if asked else None
    _show(frame, judged, as_json, output)
    if judged is not None:
        ctx.exit(_exit_code(judged))


def _check_output(path: Path | None) -> None:
    """Refuse a file's format before anything is read."""
    from hyflash_bench.results.export import FORMATS

    known = [f".{name}" for name in FORMATS]
    if path is not None and path.suffix not in known:
        raise UnknownName("format of comparisons", path.suffix, known)


def _show(frame: pd.DataFrame, judged: pd.DataFrame | None, as_json: bool, output: Path | None) -> None:
    from hyflash_bench import console
    from hyflash_bench.analysis.metrics import METRICS

    document = _document(frame, judged)
    if output is not None:
        _write(frame, document, output)
    if as_json:
        console.write_json(document)
    else:
        for name, part in frame.groupby("metric", sort=False):
            metric = METRICS[str(name)]
            title = f"{metric.name} ({metric.unit}; {metric.better} is better)"
            console.table(_in_words(part), title, _columns(part), err=output is not None)
    _warn(frame)
    if output is not None and not as_json:
        console.line(output)


def _document(frame: pd.DataFrame, judged: pd.DataFrame | None) -> dict[str, Any]:
    from hyflash_bench import console
    from hyflash_bench.analysis.metrics import definitions_of

    return {
        "comparison": console.rows_of(frame),
        "left_out": frame.attrs["left_out"],
        "conditions": None if judged is None else console.rows_of(judged),
        "definitions": definitions_of(frame["metric"]),
    }


def _write(frame: pd.DataFrame, document: dict[str, Any], path: Path) -> None:
    import json

    from hyflash_bench.atomic import write_text
    from hyflash_bench.results.export import export_table

    if path.suffix == ".json":
        write_text(path, json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        export_table(frame, path)


def _warn(frame: pd.DataFrame) -> None:
    """What is shared, what was left out, and what unlike things must never be compared without."""
    from hyflash_bench import console

    if len(frame):
        shared, own, other = (frame[name] for name in ("num_conversations", "num_in_run", "num_in_reference"))
        console.note(
            f"Conversations shared, by row: {shared.min()} to {shared.max()}, of up to {own.max()} and of up "
            f"to {other.max()} in the reference."
        )
    for name, why in frame.attrs["left_out"].items():
        console.note(f"{name} is left out: {why}.")
    differences = dict.fromkeys(each for row in frame["differences"].dropna() for each in row.split("; "))
    if differences:
        console.note(
            f"NOT ALIKE: {'; '.join(differences)}. Ratios may come from that instead of the drafters."
        )


def _exit_code(judged: pd.DataFrame) -> int:
    """0 or 1, and on stderr why."""
    from hyflash_bench import console

    bad = judged[judged["outcome"].isin(["holds", "lost"])]
    for row in bad.to_dict("records"):
        where = f"{row['drafter']} on {row['suite']} ({row['sampling']})"
        word = "FAILED" if row["outcome"] == "holds" else "LOST"
        console.note(f"{word} {row['condition']}: {where}: {row['numbers']}")
    counts = judged.groupby("condition")["outcome"].value_counts().unstack(fill_value=0)
    idle = [text for text, row in counts.iterrows() if row.get("not judged", 0) == row.sum()]
    for text in idle:
        console.note(f"FAILED {text}: neither side has these numbers anywhere, so nothing was judged.")
    if not len(bad) and not idle:
        num_judged = int((judged["outcome"] == "does not hold").sum())
        console.note(f"No condition holds: {num_judged} of {len(judged)} rows were judged.")
    return 1 if len(bad) or idle else 0


def _columns(frame: pd.DataFrame) -> list[str]:
    """Without what says the same in all rows."""
    hidden: set[str] = set()
    if frame["run"].nunique() <= 1 and frame["run"].equals(frame["reference_run"]):
        hidden |= {"run", "reference_run"}
    if frame["drafter"].equals(frame["reference"]):
        hidden.add("reference")
    return [name for name in IN_TERMINAL if name not in hidden]


def _in_words(frame: pd.DataFrame) -> list[dict[str, Any]]:
    from hyflash_bench import console
    from hyflash_bench.report.text import NOT_MEASURED, cell_text, ratio_text

    rows = console.rows_of(frame)
    for row in rows:
        ends = [ratio_text(row["ratio_low"]), ratio_text(row["ratio_high"])]
        row["interval"] = None if NOT_MEASURED in ends else " to ".join(ends)
        row["ratio"] = None if row["ratio"] is None else ratio_text(row["ratio"])
        for name in ("value", "reference_value"):
            row[name] = None if row[name] is None else cell_text(row["metric"], row[name])
    return rows
