"""``run`` as a function of keywords that are named like the flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hyflash_bench.results.reader import Run, load_run
from hyflash_bench.runner import run as runner
from hyflash_bench.runner.run import Listener
from hyflash_bench.spec.run import RunSpec

__all__ = ["run"]


def run(
    spec: RunSpec | None = None,
    *,
    output_path: Path | str | None = None,
    fresh: bool = False,
    listener: Listener | None = None,
    **request: Any,
) -> Run:
    """Measure drafters and return the run; prints nothing.

    ``run(suites=["quick"], drafters=["autoregressive", "prompt-lookup:max_ngram=2"], limit=2)``

    Args:
        spec: The request, or give its fields as keywords (see :class:`RunSpec`).
        output_path: Exactly this folder; the same call again goes on where it stopped.
        fresh: Discard what the folder holds.
        listener: Told what goes on.
        request: Fields of :class:`RunSpec`.

    Raises:
        HyFlashError: The request cannot be met.
        KeyboardInterrupt: Interrupted; what was measured is stored.
    """
    wanted = RunSpec.parse(request) if spec is None else spec
    folder = None if output_path is None else Path(output_path)
    outcome = runner.run(wanted, output_path=folder, fresh=fresh, listener=listener)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return load_run(outcome.path)
