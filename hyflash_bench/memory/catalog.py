"""From a drafter's name and options to its form, through a checkpoint's configuration alone. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field

from hyflash_bench.data import expanded
from hyflash_bench.errors import DrafterError, UsageError
from hyflash_bench.memory.forms import (
    BlockForm,
    DrafterForm,
    EagleForm,
    MedusaForm,
    PlainForm,
    Precision,
    RecentForm,
    SmallModelForm,
)
from hyflash_bench.memory.public_forms import (
    PublicDFlashForm,
    PublicEagleForm,
    PublicMedusaForm,
    check_target,
)
from hyflash_bench.memory.shapes import KV_DTYPES, KVDtype, ModelShape, WeightBits
from hyflash_bench.spec.base import Spec
from hyflash_bench.spec.baselines import checkpoint_folder
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.formats.recognise import CONFIG_FILE, recognise
from hyflash_bench.spec.formats.sizes import PublicSizes, read_sizes

__all__ = ["HAVE_CHECKPOINTS", "RECIPES", "SMALL_MODEL", "form_of", "read_checkpoint"]

_BYTES_PER_TOKEN: Mapping[str, tuple[int, int, str]] = {
    "prompt-lookup": (240, 10, "about 240 bytes a token, as measured in texts of 512 to 2,048 tokens"),
    "suffix": (190, 16, "about 190 bytes a token, as measured in texts of 512 to 2,048 tokens"),
}
"""Structures whose size depends on the text: bytes a token, tokens of a draft, and whence."""
_SEARCH_OPERATORS: Mapping[str, tuple[int, int]] = {"prompt-lookup": (15, 0), "suffix": (28, 17)}
"""With a window: about how many operators torch starts for a draft, and for each token of it."""

_ALL: Mapping[str, Any] = {"copy_window": 512}
_BLOCK: Mapping[str, Any] = {**_ALL, "markov_rank": 64, "follow_heads": 1}
_MEMORY: Mapping[str, Any] = {"memory": "gated-delta", "memory_shifts": (0, 1, 2), "recall_rows": 2048}
RECIPES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "hyflash": ("block", {**_BLOCK, **_MEMORY, "attention": "window"}),
    "full-context": ("block", {**_BLOCK, "attention": "full", "memory": "none"}),
    "window": ("block", {**_BLOCK, "attention": "window", "memory": "none"}),
    "memory-only": ("block", {**_BLOCK, **_MEMORY, "attention": "none"}),
    "medusa": ("medusa", _ALL),
    "eagle": ("eagle", _ALL),
}
"""What ``train`` makes of each name with one layer; of use where nothing was trained for a target yet."""

HAVE_CHECKPOINTS = frozenset({*RECIPES, "dflash"})
"""Drafters whose network lies in a checkpoint."""

SMALL_MODEL = "small-model"
_OF_OTHERS = "of others"
"""Kind of a checkpoint in another layout, whose network is described by :class:`PublicSizes`."""


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
    recall_rows: int = Field(0, ge=0)


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
        None where bytes cannot be known beforehand: plugins, drafters from files, a small model whose
        network is not given.

    Raises:
        UsageError: A checkpoint was named that is not there.
        DrafterError: A checkpoint's configuration cannot be read, or is another drafter's.
    """
    if spec.name == "autoregressive":
        return PlainForm(0, 0)
    if spec.name in _BYTES_PER_TOKEN:
        return _copying(spec)
    kv_dtype = _own_kv_dtype(spec) or kv_dtype
    if spec.name == SMALL_MODEL:
        most = _whole(spec, "num_draft_tokens", 4)
        shape = None if network is None else ModelShape(**network["network"])
        return None if shape is None else SmallModelForm(most, shape, bits, kv_dtype)
    if spec.name not in HAVE_CHECKPOINTS:
        return None
    kind, values, note = (network["kind"], network["network"], "") if network else _described(spec, target)
    precision = Precision(4 if bits == 32 else 2, kv_dtype)
    if kind == _OF_OTHERS:
        return _of_others(spec, values, target, precision)
    return _trained(spec, kind, values, note, precision)


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


def _copying(spec: DrafterSpec) -> DrafterForm:
    size, most, note = _BYTES_PER_TOKEN[spec.name]
    most, window = _whole(spec, "num_draft_tokens", most), _whole(spec, "window", 0)
    if window:
        return RecentForm(most, window, _SEARCH_OPERATORS[spec.name])
    return PlainForm(most, size, note, spec.name)


def _trained(
    spec: DrafterSpec, kind: str, values: Mapping[str, Any], note: str, precision: Precision
) -> DrafterForm:
    where = f"configuration of {spec.label}"
    if spec.options.get("recall_rows") is not None:
        values = {**values, "recall_rows": _whole(spec, "recall_rows", 0)}
    is_tree, limit = bool(spec.options.get("tree", False)), _whole(spec, "window", 0)
    if kind == "block":
        block = _Block.parse(values, where)
        return BlockForm(_most(spec, block.num_slots), note, precision, block, limit)
    if kind == "eagle":
        eagle = _Eagle.parse(values, where)
        if not is_tree:
            return EagleForm(_most(spec, eagle.num_slots), note, precision, eagle, limit=limit)
        levels = _whole(spec, "depth", 0) or eagle.num_slots
        nodes = _num_nodes(spec, "total_tokens")
        return EagleForm(nodes, note, precision, eagle, levels, _whole(spec, "top_k", 4), limit)
    medusa = _Medusa.parse(values, where)
    nodes = _num_paths(spec, medusa.draft_vocab_size, medusa.num_slots) if is_tree else 0
    return MedusaForm(nodes or _most(spec, medusa.num_slots), note, precision, medusa, nodes)


def _of_others(
    spec: DrafterSpec, values: Mapping[str, Any], target: ModelShape, precision: Precision
) -> DrafterForm | None:
    """The form of a public checkpoint; None where a run of an earlier version did not keep its sizes."""
    if not values:
        return None
    sizes = PublicSizes.parse(values, f"sizes of {spec.label}")
    check_target(sizes, target, f"The checkpoint of {spec.label}")
    is_tree, most = bool(spec.options.get("tree", False)), _most(spec, sizes.num_slots)
    limit = _whole(spec, "window", 0)
    if sizes.layer is None:
        nodes = _num_paths(spec, target.vocab_size, sizes.num_slots) if is_tree else 0
        return PublicMedusaForm(nodes or most, precision, sizes, target, nodes)
    if sizes.format == "dflash":
        return PublicDFlashForm(most, precision, sizes, sizes.layer)
    if not is_tree:
        return PublicEagleForm(most, precision, sizes, sizes.layer, limit=limit)
    levels, nodes = _whole(spec, "depth", 0) or sizes.num_slots, _num_nodes(spec, "total_tokens")
    return PublicEagleForm(nodes, precision, sizes, sizes.layer, levels, _whole(spec, "top_k", 4), limit)


def _described(spec: DrafterSpec, target: ModelShape) -> tuple[str, dict[str, Any], str]:
    """Kind and configuration of a network, and what they rest on."""
    folder = checkpoint_folder(spec, target.name)
    if folder is not None:
        return _found(spec, folder)
    if spec.options.get("checkpoint") or spec.name not in RECIPES:
        given = spec.options.get("checkpoint")
        what = f"no checkpoint {given!r} for {target.name}" if given else "no checkpoint shipped"
        raise UsageError(
            f"Drafter {spec.label!r}: there is {what}. Give checkpoint= a folder, the name of a shipped "
            "baseline or a hub id that was fetched before."
        )
    kind, recipe = RECIPES[spec.name]
    layers = target.num_layers
    values = {
        **recipe,
        "taps": tuple(sorted({layers * 3 // 10, layers * 19 // 30, max(0, layers - 2)})),
        "intermediate_size": target.intermediate_size,
        "draft_vocab_size": min(8192, target.vocab_size),
        "target": {name: getattr(target, name) for name in _Target.model_fields},
    }
    return kind, values, "nothing is trained for this target yet; sizes as train would make it, one layer"


def _found(spec: DrafterSpec, folder: Path) -> tuple[str, dict[str, Any], str]:
    described = read_checkpoint(folder)
    kind, network = described["kind"], described["network"]
    own = network["format"].removesuffix("3") if kind == _OF_OTHERS else kind
    needed = RECIPES[spec.name][0] if spec.name in RECIPES else spec.name
    if own != needed:
        raise DrafterError(
            f"{folder} holds a network of kind {own}; {spec.name} needs {needed}. "
            "Choose another checkpoint or another drafter."
        )
    return kind, network, ""


def read_checkpoint(folder: Path) -> dict[str, Any]:
    """Kind and configuration of the network in a folder.

    Raises:
        DrafterError: There is none that can be read.
    """
    found = recognise(folder)
    if found.format not in ("own", "exported"):
        return {"kind": _OF_OTHERS, "network": read_sizes(folder, found).model_dump(mode="json")}
    network = found.config.get("network")
    if not isinstance(network, dict):
        raise DrafterError(f"{folder / CONFIG_FILE} lacks the network's sizes. Restore or retrain it.")
    return {"kind": str(found.config.get("kind")), "network": network}


def _most(spec: DrafterSpec, num_slots: int) -> int:
    """Tokens of the longest chain."""
    return min(_whole(spec, "num_draft_tokens", 0) or num_slots, num_slots)


def _num_nodes(spec: DrafterSpec, option: str) -> int:
    """Most nodes of a tree."""
    asked = _whole(spec, option, 16)
    return min(asked, _whole(spec, "num_draft_tokens", 0) or asked)


def _num_paths(spec: DrafterSpec, num_tokens: int, num_heads: int) -> int:
    """Nodes of a tree of ranked tokens: those that a file lists, or as many as asked for if there are."""
    if spec.options.get("tree_paths"):
        file = expanded(str(spec.options["tree_paths"]))
        try:
            return len(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise UsageError(f"Drafter {spec.label!r}: tree_paths {file} cannot be read: {error}.") from None
    paths: int = sum(num_tokens**depth for depth in range(1, num_heads + 1))
    return min(_num_nodes(spec, "tree_nodes"), paths)


def _whole(spec: DrafterSpec, option: str, default: int) -> int:
    value = spec.options.get(option, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UsageError(f"Drafter {spec.label!r}: {option} must be a whole number from 0, not {value!r}.")
    return value
