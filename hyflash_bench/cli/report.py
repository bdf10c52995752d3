"""``report``: runs as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from hyflash_bench.cli.base import command as declare
from hyflash_bench.cli.options import PathType, output_option

__all__ = ["command"]


@declare(
    "report",
    examples=(
        "report results/RUN -o report.html",
        "report results/MONDAY results/TUESDAY -o - --title 'Two days' > report.html",
        "report results/RUN -o site/run.html --split-assets",
        "report results/RUN -o report.html --images figures",
    ),
)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=PathType())
@output_option(
    "HTML file to write; - is stdout.", required=True, type=PathType(dir_okay=False, allow_dash=True)
)
@click.option("--title", help="Title of the page. [default: made from the target and the suites]")
@click.option(
    "--split-assets",
    is_flag=True,
    help="Write plotly.js into assets/ beside FILE, where all pages of a site share it.",
)
@click.option(
    "--include-host",
    is_flag=True,
    help="Tell whole paths and names of machines and people, which are left out otherwise.",
)
@click.option(
    "--images",
    metavar="DIR",
    type=PathType(file_okay=False),
    help="Write every figure as SVG and PNG into a folder too. Needs the extra images and a Chromium.",
)
def command(
    runs: tuple[Path, ...],
    output: Path,
    title: str | None,
    split_assets: bool,
    include_host: bool,
    images: Path | None,
) -> None:
    """Write runs as one HTML file to publish as it is.

    Use it to share results: the answer, figures, tables, conversations, definitions, the exact command and
    configuration and the data are all inside, nothing is loaded from the network, and the same runs give the
    same bytes.
    """
    from hyflash_bench import console
    from hyflash_bench.errors import UsageError
    from hyflash_bench.report.page import render, write_report
    from hyflash_bench.results import load_run

    to_stdout = str(output) == "-"
    if to_stdout and split_assets:
        raise UsageError(
            "--split-assets needs a file to put assets/ beside, and -o - is stdout. Name a file."
        )
    loaded = [load_run(run) for run in runs]
    if to_stdout:
        console.line(render(loaded, title, include_host=include_host).rstrip())
    else:
        path = write_report(loaded, output, title, split_assets=split_assets, include_host=include_host)
        console.line(path)
    if images is not None:
        from hyflash_bench.report.images import write_images

        for path in write_images(loaded, images, include_host=include_host):
            console.note(path)
