"""``doctor``: is this machine ready."""

from __future__ import annotations

from dataclasses import asdict

import click

from hyflash_bench.cli.base import command as declare
from hyflash_bench.cli.options import json_option

__all__ = ["command"]

DEFAULT_SUITES = ("quick",)


@declare("doctor", examples=("doctor", "doctor longctx multiturn", "doctor --json"))
@click.argument("suites", nargs=-1, metavar="[SUITE]...")
@json_option
def command(suites: tuple[str, ...], as_json: bool) -> None:
    """Look at this machine and say what is missing for a run, of the suite quick if none is named.

    Use it first, and before asking why a download or a cap does not work: each line is ok or warn,
    with the fix below it. Warnings do not change the exit code: not every run needs everything.
    """
    from hyflash_bench import console
    from hyflash_bench.cli.machine import examine

    found = examine(suites or DEFAULT_SUITES)
    if as_json:
        console.write_json([asdict(check) | {"fix": None if check.ok else check.fix} for check in found])
    else:
        console.checks(found)
