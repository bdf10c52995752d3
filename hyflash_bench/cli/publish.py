"""``publish``: runs into a static site."""

from __future__ import annotations

from pathlib import Path

import click

from hyflash_bench.cli.base import command as declare
from hyflash_bench.cli.options import PathType

__all__ = ["command"]


@declare(
    "publish",
    examples=(
        "publish results/RUN --to site",
        "publish results/MONDAY results/TUESDAY --to site --title 'Drafters on our boards'",
        "publish --to site --remove RUN",
    ),
)
@click.argument("runs", nargs=-1, metavar="[RUN]...", type=PathType())
@click.option(
    "--to",
    "folder",
    required=True,
    metavar="DIR",
    type=PathType(file_okay=False),
    help="The site: a new or empty folder, or one that was published before.",
)
@click.option("--title", help="Title of the site. [default: the one it has]")
@click.option(
    "--remove",
    multiple=True,
    metavar="RUN_ID",
    help="Take a run out of the site, by its name or its folder's. Repeatable.",
)
@click.option(
    "--include-host", is_flag=True, help="Tell host names and whole paths, which are left out otherwise."
)
def command(
    runs: tuple[Path, ...], folder: Path, title: str | None, remove: tuple[str, ...], include_host: bool
) -> None:
    """Add runs to a static site, ready for any web host.

    Use it to share results that grow: a leaderboard to filter and sort, a page a run, each drafter over time,
    comparisons between runs, and all data as files. The site keeps what it needs of a run, so the next one
    is added without the folders of those before. Nothing is lost by publishing again, and only --remove takes
    a run out. Without runs, the index is made anew. The path of the first page is printed on stdout.
    """
    from hyflash_bench import console
    from hyflash_bench.errors import UsageError
    from hyflash_bench.report.site import publish
    from hyflash_bench.report.site.layout import SiteLayout
    from hyflash_bench.results import load_run

    if not runs and not remove and not SiteLayout(folder).marker.exists():
        raise UsageError(
            f"There is no site in {folder} yet, and no run was given. Give at least one run folder."
        )
    loaded = [load_run(run) for run in runs]
    done = publish(loaded, folder, title=title, include_host=include_host, remove=remove, tell=console.note)
    for word, keys in (("added", done.added), ("unchanged", done.unchanged), ("removed", done.removed)):
        for key in keys:
            console.note(f"{word} {key}")
    console.line(done.index)
