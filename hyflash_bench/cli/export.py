"""``export``: a run's tables for other programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hyflash_bench.cli.base import command as declare
from hyflash_bench.cli.options import PathType
from hyflash_bench.errors import UnknownName, UsageError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["command"]

SUFFIXES = {"csv": "csv", "parquet": "parquet", "json": "json", "markdown": "md", "latex": "tex"}


@declare(
    "export",
    examples=(
        "export results/RUN --to tables",
        "export results/RUN --table headline --table by_context --format latex --format csv --to paper",
        "export results/RUN --table headline --column drafter --column speedup --format latex --to paper",
    ),
)
@click.argument("run", type=PathType())
@click.option(
    "--format",
    "formats",
    multiple=True,
    type=click.Choice(list(SUFFIXES)),
    default=("csv",),
    show_default=True,
    help="Kind of file. Repeatable.",
)
@click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="NAME",
    help="Which table: cells, conversations, turns, steps, traces, trace_steps, memory, or one made from "
    "them: headline, by_context, by_kind, by_category, by_turn, positions, step_distribution, crossover, "
    "latency, capacity, pareto, failures. Repeatable. [default: all]",
)
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME",
    help="Only this column of the tables named with --table. Repeatable, in the order wanted. [default: all]",
)
@click.option(
    "--to",
    "folder",
    required=True,
    metavar="DIR",
    type=PathType(file_okay=False),
    help="Folder for the files; made if it is not there.",
)
def command(
    run: Path, formats: tuple[str, ...], tables: tuple[str, ...], columns: tuple[str, ...], folder: Path
) -> None:
    """Write a run's tables as files for other programs.

    Use it to analyse a run in a spreadsheet or a notebook, or to quote it in a text. The table named
    definitions says what each column is: its unit, its formula and where that comes from. The paths of the
    files are printed on stdout.
    """
    from hyflash_bench import console
    from hyflash_bench.report.exports import frames_of
    from hyflash_bench.results import load_run
    from hyflash_bench.results.export import export_frames

    if columns and not tables:
        raise UsageError("--column chooses from tables that are named; add --table NAME, or drop it.")
    frames = frames_of(load_run(run), dict.fromkeys(tables))
    if columns:
        frames = {**frames, **{name: _narrowed(name, frames[name], columns) for name in tables}}
    for file_format in dict.fromkeys(formats):
        for path in export_frames(frames, folder, SUFFIXES[file_format]):
            console.line(path)


def _narrowed(name: str, frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    for column in columns:
        if column not in frame:
            raise UnknownName(f"column of {name}", column, map(str, frame))
    return frame[list(dict.fromkeys(columns))]
