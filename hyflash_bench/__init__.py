"""Benchmark speculative-decoding drafters under on-device limits.

The public names are imported when they are first used, so that ``import hyflash_bench`` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hyflash_bench.analysis.compare import compare
    from hyflash_bench.drafters.base import Draft, Drafter, DrafterOptions
    from hyflash_bench.errors import HyFlashError
    from hyflash_bench.report import figures
    from hyflash_bench.report.page import write_report
    from hyflash_bench.results.reader import Run, load_run
    from hyflash_bench.runner.api import run
    from hyflash_bench.spec.run import RunSpec

__version__ = "0.1.0"

__all__ = [
    "Draft",
    "Drafter",
    "DrafterOptions",
    "HyFlashError",
    "Run",
    "RunSpec",
    "__version__",
    "compare",
    "figures",
    "load_run",
    "run",
    "write_report",
]

_MODULES = {"figures": "hyflash_bench.report.figures"}

_HOMES = {
    "Draft": "hyflash_bench.drafters.base",
    "Drafter": "hyflash_bench.drafters.base",
    "DrafterOptions": "hyflash_bench.drafters.base",
    "HyFlashError": "hyflash_bench.errors",
    "Run": "hyflash_bench.results.reader",
    "RunSpec": "hyflash_bench.spec.run",
    "compare": "hyflash_bench.analysis.compare",
    "load_run": "hyflash_bench.results.reader",
    "run": "hyflash_bench.runner.api",
    "write_report": "hyflash_bench.report.page",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
