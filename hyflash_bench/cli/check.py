"""``check``: does a drafter keep its contract."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from hyflash_bench.cli.base import command as declare
from hyflash_bench.cli.options import json_option, target_option

__all__ = ["command"]


@declare(
    "check",
    examples=("check prompt-lookup:max_ngram=3", "check my_drafter.py:MyDrafter --suite quick"),
)
@click.argument("drafter")
@target_option("Target to check it with.")
@click.option("--suite", default="quick", show_default=True, help="Suite to check it on.")
@click.option("--limit", default=1, show_default=True, help="Conversations per task.")
@click.option("--max-new-tokens", default=32, show_default=True, help="Most tokens of a reply.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    drafter: str,
    target: str | None,
    suite: str,
    limit: int,
    max_new_tokens: int,
    as_json: bool,
) -> None:
    """Check that a drafter keeps the contract.

    It is checked alone and in a short greedy run. Use it while writing a drafter: it must keep to
    its budget, forget when told, count its memory, leave the output as it is, and propose the same
    in replay and live. Exit code: 0 all kept, 1 not.
    """
    from hyflash_bench import console
    from hyflash_bench.cli.contract import REFERENCE, judge, keeps_contract
    from hyflash_bench.registry import require_drafter
    from hyflash_bench.results import load_run
    from hyflash_bench.runner.run import run
    from hyflash_bench.spec.drafter import DrafterSpec
    from hyflash_bench.spec.run import RunSpec
    from hyflash_bench.suites.catalog import load_suite

    wanted = DrafterSpec.from_text(drafter)
    request = {
        "suites": [suite],
        "drafters": [drafter] if wanted.label == REFERENCE else [REFERENCE, drafter],
        "limit": limit,
        "max_new_tokens": max_new_tokens,
        "temperature": 0.0,
    }
    spec = RunSpec.parse(request if target is None else request | {"target": target}, "check")
    require_drafter(wanted)  # a mistyped name shall not cost the seconds that a target takes to load
    load_suite(suite)
    found = list(keeps_contract(wanted, spec.target_spec))
    with TemporaryDirectory(prefix="hyflash-bench-check-") as folder:
        with console.Progress() as progress:
            outcome = run(spec, output_path=Path(folder) / "run", listener=progress)
        if outcome.interrupted:
            raise KeyboardInterrupt
        found += judge(load_run(outcome.path), wanted.label)
    if as_json:
        console.write_json([asdict(check) for check in found])
    else:
        console.checks(found)
    ctx.exit(0 if all(check.ok for check in found) else 1)
