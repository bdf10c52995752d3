"""``validate``: is a suite what it says."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from hyflash_bench.cli.base import command as declare
from hyflash_bench.cli.options import json_option, option

if TYPE_CHECKING:
    from hyflash_bench.suites.chat import ChatTokenizer

__all__ = ["command"]


@declare("validate", examples=("validate quick", "validate my-suite.yaml --target smollm2-135m"))
@click.argument("suite")
@option("--target", metavar="ID", help="Also build every conversation for this target: exact prompt lengths.")
@click.option(
    "--data", metavar="FILE", multiple=True, help="File or folder of the data set that the suite reads."
)
@click.option("--skip-bad-rows", is_flag=True, help="Leave out rows that are wrong.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    suite: str,
    target: str | None,
    data: tuple[str, ...],
    skip_bad_rows: bool,
    as_json: bool,
) -> None:
    """Check a suite: its schema, its texts and their hashes.

    Use it after writing or changing a suite, before a long run; texts that are not there yet are
    fetched. Exit code: 0 valid, 1 not.
    """
    from hyflash_bench import console
    from hyflash_bench.suites.datafiles.choice import DataFiles
    from hyflash_bench.suites.validation import validate_suite

    tokenizer = None if target is None else _tokenizer(target)
    given = DataFiles.of(data, skip_bad_rows=skip_bad_rows)
    findings = [asdict(finding) for finding in validate_suite(suite, tokenizer, console.note, given)]
    if as_json:
        console.write_json(findings)
    else:
        console.table(findings, f"Findings in suite {suite}")
    ctx.exit(1 if any(finding["level"] == "error" for finding in findings) else 0)


def _tokenizer(target: str) -> ChatTokenizer:
    from hyflash_bench.spec.target import TargetSpec
    from hyflash_bench.suites.chat import ChatTokenizer
    from hyflash_bench.targets.load import load_target

    return ChatTokenizer(load_target(TargetSpec(target=target)).tokenizer)
