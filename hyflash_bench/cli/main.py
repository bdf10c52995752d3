"""The program: ``hyflash-bench COMMAND``."""

from __future__ import annotations

import logging
import os
from keyword import iskeyword

import click

from hyflash_bench.cli.base import CONTEXT, LazyGroup, debug_option, foot
from hyflash_bench.errors import UsageError

__all__ = ["COMMANDS", "app"]

COMMANDS = (
    "doctor",
    "fetch",
    "fit",
    "calibrate",
    "simulate",
    "run",
    "corpus",
    "train",
    "convert",
    "quality",
    "show",
    "report",
    "publish",
    "compare",
    "claims",
    "export",
    "import",
    "ls",
    "validate",
    "check",
)
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_LEVEL_VARIABLE = "HYFLASH_BENCH_LOG_LEVEL"


@click.group(
    "hyflash-bench",
    cls=LazyGroup,
    modules={name: f"hyflash_bench.cli.{name}{'_' * iskeyword(name)}" for name in COMMANDS},
    context_settings=CONTEXT,
    epilog=foot(
        (
            "doctor",
            "run quick --drafter autoregressive --drafter prompt-lookup",
            "report results/RUN -o report.html",
        )
    ),
)
@click.version_option(package_name="hyflash-bench", message="%(prog)s %(version)s")
def app() -> None:
    """Measure drafters for speculative decoding under device memory caps.

    Tells which drafter makes a language model fastest on a small machine, and what it costs in bytes.
    """
    _set_log_level(os.environ.get(LOG_LEVEL_VARIABLE, "warning"))


app.params.append(debug_option())


def _set_log_level(level: str) -> None:
    if level.lower() not in LOG_LEVELS:
        raise UsageError(
            f"{LOG_LEVEL_VARIABLE}={level!r} is no log level. "
            f"Set it to one of {', '.join(LOG_LEVELS)}, or unset it."
        )
    logging.basicConfig(level=level.upper(), format="%(levelname)s %(name)s: %(message)s")
