"""Which kind of drafter lies in a folder, told from its configuration and the names of its tensors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hyflash_bench.errors import DrafterError, MissingDependency
from hyflash_bench.spec.formats.medusa import HEADS_STEM
from hyflash_bench.spec.formats.names import tensor_names

__all__ = [
    "CONFIG_FILE",
    "EXPORTED_KEY",
    "EXPORTED_TYPE",
    "FORMATS",
    "Format",
    "Recognised",
    "cached_snapshot",
    "is_hub_id",
    "recognise",
]

CONFIG_FILE = "config.json"
OWN_FORMAT = "hyflash-bench-drafter"
EXPORTED_TYPE, EXPORTED_KEY = "hyflash-bench", "hyflash_bench"
"""In the speculators layout: type of drafters that only this package runs, and the key of what is ours."""

Format = Literal["own", "exported", "dflash", "eagle", "eagle3", "medusa"]
FORMATS: Mapping[Format, str] = {
    "own": "written by train",
    "exported": "written by convert",
    "dflash": "DFlash, of z-lab or speculators",
    "eagle3": "EAGLE-3, of SafeAILab, SpecForge or speculators",
    "eagle": "EAGLE-1 and EAGLE-2",
    "medusa": "Medusa heads",
}

_HUB_ID = re.compile(r"(?P<id>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>[\w./-]+))?")


@dataclass(frozen=True, slots=True)
class Recognised:
    """What a folder holds.

    Attributes:
        format: Family of the checkpoint.
        drafter: Registered name of the drafter that runs it.
        config: Its ``config.json``, of an exported one the part that is ours; empty where there is
            none and none is needed.
    """

    format: Format
    drafter: str
    config: Mapping[str, Any]


def recognise(folder: Path) -> Recognised:
    """Tell what a folder holds; reads no tensor.

    Raises:
        DrafterError: Nothing that is known, or a configuration that cannot be read.
    """
    config = _read_config(folder)
    kind = config.get("speculators_model_type")
    architectures = _texts(config.get("architectures"))
    if config.get("format") == OWN_FORMAT:
        return Recognised("own", _own_drafter(config), config)
    if kind is not None:
        return _of_speculators(folder, config)
    if "dflash_config" in config or "DFlashDraftModel" in architectures:
        return Recognised("dflash", "dflash", config)
    if any(folder.glob(f"{HEADS_STEM}.*")) or "medusa_num_heads" in config:
        return Recognised("medusa", "medusa", config)
    if "draft_vocab_size" in config or any("eagle3" in name.lower() for name in architectures):
        return Recognised("eagle3", "eagle", config)
    names = tensor_names(folder)
    if "fc.weight" in names:
        is_third = any(name.endswith("hidden_norm.weight") for name in names)
        return Recognised("eagle3" if is_third else "eagle", "eagle", config)
    known = "; ".join(FORMATS.values())
    raise DrafterError(
        f"{folder} holds no drafter that is known (architectures: {', '.join(architectures) or 'not said'}). "
        f"Known: {known}. Give the folder that holds {CONFIG_FILE} and the weights."
    )


def _of_speculators(folder: Path, config: Mapping[str, Any]) -> Recognised:
    kind, ours = config["speculators_model_type"], config.get(EXPORTED_KEY)
    if kind in ("dflash", "eagle3"):
        return Recognised(kind, "eagle" if kind == "eagle3" else kind, config)
    if kind == EXPORTED_TYPE and isinstance(ours, dict):
        return Recognised("exported", _own_drafter(ours), ours)
    raise DrafterError(
        f"{folder / CONFIG_FILE}: speculators_model_type {kind!r} cannot be run; "
        f"known are dflash and eagle3, and {EXPORTED_TYPE} as convert writes it. Give another checkpoint."
    )


def is_hub_id(text: str) -> bool:
    """Whether a text has the form ``org/name`` or ``org/name@revision``."""
    return _HUB_ID.fullmatch(text) is not None


def cached_snapshot(hub_id: str, *, download: bool = False) -> Path | None:
    """Folder of a hub repository's snapshot.

    Args:
        hub_id: ``org/name`` or ``org/name@revision``.
        download: Fetch what is missing; otherwise only the local cache is looked at.

    Returns:
        None where it is not in the cache and nothing may be fetched.

    Raises:
        MissingDependency: It could not be fetched.
    """
    match = _HUB_ID.fullmatch(hub_id)
    if match is None:
        return None
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    patterns = [CONFIG_FILE, "*.safetensors", "*.safetensors.index.json", "*.bin", "*.bin.index.json", "*.pt"]
    try:
        folder = snapshot_download(
            match["id"], revision=match["revision"], allow_patterns=patterns, local_files_only=not download
        )
    except (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, OSError) as error:
        if not download:
            return None
        reason = str(error).strip().partition("\n")[0]
        raise MissingDependency(
            f"Drafter {hub_id} could not be fetched from the hub: {reason} "
            "Check the name and the connection, or give a folder that holds it."
        ) from None
    return Path(folder)


def _read_config(folder: Path) -> Mapping[str, Any]:
    path = folder / CONFIG_FILE
    if not folder.is_dir():
        raise DrafterError(
            f"{folder} is no folder. Give the folder that holds {CONFIG_FILE} and the weights."
        )
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if any(folder.glob(f"{HEADS_STEM}.*")):
            return {}  # heads say all that is needed by themselves
        raise DrafterError(f"{folder} holds no {CONFIG_FILE}, so it is no drafter.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DrafterError(f"{path} cannot be read: {error}. Restore it.") from None
    if not isinstance(found, dict):
        raise DrafterError(f"{path} holds a {type(found).__name__}, not an object of keys. Restore it.")
    return found


def _own_drafter(config: Mapping[str, Any]) -> str:
    kind, network = config.get("kind"), config.get("network")
    if kind != "block" or not isinstance(network, dict):
        return str(kind)
    attention = network.get("attention", "window")
    if attention in ("full", "none"):
        return "full-context" if attention == "full" else "memory-only"
    return "window" if network.get("memory", "gated-delta") == "none" else "hyflash"


def _texts(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []
