"""Which trained drafters ship for a target, known without reading their weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyflash_bench.data import data_folder
from hyflash_bench.errors import MissingDependency
from hyflash_bench.spec.drafter import DrafterSpec

__all__ = ["Baseline", "checkpoint_folder", "shipped_baselines"]


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
        is_default = self.name in (self.drafter, f"{self.drafter}-l1")
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
    """Folder of the checkpoint that a drafter will read, if it reads one that is there."""
    given = str(drafter.options.get("checkpoint") or "")
    if given and Path(given).expanduser().is_dir():
        return Path(given).expanduser()
    for baseline in shipped_baselines(target):
        if baseline.name == given or (not given and baseline.spec == DrafterSpec(name=drafter.name)):
            return baseline.folder
    return None
