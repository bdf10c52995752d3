"""How much training stands behind a drafter, as its shipped checkpoint tells."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from hyflash_bench.spec.baselines import DEFAULT_CHECKPOINTS, checkpoint_folder
from hyflash_bench.spec.drafter import DrafterSpec

if TYPE_CHECKING:
    from hyflash_bench.results.reader import Run

__all__ = ["budget_of", "is_shipped"]

_TOLD: Final = {
    "steps": "{:,} steps",
    "tokens_seen": "{:,} tokens",
    "anchors_per_step": "{:,} anchors a step",
    "corpus": "corpus {:.8}",
    "seed": "seed {}",
}
"""What makes two budgets equal, and how each part is said; sizes and times differ and stand in the card."""


def budget_of(run: Run, label: str) -> str | None:
    """The training of a drafter of a run in a few words; None for one that is not trained.

    Args:
        run: The run.
        label: Label of the drafter in it.
    """
    cell = next((cell for cell in run.manifest.cells if cell.drafter == label), None)
    if cell is None or "checkpoint" not in cell.drafter_options:
        return None
    options = {"checkpoint": cell.drafter_options["checkpoint"]}
    config = _config(DrafterSpec(name=cell.drafter_name, options=options), cell.target)
    training = config.get("training") if config else None
    if not isinstance(training, Mapping):
        return "training not known"
    return _told(training) or "training not told"


def is_shipped(target: str, label: str) -> bool:
    """Whether the checkpoint that a label asks for is there.

    Args:
        target: Name of the target.
        label: ``hyflash:checkpoint=hyflash-l3``; a drafter that reads none counts as shipped.
    """
    drafter = DrafterSpec.from_text(label)
    return drafter.name not in DEFAULT_CHECKPOINTS or checkpoint_folder(drafter, target) is not None


def _config(drafter: DrafterSpec, target: str) -> dict[str, Any] | None:
    folder = checkpoint_folder(drafter, target)
    if folder is None:
        return None
    try:
        found = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _told(training: Mapping[str, Any]) -> str:
    given = {key: training.get(key) for key in _TOLD}
    steps, planned = given["steps"], training.get("planned_steps")
    if isinstance(steps, int) and isinstance(planned, int) and steps < planned:
        given["steps"] = f"{steps:,} of {planned:,}"
    return ", ".join(_phrase(_TOLD[key], value) for key, value in given.items() if value is not None)


def _phrase(template: str, value: Any) -> str:
    """The phrase; a value of another type than the trainer's is said as it is, if it is short."""
    try:
        return template.format(value)
    except (TypeError, ValueError):
        return template.partition("{")[0] + str(value)[:40] + template.rpartition("}")[2]
