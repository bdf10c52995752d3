"""``export``: a run's tables for other programs."""

from __future__ import annotations

from pathlib import Path

import click

from hyflash_bench.cli.base import command as declare

__all__ = ["command"]

SUFFIXES = {"csv": "csv", "parquet": "parquet", "markdown": "md", "latex": "tex"}


@declare("export", examples=("export results/RUN --format csv --to tables",))
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "file_format",
    type=click.Choice(list(SUFFIXES)),
    default="csv",
    show_default=True,
    help="Kind of file.",
)
@click.option(
    "--to",
    "folder",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the files; made if it is not there.",
)
def command(run: Path, file_format: str, folder: Path) -> None:
    """Write a run's tables as files for other programs.

    Use it to analyse a run in a spreadsheet or a notebook, or to quote it in a text. The paths of
    the files are printed on stdout.
    """
    from hyflash_bench import console
    from hyflash_bench.results import load_run
    from hyflash_bench.results.export import export_run

    for path in export_run(load_run(run), folder, SUFFIXES[file_format]):
        console.line(path)
