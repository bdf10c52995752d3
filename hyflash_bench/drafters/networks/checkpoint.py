"""A trained drafter on disk: ``config.json`` and ``model.safetensors`` in one folder."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from hyflash_bench.atomic import replacing, write_text
from hyflash_bench.drafters.base import LoadContext
from hyflash_bench.drafters.networks.network import DraftNetwork, NetworkConfig, TargetShape
from hyflash_bench.errors import DrafterError, HyFlashError
from hyflash_bench.spec.baselines import DEFAULT_CHECKPOINTS, checkpoint_folder, shipped_baselines
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.formats.recognise import cached_snapshot, is_hub_id

__all__ = [
    "KINDS",
    "build_network",
    "describe",
    "find_checkpoint",
    "load_network",
    "network_class",
    "save_network",
    "write_tensors",
]

FORMAT = "hyflash-bench-drafter"
VERSION = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"

KINDS: Mapping[str, str] = {
    "block": "hyflash_bench.drafters.networks.block:BlockNetwork",
    "eagle": "hyflash_bench.drafters.networks.eagle:EagleNetwork",
    "medusa": "hyflash_bench.drafters.networks.medusa:MedusaNetwork",
}
"""Where the class of each kind of network lives; imported when needed."""


def network_class(kind: str) -> type[DraftNetwork]:
    """The class of a kind of network."""
    module, _, name = KINDS[kind].partition(":")
    found: type[DraftNetwork] = getattr(import_module(module), name)
    return found


def save_network(network: DraftNetwork, folder: Path, training: Mapping[str, Any]) -> None:
    """Write a network, in bfloat16 where that is enough; old files stay until the new ones are whole.

    Args:
        network: What to save.
        folder: Made if missing.
        training: How it was trained, for the reader of ``config.json``.

    Raises:
        DataError: The disk is full or the folder cannot be written.
    """
    tensors = {
        name: value.detach().to("cpu", torch.float32 if network.is_delicate(name) else torch.bfloat16)
        for name, value in network.named_parameters()
    }
    tensors["head.draft_ids"] = network.head.draft_ids.to("cpu", torch.int32)
    write_tensors(tensors, folder / WEIGHTS_FILE)
    write_text(folder / CONFIG_FILE, json.dumps(describe(network, training), indent=2) + "\n")


def describe(network: DraftNetwork, training: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of a network beside its weights."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "kind": network.kind,
        "network": network.config.model_dump(mode="json"),
        "training": dict(training),
    }


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write a safetensors file; an old one stays until the new one is whole.

    Raises:
        DataError: The disk is full or the file cannot be written.
    """
    with replacing(path) as temporary:
        try:
            save_file({name: value.contiguous() for name, value in tensors.items()}, temporary)
        except SafetensorError as error:
            # Its writer wraps the system's error in a text of its own.
            raise OSError(errno.ENOSPC if "space" in str(error) else errno.EIO, str(error)) from error
        temporary.chmod(0o644)  # safetensors writes for its owner alone


def load_network(folder: Path, context: LoadContext) -> DraftNetwork:
    """Read a network and lend it the target's embedding and head.

    Every tensor is accounted for, and the target must be the one it was trained for.

    Args:
        folder: Holds ``config.json`` and ``model.safetensors``.
        context: The loaded target.

    Returns:
        In the target's precision, on its device, not in training mode.

    Raises:
        DrafterError: Not a checkpoint, damaged, or made for another target; with the reason.
    """
    return build_network(folder, _read_config(folder), context, partial(_read_weights, folder))


def build_network(
    folder: Path,
    described: Mapping[str, Any],
    context: LoadContext,
    read: Callable[[DraftNetwork], Mapping[str, Tensor]],
) -> DraftNetwork:
    """A network from what describes it; see :func:`load_network`.

    Args:
        folder: Where it lies, for messages.
        described: As :func:`save_network` writes into ``config.json``.
        context: The loaded target.
        read: Parameters and ``head.draft_ids`` by name, as a network without storage asks for them.

    Raises:
        DrafterError: Not a drafter of this package, damaged, or made for another target.
    """
    path = folder / CONFIG_FILE
    if described.get("version") != VERSION:
        raise DrafterError(
            f"{path} is of version {described.get('version')!r}; this package reads {VERSION}. Update it."
        )
    if str(described.get("kind")) not in KINDS:
        raise DrafterError(f"{path} has kind {described.get('kind')!r}; known are {', '.join(KINDS)}.")
    cls = network_class(described["kind"])
    given = described.get("network")
    values = given if isinstance(given, dict) else {}
    try:
        config = cls.Config.parse(values, where=f"{path}, network")
    except HyFlashError as error:
        raise DrafterError(str(error)) from None
    _compare_targets(folder, config.target, context)
    with torch.device("meta"):
        network = cls(config)
    tensors = read(network)
    _check_ids(folder, tensors["head.draft_ids"], config)
    network = network.to_empty(device="cpu")
    network.load_state_dict(tensors, strict=True, assign=True)
    network.to(device=context.device)
    for name, parameter in network.named_parameters():
        if not network.is_delicate(name):
            parameter.data = parameter.data.to(context.dtype)
    network.attach(context.model)
    return network.requires_grad_(False).eval()


def find_checkpoint(drafter: str, given: str, context: LoadContext) -> Path:
    """Folder of a drafter's checkpoint.

    Args:
        drafter: Its name, for the default.
        given: A folder, the name of a baseline shipped for the target, a hub id, or nothing.
        context: The loaded target.

    Raises:
        DrafterError: There is none; lists what there is.
        MissingDependency: The hub could not be reached.
    """
    spec = DrafterSpec(name=drafter, options={"checkpoint": given})
    found = checkpoint_folder(spec, context.info.name)
    if found is None and is_hub_id(given):
        found = cached_snapshot(given, download=True)
    if found is not None:
        return found
    names = [baseline.name for baseline in shipped_baselines(context.info.name)]
    known = f"Shipped for it: {', '.join(names)}." if names else "None is shipped for it."
    raise DrafterError(
        f"There is no trained drafter {given or DEFAULT_CHECKPOINTS.get(drafter, drafter)!r} for target "
        f"{context.info.name}. {known} Give the folder of a checkpoint with checkpoint=FOLDER, or train one "
        "with: hyflash-bench train"
    )


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG_FILE
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DrafterError(f"{folder} holds no {CONFIG_FILE}, so it is no trained drafter.") from None
    except (OSError, ValueError) as error:
        raise DrafterError(f"{path} cannot be read: {error}. Restore or retrain it.") from None
    if not isinstance(described, dict) or described.get("format") != FORMAT:
        raise DrafterError(f"{path} is not the configuration of a drafter trained by this package.")
    return described


def _compare_targets(folder: Path, made_for: TargetShape, context: LoadContext) -> None:
    given = TargetShape.of(context)
    for field in TargetShape.model_fields:
        mine, theirs = getattr(made_for, field), getattr(given, field)
        if field != "name" and mine != theirs:
            raise DrafterError(
                f"{folder} was trained for target {made_for.name}, not for {given.name}: "
                f"its {field} is {mine}, the target's is {theirs}. Use that target, or train for this one."
            )


def _read_weights(folder: Path, network: DraftNetwork) -> dict[str, Tensor]:
    path = folder / WEIGHTS_FILE
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise DrafterError(f"{path} cannot be read: {error}. Restore or retrain it.") from None
    expected = network.state_dict()
    _refuse(path, "lacks", expected.keys() - tensors.keys())
    _refuse(path, "has unknown", tensors.keys() - expected.keys())
    for name, value in tensors.items():
        if value.shape != expected[name].shape:
            raise DrafterError(
                f"{path}: tensor {name} is {list(value.shape)}, but the configuration "
                f"says {list(expected[name].shape)}. Restore or retrain it."
            )
        if value.is_complex() or value.is_floating_point() != expected[name].is_floating_point():
            raise DrafterError(f"{path}: tensor {name} is {value.dtype}. Restore or retrain it.")
    floats = {name: value.float() for name, value in tensors.items() if value.is_floating_point()}
    for name, value in floats.items():
        if not value.isfinite().all():
            raise DrafterError(f"{path}: tensor {name} holds NaN or infinity. Restore or retrain it.")
    return floats | {"head.draft_ids": tensors["head.draft_ids"].long()}


def _check_ids(folder: Path, ids: Tensor, config: NetworkConfig) -> None:
    vocab_size = config.target.vocab_size
    if not bool((ids.diff() > 0).all()) or ids[0] < 0 or ids[-1] >= vocab_size:
        raise DrafterError(
            f"{folder}: ids of draft tokens must ascend and lie below {vocab_size}. Retrain it."
        )


def _refuse(path: Path, verb: str, names: Iterable[str]) -> None:
    if found := sorted(names):
        listed = ", ".join(found[:5]) + (" ..." if len(found) > 5 else "")
        raise DrafterError(f"{path} {verb} tensors: {listed}. Restore or retrain it.")
