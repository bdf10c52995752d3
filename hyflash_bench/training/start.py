"""Where a network's first weights come from: drawn anew, or taken from a checkpoint as far as it has them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hyflash_bench.data import expanded
from hyflash_bench.drafters.networks.checkpoint import CONFIG_FILE, WEIGHTS_FILE, load_network
from hyflash_bench.drafters.networks.network import DraftNetwork, redraw
from hyflash_bench.errors import SpecError, UnknownName
from hyflash_bench.suites.download import sha256_of
from hyflash_bench.targets.target import Target
from hyflash_bench.training.plan import TrainingPlan
from hyflash_bench.training.roster import Entry

__all__ = ["Origin", "first_network"]


@dataclass(frozen=True, slots=True)
class Origin:
    """What of a network came from a checkpoint.

    Parts are modules by their dotted names, as long as all below them is alike.

    Attributes:
        checkpoint: Name of its folder.
        weights: SHA-256 of its weights.
        taken: Parts that were taken over.
        new: Parts that start as in a new training.
        left: Parts that it has and that were left behind.
        options: Options that differ: what they were there, what they are here.
    """

    checkpoint: str
    weights: str
    taken: tuple[str, ...]
    new: tuple[str, ...]
    left: tuple[str, ...]
    options: dict[str, tuple[Any, Any]]

    def to_mapping(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    def holds(self, name: str) -> bool:
        """Whether a parameter was taken over."""
        return _is_below(name, self.taken)


def first_network(
    entry: Entry, plan: TrainingPlan, target: Target, draft_ids: Sequence[int]
) -> tuple[DraftNetwork, Origin | None]:
    """A drafter's network with its first weights, float32 on the plan's backend, before anything is fitted.

    Args:
        entry: The drafter.
        plan: Says whether there is a checkpoint to start from, and what of it is not wanted.
        target: Loaded.
        draft_ids: The draft vocabulary, where no checkpoint has one.

    Raises:
        DrafterError: The checkpoint is damaged or of another target.
        SpecError: It has parts that the drafter lacks, or of other shapes; each by name.
        UnknownName: A part to be left behind that neither has.
    """
    context = target.load_context()
    stored, folder = None, _checkpoint_of(entry, plan)
    if folder is not None:
        stored = load_network(folder, context)
        draft_ids = stored.head.draft_ids.tolist()
        _refuse_other_inputs(stored, entry, folder)
    network = entry.build()
    redraw(network, plan.seed)
    network.set_vocabulary(draft_ids)
    network.initialise(context)
    network = network.to(device=context.device, dtype=torch.float32)
    origin = None
    if stored is not None and folder is not None:
        origin = _taken_over(network, stored, folder, plan.init_without)
    network.attach(target.model)
    return network.train(), origin


def _checkpoint_of(entry: Entry, plan: TrainingPlan) -> Path | None:
    """The drafter's folder below the one given, by its own name or its usual one; or that folder itself."""
    if plan.init_from is None:
        return None
    given = expanded(plan.init_from)
    folders = [given / entry.label, given / entry.usual_label, given]
    return next((folder for folder in folders if (folder / CONFIG_FILE).is_file()), folders[0])


def _refuse_other_inputs(stored: DraftNetwork, entry: Entry, folder: Path) -> None:
    """Weights mean something else in a network of another kind, with other inputs or another vocabulary."""
    asked = {
        "kind": (stored.kind, entry.kind),
        "taps": (list(stored.requires.taps), list(entry.requires.taps)),
        "draft_vocab_size": (stored.config.draft_vocab_size, entry.config.draft_vocab_size),
    }
    for name, (there, here) in asked.items():
        if there != here:
            raise SpecError(
                f"{entry.label} cannot start from {folder}: {name} is {there} there and {here} here. Ask for "
                f"{there}, or start from another checkpoint."
            )


@torch.no_grad()
def _taken_over(
    network: DraftNetwork, stored: DraftNetwork, folder: Path, without: Collection[str]
) -> Origin:
    """Copy into a network all that a checkpoint has of it."""
    here, there = dict(network.named_parameters()), dict(stored.named_parameters())
    for part in without:
        if not any(_is_below(name, [part]) for name in {*here, *there}):
            known = {name.partition(".")[0] for name in {*here, *there}}
            raise UnknownName("part of a drafter to leave behind", part, known)
    left = [name for name in there if _is_below(name, without)]
    offered = {name: value for name, value in there.items() if name not in left}
    _refuse_surplus(_parts(offered.keys() - here.keys(), there), folder)
    _refuse_shapes(here, offered, folder)
    for name, value in offered.items():
        here[name].copy_(value)
    mine, theirs = (one.config.model_dump(mode="json", exclude={"target"}) for one in (network, stored))
    return Origin(
        checkpoint=folder.resolve().name,
        weights=sha256_of(folder / WEIGHTS_FILE),
        taken=_parts(offered, here),
        new=_parts(here.keys() - offered.keys(), here),
        left=_parts(left, there),
        options={key: (theirs[key], mine[key]) for key in mine if mine[key] != theirs[key]},
    )


def _refuse_surplus(parts: Sequence[str], folder: Path) -> None:
    if parts:
        listed = ", ".join(parts)
        raise SpecError(
            f"{folder} has parts that the drafter asked for lacks: {listed}. Ask for one that has them, or "
            f"leave them behind: --init-without {','.join(parts)}"
        )


def _refuse_shapes(here: Mapping[str, Tensor], offered: Mapping[str, Tensor], folder: Path) -> None:
    other = [name for name, value in offered.items() if value.shape != here[name].shape]
    if other:
        told = ", ".join(
            f"{name} is {list(offered[name].shape)} there, {list(here[name].shape)} here"
            for name in other[:5]
        )
        more = f" and {len(other) - 5} more" if len(other) > 5 else ""
        parts = list(dict.fromkeys(name.rpartition(".")[0] or name for name in other))
        raise SpecError(
            f"{folder} has other shapes than the drafter asked for: {told}{more}. Ask for the same sizes, or "
            f"start these parts anew: --init-without {','.join(parts)}"
        )


def _is_below(name: str, parts: Iterable[str]) -> bool:
    return any(name == part or name.startswith(f"{part}.") for part in parts)


def _parts(names: Collection[str], among: Collection[str]) -> tuple[str, ...]:
    """Some of a network's parameters, by the largest modules that hold none of the others."""
    others = [name for name in among if name not in names]
    found: dict[str, None] = {}
    for name in (name for name in among if name in names):
        steps = name.split(".")
        heads = (".".join(steps[:count]) for count in range(1, len(steps) + 1))
        found[next(head for head in heads if not any(_is_below(other, [head]) for other in others))] = None
    return tuple(found)
