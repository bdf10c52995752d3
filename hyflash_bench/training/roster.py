"""From names to networks: which configuration stands behind each name that can be trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from hyflash_bench.drafters.base import Requires
from hyflash_bench.drafters.networks.block import BlockConfig
from hyflash_bench.drafters.networks.checkpoint import network_class
from hyflash_bench.drafters.networks.network import DraftNetwork, NetworkConfig, TargetShape
from hyflash_bench.errors import SpecError, UnknownName
from hyflash_bench.footprint import block_held
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.training.features import spread_taps
from hyflash_bench.training.plan import TrainingPlan

__all__ = ["ROSTER", "STATE_FOLDER", "Entry", "enlist", "parameter_rows"]

_ALL: Mapping[str, Any] = {"copy_window": 512}
"""What all drafters share, so that copying the last tokens is not what sets them apart."""
_BLOCK: Mapping[str, Any] = {**_ALL, "markov_rank": 64, "follow_heads": 1}
"""What all block drafters share, so that they differ in nothing but what they are compared for."""

_MEMORY: Mapping[str, Any] = {"memory": "gated-delta", "recall_rows": 2048}
_SHIFTS = (0, 1, 2)
"""Of the heads of a memory, in turns: what holds now, what came next, and what came after that."""
_NO_MEMORY: Mapping[str, Any] = {**_BLOCK, "attention": "window", "memory": "none"}

ROSTER: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "hyflash": ("block", {**_BLOCK, **_MEMORY, "attention": "window"}),
    "full-context": ("block", {**_BLOCK, "attention": "full", "memory": "none"}),
    "window": ("block", _NO_MEMORY),
    "window-equal-bytes": ("block", _NO_MEMORY),
    "memory-only": ("block", {**_BLOCK, **_MEMORY, "attention": "none"}),
    "medusa": ("medusa", _ALL),
    "eagle": ("eagle", _ALL),
}
"""Kind of network and the settings that make the name, for each drafter that can be trained."""

STATE_FOLDER = "state"
"""Stands beside the drafters' folders, so that none can have its name."""
_LABEL = "label"
_REFERENCE = "full-context"
_ROUND_TO = 8
_HYBRID, _EQUAL_BYTES = "hyflash", "window-equal-bytes"
_ELEMENT_BYTES = 4
"""Of a number when bytes are made equal: that of the default target. In half precision hyflash's state,
which stays in float32, weighs more, and a window of as many bytes would be longer."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One drafter in training.

    Attributes:
        name: In the roster.
        label: The one asked for, or else :attr:`usual_label`, with what else was asked for if that is not
            enough; fit for a folder.
        usual_label: Name and depth.
        kind: Of the network.
        config: Whole configuration.
        parameters: Trained numbers.
        reference: Those of full-context at the same depth, where it was matched to it.
        bytes_gap: Bytes held beyond hyflash's at the same depth, where the window was chosen for it.
    """

    name: str
    label: str
    usual_label: str
    kind: str
    config: NetworkConfig
    parameters: int
    reference: int | None = None
    bytes_gap: int | None = None

    @property
    def drafter(self) -> str:
        """Name under which it is run."""
        return "window" if self.name == _EQUAL_BYTES else self.name

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
    entries = [_entry(_unlabelled(spec), plan, target) for spec in plan.drafters]
    given = [_given_label(spec) for spec in plan.drafters]
    usual = [entry.usual_label for entry, own in zip(entries, given, strict=True) if own is None]
    labels = [
        own or (entry.usual_label if usual.count(entry.usual_label) == 1 else _long_label(spec, entry))
        for spec, entry, own in zip(plan.drafters, entries, given, strict=True)
    ]
    for label in labels:
        if labels.count(label) > 1:
            raise SpecError(
                f"Drafter {label} is given twice. Keep one, or give each a label=NAME of its own."
            )
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
    config = _config(kind, _filled({**settings, **spec.options}), plan, target, spec.label)
    bytes_gap = None
    if spec.name == _EQUAL_BYTES:
        hybrid = _like(_HYBRID, config, plan, target)
        assert isinstance(hybrid, BlockConfig)
        assert isinstance(config, BlockConfig)
        config = _with_bytes_of(hybrid, config)
        bytes_gap = _held_bytes(config) - _held_bytes(hybrid)
    parameters = _count(kind, config)
    label = _usual_label(spec, config)
    if plan.match == "none" or kind != ROSTER[_REFERENCE][0] or spec.name == _REFERENCE:
        return Entry(spec.name, label, label, kind, config, parameters, bytes_gap=bytes_gap)
    reference = _reference_parameters(config, plan, target)
    if "intermediate_size" not in spec.options:
        config = _matched(kind, config, reference)
        parameters = _count(kind, config)
    return Entry(spec.name, label, label, kind, config, parameters, reference, bytes_gap)


def _filled(options: dict[str, Any]) -> dict[str, Any]:
    """Options with the shifts of as many heads as the memory has, where there is one."""
    if options.get("memory", "none") == "none" or "memory_shifts" in options:
        return options
    heads = options.get("memory_heads", BlockConfig.model_fields["memory_heads"].default)
    if not isinstance(heads, int):  # reading the configuration says what is wrong with it
        return options
    return {**options, "memory_shifts": tuple(_SHIFTS[head % len(_SHIFTS)] for head in range(heads))}


def _refuse_shared(spec: DrafterSpec, settings: Mapping[str, Any]) -> None:
    for key in ("target", "draft_vocab_size"):
        if key in spec.options:
            raise SpecError(
                f"Drafter {spec.label!r}: {key} is one for all drafters of a training. "
                f"Drop it here and say --{key.replace('_', '-')}."
            )
    # Another kind of memory is an ablation of hyflash; none at all, or another attention, another drafter.
    given = {**settings, **spec.options}
    is_changed = {
        "attention": given.get("attention") != settings.get("attention"),
        "memory": (given.get("memory") == "none") != (settings.get("memory") == "none"),
        "window": spec.name == _EQUAL_BYTES and "window" in spec.options,
    }
    for key in (key for key, is_other in is_changed.items() if is_other):
        raise SpecError(
            f"Drafter {spec.label!r}: {key} is what makes {spec.name}. "
            f"Name the drafter that has it: {', '.join(ROSTER)}."
        )


def _config(
    kind: str, options: Mapping[str, Any], plan: TrainingPlan, target: TargetShape, label: str
) -> NetworkConfig:
    cls = network_class(kind).Config
    defaults = {
        "taps": plan.taps or spread_taps(target.num_layers),
        "intermediate_size": target.intermediate_size,
    }
    values = {key: value for key, value in defaults.items() if key in cls.model_fields}
    values |= {**options, "target": target, "draft_vocab_size": plan.draft_vocab_size}
    return cls.parse(values, where=f"drafter {label!r}")


def _unlabelled(spec: DrafterSpec) -> DrafterSpec:
    """A drafter without the name that it is to have in this training."""
    options = {key: value for key, value in spec.options.items() if key != _LABEL}
    return spec.model_copy(update={"options": options})


def _given_label(spec: DrafterSpec) -> str | None:
    if _LABEL not in spec.options:
        return None
    label = str(spec.options[_LABEL])
    if label in ("", STATE_FOLDER) or not all(c.isalnum() or c in "-_" for c in label):
        raise SpecError(
            f"Drafter {spec.label!r}: the label {label!r} cannot name a folder beside {STATE_FOLDER}/. Use "
            "letters, digits, - and _."
        )
    return label


def _usual_label(spec: DrafterSpec, config: NetworkConfig) -> str:
    depth = getattr(config, "num_layers", None)
    return _fit_for_a_folder(spec.name if depth is None else f"{spec.name}-l{depth}")


def _long_label(spec: DrafterSpec, entry: Entry) -> str:
    """With all options, where name and depth are shared by two drafters."""
    parts = [f"{key}-{value}" for key, value in sorted(spec.options.items()) if key != "num_layers"]
    return _fit_for_a_folder("-".join([entry.usual_label, *parts]))


def _fit_for_a_folder(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in text)


def _reference_parameters(config: NetworkConfig, plan: TrainingPlan, target: TargetShape) -> int:
    """Parameters of full-context as deep and with as many slots, of the width asked for it or its default."""
    return _count(ROSTER[_REFERENCE][0], _like(_REFERENCE, config, plan, target))


def _like(name: str, config: NetworkConfig, plan: TrainingPlan, target: TargetShape) -> NetworkConfig:
    """A drafter as deep and with as many slots as another: as it is asked for, or its default."""
    kind, settings = ROSTER[name]
    like = {"num_layers": getattr(config, "num_layers"), "num_slots": config.num_slots}  # noqa: B009
    asked = [_unlabelled(spec).options for spec in plan.drafters if spec.name == name]
    candidates = [{**settings, **options} for options in asked] + [{**settings, **like}]
    configs = [_config(kind, _filled(options), plan, target, name) for options in candidates]
    return next(known for known in configs if all(getattr(known, key) == like[key] for key in like))


def _held_bytes(config: BlockConfig) -> int:
    """What a drafter holds of the text, which no context length changes."""
    return sum(block_held(config, 0, _ELEMENT_BYTES).values())


def _with_bytes_of(other: BlockConfig, config: BlockConfig) -> BlockConfig:
    """The configuration with the window at which it holds most nearly as many bytes as another."""

    def sized(window: int) -> BlockConfig:
        return config.model_copy(update={"window": window})

    first, second = (_held_bytes(sized(window)) for window in (1, 2))
    window = 1 + round((_held_bytes(other) - first) / (second - first))
    return sized(max(1, window))


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
            "window": getattr(entry.config, "window", None)
            if getattr(entry.config, "attention", None) == "window"
            else None,
            "bytes_to_hyflash": entry.bytes_gap,
        }
        for entry in entries
    ]
