"""``validate``: is a suite what it says."""

from __future__ import annotations

from dataclasses import asdict

import click

from hyflash_bench.cli.base import command as declare
from hyflash_bench.cli.base import json_option

__all__ = ["command"]


@declare("validate", examples=("validate quick", "validate my-suite.yaml"))
@click.argument("suite")
@json_option
@click.pass_context
def command(ctx: click.Context, /, suite: str, as_json: bool) -> None:
    """Check a suite: its schema, its texts and their hashes.

    Use it after writing or changing a suite, before a long run; texts that are not there yet are
    fetched. Exit code: 0 valid, 1 not.
    """
    from hyflash_bench import console
    from hyflash_bench.suites.validation import validate_suite

    findings = [asdict(finding) for finding in validate_suite(suite, progress=console.note)]
    if as_json:
        console.write_json(findings)
    else:
        console.table(findings, f"Findings in suite {suite}")
    ctx.exit(1 if any(finding["level"] == "error" for finding in findings) else 0)
