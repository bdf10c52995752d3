"""From names to networks: which configuration stands behind each name that can be trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from hyflash_bench.drafters.base import Requires
from hyflash_bench.drafters.networks.checkpoint import network_class
from hyflash_bench.drafters.networks.network import DraftNetwork, NetworkConfig, TargetShape
from hyflash_bench.errors import SpecError, UnknownName
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.training.plan import TrainingPlan

__all__ = ["ROSTER", "Entry", "enlist", "parameter_rows"]

_ALL: Mapping[str, Any] = {"copy_window": 512}
"""What all drafters share, so that copying the last tokens is not what sets them apart."""
_BLOCK: Mapping[str, Any] = {**_ALL, "markov_rank": 64, "follow_heads": 1}
"""What all block drafters share, so that they differ in nothing but what they are compared for."""

_MEMORY: Mapping[str, Any] = {"memory": "gated-delta", "memory_shifts": (0, 1, 2)}

ROSTER: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "hyflash": ("block", {**_BLOCK, **_MEMORY, "attention": "window"}),
    "full-context": ("block", {**_BLOCK, "attention": "full", "memory": "none"}),
    "window": ("block", {**_BLOCK, "attention": "window", "memory": "none"}),
    "memory-only": ("block", {**_BLOCK, **_MEMORY, "attention": "none"}),
    "medusa": ("medusa", _ALL),
    "eagle": ("eagle", _ALL),
}
"""Kind of network and the settings that make the name, for each drafter that can be trained."""

_REFERENCE = "full-context"
_ROUND_TO = 8


@dataclass(frozen=True, slots=True)
class Entry:
    """One drafter in training.

    Attributes:
        name: In the roster.
        label: Name and depth, and what else was asked for if they are not enough; fit for a folder.
        kind: Of the network.
        config: Whole configuration.
        parameters: Trained numbers.
        reference: Those of full-context at the same depth, where it was matched to it.
    """

    name: str
    label: str
    kind: str
    config: NetworkConfig
    parameters: int
    reference: int | None = None

    @property
    def requires(self) -> Requires:
        """Features that its network reads; makes no tensors."""
        with torch.device("meta"):
            return self.build().requires

    def build(self) -> DraftNetwork:
        """The network, not initialised from the target yet."""
        return network_class(self.kind)(self.config)


def enlist(plan: TrainingPlan, target: TargetShape) -> list[Entry]:
    """The drafters of a plan, with widths matched as it says.

    Raises:
        UnknownName: A drafter that cannot be trained.
        SpecError: An option that its network does not know, or the same drafter twice.
    """
    entries = [_entry(spec, plan, target) for spec in plan.drafters]
    short = [_label(spec, entry.config) for spec, entry in zip(plan.drafters, entries, strict=True)]
    labels = [
        _label(spec, entry.config, spec.options if short.count(label) > 1 else {})
        for spec, entry, label in zip(plan.drafters, entries, short, strict=True)
    ]
    for label in labels:
        if labels.count(label) > 1:
            raise SpecError(f"Drafter {label} is given twice. Keep one.")
    return [replace(entry, label=label) for entry, label in zip(entries, labels, strict=True)]


def _count(kind: str, config: NetworkConfig) -> int:
    """Trained numbers of a configuration; makes no tensors."""
    with torch.device("meta"):
        return network_class(kind)(config).num_parameters()


def _entry(spec: DrafterSpec, plan: TrainingPlan, target: TargetShape) -> Entry:
    if spec.name not in ROSTER:
        raise UnknownName("drafter to train", spec.name, ROSTER)
    kind, settings = ROSTER[spec.name]
    _refuse_shared(spec, settings)
    config = _config(kind, {**settings, **spec.options}, plan, target, spec.label)
    parameters = _count(kind, config)
    if plan.match == "none" or kind != ROSTER[_REFERENCE][0] or spec.name == _REFERENCE:
        return Entry(spec.name, spec.label, kind, config, parameters)
    reference = _reference_parameters(config, plan, target)
    if "intermediate_size" not in spec.options:
        config = _matched(kind, config, reference)
        parameters = _count(kind, config)
    return Entry(spec.name, spec.label, kind, config, parameters, reference)


def _refuse_shared(spec: DrafterSpec, settings: Mapping[str, Any]) -> None:
    for key in ("target", "draft_vocab_size"):
        if key in spec.options:
            raise SpecError(
                f"Drafter {spec.label!r}: {key} is one for all drafters of a training. "
                f"Drop it here and say --{key.replace('_', '-')}."
            )
    # Another kind of memory is an ablation of hyflash; another attention is another drafter.
    if "attention" in spec.options and spec.options["attention"] != settings.get("attention"):
        raise SpecError(
            f"Drafter {spec.label!r}: attention is what makes {spec.name}. "
            f"Name the drafter that has it: {', '.join(ROSTER)}."
        )


def _config(
    kind: str, options: Mapping[str, Any], plan: TrainingPlan, target: TargetShape, label: str
) -> NetworkConfig:
    cls = network_class(kind).Config
    defaults = {
        "taps": plan.taps or _spread_taps(target.num_layers),
        "intermediate_size": target.intermediate_size,
    }
    values = {key: value for key, value in defaults.items() if key in cls.model_fields}
    values |= {**options, "target": target, "draft_vocab_size": plan.draft_vocab_size}
    return cls.parse(values, where=f"drafter {label!r}")


def _spread_taps(num_layers: int) -> tuple[int, ...]:
    """Three layers: of 30 they are 9, 19 and 28."""
    return tuple(sorted({num_layers * 3 // 10, num_layers * 19 // 30, max(0, num_layers - 2)}))


def _label(spec: DrafterSpec, config: NetworkConfig, options: Mapping[str, Any] | None = None) -> str:
    """Name and depth, and the other options where those alone are shared by two drafters."""
    depth = getattr(config, "num_layers", None)
    parts = [spec.name] if depth is None else [spec.name, f"l{depth}"]
    parts += [f"{key}-{value}" for key, value in sorted((options or {}).items()) if key != "num_layers"]
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in "-".join(parts))


def _reference_parameters(config: NetworkConfig, plan: TrainingPlan, target: TargetShape) -> int:
    """Parameters of full-context as deep and with as many slots, of the width asked for it or its default."""
    kind, settings = ROSTER[_REFERENCE]
    like = {"num_layers": getattr(config, "num_layers"), "num_slots": config.num_slots}  # noqa: B009
    asked = [spec.options for spec in plan.drafters if spec.name == _REFERENCE]
    candidates = [{**settings, **options} for options in asked] + [{**settings, **like}]
    configs = [_config(kind, options, plan, target, _REFERENCE) for options in candidates]
    fitting = [known for known in configs if all(getattr(known, key) == value for key, value in like.items())]
    return _count(kind, fitting[0])


def _matched(kind: str, config: NetworkConfig, wanted: int) -> NetworkConfig:
    """The configuration with the feed-forward width that comes nearest to a number of parameters."""

    def sized(width: int) -> NetworkConfig:
        return type(config).model_validate({**config.model_dump(), "intermediate_size": width})

    low, high = (_count(kind, sized(width)) for width in (_ROUND_TO, 2 * _ROUND_TO))
    per_unit = (high - low) / _ROUND_TO
    width = _ROUND_TO + (wanted - low) / per_unit
    return sized(max(_ROUND_TO, round(width / _ROUND_TO) * _ROUND_TO))


def parameter_rows(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """A table of the drafters and their sizes."""
    return [
        {
            "drafter": entry.label,
            "num_parameters": entry.parameters,
            "full_context": entry.reference,
            "difference": None if entry.reference is None else entry.parameters - entry.reference,
            "intermediate_size": getattr(entry.config, "intermediate_size", None),
            "num_slots": entry.config.num_slots,
        }
        for entry in entries
    ]
