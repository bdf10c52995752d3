"""``show``: a run as tables."""

from __future__ import annotations

from pathlib import Path

import click

from hyflash_bench.cli.base import command as declare
from hyflash_bench.cli.options import PathType, json_option

__all__ = ["command"]


@declare("show", examples=("show results/RUN", "show results/RUN --json"))
@click.argument("run", type=PathType())
@json_option
def command(run: Path, as_json: bool) -> None:
    """Show a run as tables: headline, by context, failures.

    Use it for a first look in the terminal, also while the run is still going on.
    """
    from hyflash_bench import console
    from hyflash_bench.analysis.summary import by_context, failures, headline
    from hyflash_bench.report.columns import BY_CONTEXT, FAILURES, HEADLINE, WHERE
    from hyflash_bench.results import load_run

    loaded = load_run(run)
    tables = {
        "headline": console.rows_of(headline(loaded)),
        "by_context": console.rows_of(by_context(loaded)),
        "failures": console.rows_of(failures(loaded)),
    }
    if as_json:
        console.write_json({"run_id": loaded.manifest.run_id, **tables})
        return
    for one in loaded.manifest.imported:
        console.note(
            f"Imported, not measured here: {one.get('drafter')} from {one.get('file')} ({one.get('format')})"
        )
    console.table(tables["headline"], "Headline", (*WHERE, *HEADLINE))
    console.table(tables["by_context"], "By context length", (*WHERE, *BY_CONTEXT))
    console.table(tables["failures"], "Failures", FAILURES)
