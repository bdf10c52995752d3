"""Drafters: the contract, and one file for each algorithm.

What a plugin imports is here; the algorithms are found by name through
:mod:`hyflash_bench.registry`.
"""

from hyflash_bench.drafters.base import (
    CellFacts,
    Draft,
    Drafter,
    DrafterOptions,
    Features,
    Held,
    LoadContext,
    MemoryKind,
    Requires,
)
from hyflash_bench.drafters.sampler import Sampler

__all__ = [
    "CellFacts",
    "Draft",
    "Drafter",
    "DrafterOptions",
    "Features",
    "Held",
    "LoadContext",
    "MemoryKind",
    "Requires",
    "Sampler",
]
