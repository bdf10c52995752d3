"""``validate``: is a suite what it says."""

from __future__ import annotations

import click

from hyflash_bench.cli.base import command as declare
from hyflash_bench.cli.base import json_option

__all__ = ["command"]


@declare("validate", examples=("validate quick", "validate my-suite.yaml"))
@click.argument("suite")
@json_option
@click.pass_context
def command(ctx: click.Context, suite: str, as_json: bool) -> None:
    """Check a suite: its schema, its texts and their hashes.

    Use it after writing or changing a suite, before a long run. Exit code: 0 valid, 1 not.
    """
    from hyflash_bench import console
    from hyflash_bench.suites.catalog import load_suite, validate_suite

    problems = validate_suite(load_suite(suite))
    if as_json:
        console.write_json({"suite": suite, "problems": problems})
    else:
        for problem in problems:
            console.line(problem)
        console.note(f"Suite {suite}: {len(problems) or 'no'} problems.")
    ctx.exit(1 if problems else 0)
