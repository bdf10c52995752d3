"""``doctor``: is this machine ready."""

from __future__ import annotations

from dataclasses import asdict

from hyflash_bench.cli.base import command as declare
from hyflash_bench.cli.base import json_option

__all__ = ["command"]


@declare("doctor", examples=("doctor", "doctor --json"))
@json_option
def command(as_json: bool) -> None:
    """Look at this machine and say what is missing for a run.

    Use it first, and before asking why a download or a cap does not work: each line is ok or warn,
    with the fix below it. Warnings do not change the exit code: not every run needs everything.
    """
    from hyflash_bench import console
    from hyflash_bench.cli.machine import examine

    found = examine()
    if as_json:
        console.write_json([asdict(check) | {"fix": None if check.ok else check.fix} for check in found])
    else:
        console.checks(found)
