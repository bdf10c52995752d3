"""Which trained drafters ship for a target, known without reading their weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyflash_bench.data import data_folder, expanded
from hyflash_bench.errors import MissingDependency
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.formats.recognise import cached_snapshot, is_hub_id

__all__ = ["DEFAULT_CHECKPOINTS", "Baseline", "checkpoint_folder", "shipped_baselines"]

DEFAULT_CHECKPOINTS = {
    "hyflash": "hyflash-l1",
    "full-context": "full-context-l1",
    "window": "window-l1",
    "memory-only": "memory-only-l1",
    "medusa": "medusa",
    "eagle": "eagle",
}
"""The baseline that each trained drafter reads when none is named: of several depths the shallowest."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """A trained drafter in ``baselines/``.

    Attributes:
        name: Of its folder.
        drafter: The drafter that reads it, as registered.
        folder: Where it lies.
        training: How it was trained, as its configuration says.
    """

    name: str
    drafter: str
    folder: Path
    training: dict[str, Any]

    @property
    def spec(self) -> DrafterSpec:
        """How to ask for it; the shallow one of its kind is what its drafter loads anyway."""
        is_default = self.name == DEFAULT_CHECKPOINTS.get(self.drafter)
        return DrafterSpec(name=self.drafter, options={} if is_default else {"checkpoint": self.name})


def shipped_baselines(target: str) -> tuple[Baseline, ...]:
    """Baselines of a target by its short name, in the order of their names; none for most targets."""
    try:
        folder = data_folder("baselines") / target
    except MissingDependency:
        return ()
    found = []
    for config in sorted(folder.glob("*/config.json")):
        try:
            described = json.loads(config.read_text(encoding="utf-8"))
            training = described["training"]
            found.append(Baseline(config.parent.name, training["drafter"], config.parent, training))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # loading it will say what is wrong with it
    return tuple(found)


def checkpoint_folder(drafter: DrafterSpec, target: str) -> Path | None:
    """Folder of the checkpoint that a drafter will read, if it reads one that is there.

    Args:
        drafter: Its option ``checkpoint`` is a folder, the name of a baseline, a hub id whose files are
            in the cache, or empty for the default.
        target: Short name of the target.
    """
    given = str(drafter.options.get("checkpoint") or "")
    if given and expanded(given).is_dir():
        return expanded(given)
    if is_hub_id(given):
        return cached_snapshot(given)
    name = given or DEFAULT_CHECKPOINTS.get(drafter.name, "")
    if not name or name != Path(name).name:
        return None
    try:
        folder = data_folder("baselines") / Path(target).name / name
    except MissingDependency:
        return None
    return folder if (folder / "config.json").is_file() else None
