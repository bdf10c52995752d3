"""``report``: runs as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from hyflash_bench.cli.base import command as declare

__all__ = ["command"]


@declare(
    "report",
    examples=(
        "report results/RUN -o report.html",
        "report results/MONDAY results/TUESDAY -o - --title 'Two days' > report.html",
    ),
)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="HTML file to write; - is stdout.",
)
@click.option("--title", help="Title of the page. [default: made from the target and the suites]")
def command(runs: tuple[Path, ...], output: Path, title: str | None) -> None:
    """Write runs as one HTML file to publish as it is.

    Use it to share results: the answer, figures, tables, definitions, the exact command and configuration are
    all inside, nothing is loaded from the network, and the same runs give the same bytes.
    """
    from hyflash_bench import console
    from hyflash_bench.report.page import render, write_report
    from hyflash_bench.results import load_run

    loaded = [load_run(run) for run in runs]
    if str(output) == "-":
        console.line(render(loaded, title).rstrip())
    else:
        console.line(write_report(loaded, output, title))
