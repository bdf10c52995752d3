"""``fetch``: get everything a run will need, so that it can go offline."""

from __future__ import annotations

import click

from hyflash_bench.cli.base import command as declare
from hyflash_bench.cli.options import target_option

__all__ = ["command"]


@declare("fetch", examples=("fetch quick", "fetch quick longctx multiturn", "fetch --target org/name@main"))
@click.argument("suites", nargs=-1, metavar="[SUITE]...")
@target_option("Target to fetch.")
def command(suites: tuple[str, ...], target: str | None) -> None:
    """Fetch the target and the texts of suites.

    They are verified and kept in the user's cache. Use it before going offline, or to see early
    what cannot be had. What is there already is not fetched again, and an interrupted fetch starts
    over with the file that was cut short.
    """
    from hyflash_bench import console
    from hyflash_bench.spec.run import RunSpec
    from hyflash_bench.suites.catalog import load_suite
    from hyflash_bench.targets.files import fetch_target

    request = {} if target is None else {"target": target}
    spec = RunSpec.parse({**request, **({"suites": suites} if suites else {})}, "fetch")
    for name in spec.suites:
        load_suite(name).prepare(console.note)
    console.note(f"Looking for target {spec.target}; the first time, it is fetched and converted")
    folder = fetch_target(spec.target_spec)
    console.note(
        f"target {spec.target} is ready" if folder else f"target {spec.target} will be read from its folder"
    )
