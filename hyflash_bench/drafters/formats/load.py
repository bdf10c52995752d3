"""One way in for every layout: recognise, read, and hand to the drafter that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyflash_bench.data import expanded
from hyflash_bench.drafters.base import LoadContext
from hyflash_bench.drafters.formats.exported import load_exported
from hyflash_bench.drafters.formats.public import load_public
from hyflash_bench.drafters.networks.checkpoint import load_network
from hyflash_bench.drafters.networks.network import DraftNetwork
from hyflash_bench.drafters.networks.public import PublicNetwork
from hyflash_bench.errors import DrafterError
from hyflash_bench.spec.formats.recognise import cached_snapshot, is_hub_id, recognise

if TYPE_CHECKING:
    from hyflash_bench.drafters.trained import TrainedDrafter

__all__ = ["Network", "load_drafter", "read_network"]

Network = DraftNetwork | PublicNetwork
"""Trained here, or by others."""

_DRAFTERS: Mapping[str, str] = {
    "dflash": "hyflash_bench.drafters.dflash:DFlash",
    "eagle": "hyflash_bench.drafters.eagle:Eagle",
    "full-context": "hyflash_bench.drafters.full_context:FullContext",
    "hyflash": "hyflash_bench.drafters.hyflash:HyFlash",
    "medusa": "hyflash_bench.drafters.medusa:Medusa",
    "memory-only": "hyflash_bench.drafters.memory_only:MemoryOnly",
    "window": "hyflash_bench.drafters.window:Window",
}
"""Drafters with weights; imported when needed."""


def load_drafter(path: str | Path, context: LoadContext, **options: Any) -> TrainedDrafter:
    """A drafter from a checkpoint of any layout that is known.

    Args:
        path: Folder, or hub id as in ``org/name`` or ``org/name@revision``.
        context: The loaded target.
        options: Of the drafter, as on the command line.

    Returns:
        Loaded and reset.

    Raises:
        DrafterError: Nothing that is known, damaged, or made for another target.
        SpecError: An option that this drafter has not.
        MissingDependency: The hub could not be reached.
    """
    folder = expanded(path)
    if not folder.is_dir() and is_hub_id(str(path)):
        folder = cached_snapshot(str(path), download=True) or folder
    found = recognise(folder)
    if found.drafter not in _DRAFTERS:
        raise DrafterError(f"{folder} is of kind {found.drafter!r}; known are {', '.join(_DRAFTERS)}.")
    module, _, name = _DRAFTERS[found.drafter].partition(":")
    kind: type[TrainedDrafter] = getattr(import_module(module), name)
    values = {**options, "checkpoint": str(folder)}
    drafter = kind(kind.Options.parse(values, where=f"drafter {found.drafter!r}"))
    drafter.load(context)
    return drafter


def read_network(folder: Path, context: LoadContext) -> Network:
    """The network in a folder, whoever wrote it.

    Raises:
        DrafterError: See :func:`load_drafter`.
    """
    found = recognise(folder)
    if found.format == "own":
        return load_network(folder, context)
    if found.format == "exported":
        return load_exported(folder, found.config, context)
    return load_public(folder, found, context)
