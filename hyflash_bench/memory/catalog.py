"""From a drafter's name and options to its form, through a checkpoint's configuration alone. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field

from hyflash_bench.errors import DrafterError, UsageError
from hyflash_bench.memory.forms import (
    BlockForm,
    DrafterForm,
    EagleForm,
    MedusaForm,
    PlainForm,
    Precision,
    SmallModelForm,
)
from hyflash_bench.memory.shapes import KV_DTYPES, KVDtype, ModelShape, WeightBits
from hyflash_bench.spec.base import Spec
from hyflash_bench.spec.baselines import checkpoint_folder
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.formats.recognise import recognise

__all__ = ["RECIPES", "SMALL_MODEL", "form_of", "read_checkpoint"]

_BYTES_PER_TOKEN: Mapping[str, tuple[int, int, str]] = {
    "prompt-lookup": (240, 10, "about 240 bytes a token, as measured in texts of 512 to 2,048 tokens"),
    "suffix": (190, 16, "about 190 bytes a token, as measured in texts of 512 to 2,048 tokens"),
}
"""Structures whose size depends on the text: bytes a token, tokens of a draft, and whence."""

_ALL: Mapping[str, Any] = {"copy_window": 512}
_BLOCK: Mapping[str, Any] = {**_ALL, "markov_rank": 64, "follow_heads": 1}
_MEMORY: Mapping[str, Any] = {"memory": "gated-delta", "memory_shifts": (0, 1, 2)}
RECIPES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "hyflash": ("block", {**_BLOCK, **_MEMORY, "attention": "window"}),
    "full-context": ("block", {**_BLOCK, "attention": "full", "memory": "none"}),
    "window": ("block", {**_BLOCK, "attention": "window", "memory": "none"}),
    "memory-only": ("block", {**_BLOCK, **_MEMORY, "attention": "none"}),
    "medusa": ("medusa", _ALL),
    "eagle": ("eagle", _ALL),
}
"""What ``train`` makes of each name with one layer; of use where nothing was trained for a target yet."""


SMALL_MODEL = "small-model"
_OF_OTHERS = "of others"
"""Kind of a checkpoint in another layout: what it will hold is known once it is loaded."""


class _Loose(Spec):
    """Reads what it needs and leaves the rest to those who load the network."""

    model_config = ConfigDict(extra="ignore")


class _Target(_Loose):
    hidden_size: int = Field(ge=1)
    intermediate_size: int = Field(ge=1)
    num_heads: int = Field(ge=1)
    num_kv_heads: int = Field(ge=1)
    head_dim: int = Field(ge=1)


class _Network(_Loose):
    target: _Target
    num_slots: int = Field(5, ge=1)
    draft_vocab_size: int = Field(8192, ge=1)
    copy_window: int = Field(0, ge=0)
    copy_size: int = Field(64, ge=1)


class _Block(_Network):
    num_layers: int = Field(1, ge=1)
    taps: tuple[int, ...] = ()
    last_hidden: bool = True
    attention: str = "window"
    window: int = Field(64, ge=1)
    chunk: int = Field(32, ge=1)
    memory: str = "gated-delta"
    memory_heads: int = Field(3, ge=1)
    memory_key_dim: int = Field(64, ge=1)
    memory_value_dim: int = Field(64, ge=1)
    memory_shifts: tuple[int, ...] = ()
    shared_memory: bool = False
    intermediate_size: int = Field(0, ge=0)
    slot_rank: int = Field(64, ge=0)
    markov_rank: int = Field(0, ge=0)


class _Eagle(_Network):
    taps: tuple[int, ...]
    last_hidden: bool = True
    intermediate_size: int = Field(ge=1)
    token_residual: bool = True


class _Medusa(_Network):
    hidden_layers: int = Field(1, ge=1)


def form_of(
    spec: DrafterSpec,
    target: ModelShape,
    *,
    bits: WeightBits = 32,
    kv_dtype: KVDtype = "float32",
    network: Mapping[str, Any] | None = None,
) -> DrafterForm | None:
    """The form of a drafter for a target.

    A trained drafter without a checkpoint for the target is taken as ``train`` would make it, and its
    note says so. Its own weights have at least 16 bits, like its keys and values unless they are int8.

    Args:
        spec: Which drafter.
        target: Of which target.
        bits: Of the target's weights.
        kv_dtype: Of the drafter's keys and values, unless its own option says otherwise.
        network: What :func:`~hyflash_bench.memory.lookup.network_of` found of it; read from its
            checkpoint by default.

    Returns:
        None where bytes cannot be known beforehand: plugins, drafters from files, checkpoints of others, a
        small model whose network is not given.

    Raises:
        UsageError: A checkpoint was named that is not there.
        DrafterError: A checkpoint's configuration cannot be read, or is another drafter's.
    """
    if spec.name == "autoregressive":
        return PlainForm(0, 0)
    if spec.name in _BYTES_PER_TOKEN:
        size, most, note = _BYTES_PER_TOKEN[spec.name]
        return PlainForm(_whole(spec, "num_draft_tokens", most), size, note, spec.name)
    kv_dtype = _own_kv_dtype(spec) or kv_dtype
    if spec.name == SMALL_MODEL:
        most = _whole(spec, "num_draft_tokens", 4)
        shape = None if network is None else ModelShape(**network["network"])
        return None if shape is None else SmallModelForm(most, shape, bits, kv_dtype)
    if spec.name not in RECIPES:
        return None
    kind, values, note = (network["kind"], network["network"], "") if network else _described(spec, target)
    return _trained(spec, kind, values, note, Precision(4 if bits == 32 else 2, kv_dtype))


def _own_kv_dtype(spec: DrafterSpec) -> KVDtype | None:
    """What a drafter's own option says; None where it leaves it to others."""
    asked = spec.options.get("kv_dtype", "auto")
    if asked == "auto":
        return None
    for dtype in KV_DTYPES:
        if asked == dtype:
            return dtype
    raise UsageError(
        f"Drafter {spec.label!r}: kv_dtype must be auto, {' or '.join(KV_DTYPES)}, not {asked!r}."
    )


def _trained(
    spec: DrafterSpec, kind: str, values: Mapping[str, Any], note: str, precision: Precision
) -> DrafterForm | None:
    if kind == _OF_OTHERS:
        return None
    where = f"configuration of {spec.label}"
    is_tree = bool(spec.options.get("tree", False))
    if kind == "block":
        block = _Block.parse(values, where)
        return BlockForm(_most(spec, block), note, precision, block, _whole(spec, "window", 0))
    if kind == "eagle":
        eagle = _Eagle.parse(values, where)
        if not is_tree:
            return EagleForm(_most(spec, eagle), note, precision, eagle)
        levels = _whole(spec, "depth", 0) or eagle.num_slots
        nodes = _num_nodes(spec, "total_tokens")
        return EagleForm(nodes, note, precision, eagle, levels, _whole(spec, "top_k", 4))
    medusa = _Medusa.parse(values, where)
    nodes = min(_num_nodes(spec, "tree_nodes"), _num_paths(medusa)) if is_tree else 0
    return MedusaForm(nodes or _most(spec, medusa), note, precision, medusa, nodes)


def _described(spec: DrafterSpec, target: ModelShape) -> tuple[str, dict[str, Any], str]:
    """Kind and configuration of a network, and what they rest on."""
    folder = checkpoint_folder(spec, target.name)
    kind, recipe = RECIPES[spec.name]
    if folder is not None:
        described = read_checkpoint(folder)
        if described["kind"] not in (kind, _OF_OTHERS):
            raise DrafterError(
                f"{folder} holds a network of kind {described['kind']}; {spec.name} needs {kind}. "
                "Choose another checkpoint or another drafter."
            )
        return described["kind"], described["network"], ""
    if spec.options.get("checkpoint"):
        raise UsageError(
            f"Drafter {spec.label!r}: there is no checkpoint {spec.options['checkpoint']!r} for "
            f"{target.name}. Give a folder or the name of a shipped baseline, or drop checkpoint."
        )
    layers = target.num_layers
    values = {
        **recipe,
        "taps": tuple(sorted({layers * 3 // 10, layers * 19 // 30, max(0, layers - 2)})),
        "intermediate_size": target.intermediate_size,
        "draft_vocab_size": min(8192, target.vocab_size),
        "target": {name: getattr(target, name) for name in _Target.model_fields},
    }
    return kind, values, "nothing is trained for this target yet; sizes as train would make it, one layer"


def read_checkpoint(folder: Path) -> dict[str, Any]:
    """Kind and configuration of the network in a folder.

    Raises:
        DrafterError: There is none that can be read.
    """
    path = folder / "config.json"
    with suppress(DrafterError):
        if recognise(folder).format != "own":
            return {"kind": _OF_OTHERS, "network": {}}
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DrafterError(f"{path} cannot be read: {error}. Restore or retrain it.") from None
    if not isinstance(described, dict) or not isinstance(described.get("network"), dict):
        raise DrafterError(f"{path} is not the configuration of a drafter trained by this package.")
    return {"kind": str(described.get("kind")), "network": described["network"]}


def _most(spec: DrafterSpec, config: _Network) -> int:
    """Tokens of the longest chain."""
    return min(_whole(spec, "num_draft_tokens", 0) or config.num_slots, config.num_slots)


def _num_nodes(spec: DrafterSpec, option: str) -> int:
    """Most nodes of a tree."""
    asked = _whole(spec, option, 16)
    return min(asked, _whole(spec, "num_draft_tokens", 0) or asked)


def _num_paths(config: _Medusa) -> int:
    return sum(config.draft_vocab_size**depth for depth in range(1, config.num_slots + 1))


def _whole(spec: DrafterSpec, option: str, default: int) -> int:
    value = spec.options.get(option, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UsageError(f"Drafter {spec.label!r}: {option} must be a whole number from 0, not {value!r}.")
    return value
