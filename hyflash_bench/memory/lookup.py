"""Sizes that have to be looked up: targets by name, networks by checkpoint. No torch is imported to do so."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hyflash_bench.data import expanded
from hyflash_bench.errors import HyFlashError, TargetError, UsageError
from hyflash_bench.memory.catalog import HAVE_CHECKPOINTS, SMALL_MODEL, read_checkpoint
from hyflash_bench.memory.shapes import ModelShape, shape_of
from hyflash_bench.spec.baselines import checkpoint_folder
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.targets.cachedir import cache_dir
from hyflash_bench.targets.files import attempt
from hyflash_bench.targets.fingerprint import files_hash
from hyflash_bench.targets.presets import PRESETS
from hyflash_bench.targets.source import Source, parse

__all__ = ["network_of", "networks_of", "read_shape"]


def read_shape(target: str) -> ModelShape:
    """Sizes of a target named as for ``--target``, or by the path of a ``config.json``.

    A hub id costs the download of that one file, unless it is cached.

    Raises:
        UsageError: The string makes no sense, or the target was not fetched yet.
        TargetError: The configuration cannot be had or read.
        UnsupportedTarget: A family that the engine cannot run.
    """
    path = expanded(target)
    if path.suffix == ".json" and path.is_file():
        return shape_of(_read_json(path), path.resolve().parent.name)
    source = parse(target)
    return shape_of(_read_json(_config_path(source)), source.name)


def networks_of(specs: Iterable[DrafterSpec], target: str) -> dict[str, dict[str, Any]]:
    """What a run keeps of its drafters' networks, by label; what cannot be read is left out.

    Args:
        specs: The drafters.
        target: Short name of the target.
    """
    found: dict[str, dict[str, Any]] = {}
    for spec in specs:
        try:
            network = network_of(spec, target)
        except HyFlashError:
            continue  # loading it says what is wrong with it
        if network is not None:
            found[spec.label] = network
    return found


def network_of(spec: DrafterSpec, target: str) -> dict[str, Any] | None:
    """Kind and configuration of a drafter's network, None where it has none or none is trained yet.

    Args:
        spec: The drafter.
        target: Short name of the target.

    Raises:
        HyFlashError: It cannot be read.
    """
    if spec.name == SMALL_MODEL:
        model = str(spec.options.get("model") or "smollm2-135m")
        return {"kind": SMALL_MODEL, "network": asdict(read_shape(model))}
    folder = checkpoint_folder(spec, target) if spec.name in HAVE_CHECKPOINTS else None
    return None if folder is None else read_checkpoint(folder)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise TargetError(f"{path} cannot be read as a model's configuration: {error}. Restore it.") from None
    if not isinstance(value, dict):
        raise TargetError(f"{path} holds no model's configuration: keys and values are expected. Restore it.")
    return value


def _config_path(source: Source) -> Path:
    if source.kind == "folder":
        return Path(source.location) / "config.json"
    if source.kind == "hub":
        return attempt(source, lambda: _from_hub(source))
    digest = (
        PRESETS[source.location].gguf_sha256
        if source.kind == "preset"
        else files_hash([Path(source.location)])
    )
    path = cache_dir("models") / digest / "config.json"
    if not path.is_file():
        raise UsageError(
            f"The target {source.location!r} is not in the cache yet. "
            f"Fetch it first: hyflash-bench fetch --target {source.location}"
        )
    return path


def _from_hub(source: Source) -> Path:
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(source.location, "config.json", revision=source.revision))
