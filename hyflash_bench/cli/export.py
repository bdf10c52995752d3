"""``export``: a run's tables for other programs."""

from __future__ import annotations

from pathlib import Path

import click

from hyflash_bench.cli.base import command as declare
from hyflash_bench.cli.options import PathType

__all__ = ["command"]

SUFFIXES = {"csv": "csv", "parquet": "parquet", "json": "json", "markdown": "md", "latex": "tex"}


@declare(
    "export",
    examples=(
        "export results/RUN --to tables",
        "export results/RUN --table headline --table by_context --format latex --format csv --to paper",
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
    "--to",
    "folder",
    required=True,
    metavar="DIR",
    type=PathType(file_okay=False),
    help="Folder for the files; made if it is not there.",
)
def command(run: Path, formats: tuple[str, ...], tables: tuple[str, ...], folder: Path) -> None:
    """Write a run's tables as files for other programs.

    Use it to analyse a run in a spreadsheet or a notebook, or to quote it in a text. The table named
    definitions says what each column is: its unit, its formula and where that comes from. The paths of the
    files are printed on stdout.
    """
    from hyflash_bench import console
    from hyflash_bench.report.exports import frames_of
    from hyflash_bench.results import load_run
    from hyflash_bench.results.export import export_frames

    frames = frames_of(load_run(run), dict.fromkeys(tables))
    for file_format in dict.fromkeys(formats):
        for path in export_frames(frames, folder, SUFFIXES[file_format]):
            console.line(path)
