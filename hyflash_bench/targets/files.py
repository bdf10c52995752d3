"""The files that a target is read from: fetched, and compared with those of an earlier load. No torch."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from hyflash_bench.errors import HyFlashError, TargetError
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.cachedir import cache_dir
from hyflash_bench.targets.convert import converted_folder
from hyflash_bench.targets.fingerprint import files_hash, weight_files
from hyflash_bench.targets.presets import PRESETS, preset_folder
from hyflash_bench.targets.source import Source, parse

__all__ = [
    "are_unchanged",
    "attempt",
    "code_hash",
    "fetch_target",
    "local_folder",
    "settings_hash",
    "weights_hash",
]

Result = TypeVar("Result")

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SETTINGS = ("*.jinja", "*.json", "*.model", "*.py", "*.txt")


def fetch_target(spec: TargetSpec) -> Path | None:
    """Bring a target into the user's cache, or the hub's, without loading it.

    Returns:
        The folder it will be read from; None for a folder of the user's own.

    Raises:
        UsageError: The target string makes no sense.
        DownloadError: A preset could not be fetched.
        TargetError: The hub did not give the model.
    """
    source = parse(spec.target)
    if source.kind == "folder":
        return None
    if source.kind != "hub":
        return local_folder(source)[0]
    wanted = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
    wanted += ["*.py"] if spec.trust_remote_code else []

    def fetch() -> Path:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(source.location, revision=source.revision, allow_patterns=wanted))

    return attempt(source, fetch)


def local_folder(source: Source) -> tuple[Path, str | None, str | None]:
    """The model folder, the hash of the file it was made from, and its licence.

    What is not there yet is fetched and converted.

    Args:
        source: A preset, GGUF file or folder.
    """
    if source.kind == "preset":
        preset = PRESETS[source.location]
        return preset_folder(preset.name), preset.gguf_sha256, preset.licence
    if source.kind == "gguf":
        path = Path(source.location)
        digest = files_hash([path])
        return converted_folder(path, digest), digest, None
    return Path(source.location), None, None


def attempt(source: Source, read: Callable[[], Result]) -> Result:
    """What ``read`` gives.

    Raises:
        TargetError: It failed, with the first line of the reason.
    """
    try:
        return read()
    except HyFlashError:
        raise
    except Exception as error:  # damaged files raise all sorts of errors, and so does a model's own code
        first = str(error).strip().splitlines() or [type(error).__name__]
        hint = f" {_hub_hint(source)}" if source.kind == "hub" else ""
        raise TargetError(f"The target {source.location!r} could not be loaded: {first[0]}{hint}") from error


def settings_hash(folder: Path) -> str:
    """SHA-256 over names and contents of a model folder's files besides the weights."""
    return _named_hash(path for pattern in _SETTINGS for path in folder.glob(pattern))


def code_hash(folder: Path) -> str:
    """SHA-256 over names and contents of the code that a model folder brings along."""
    return _named_hash(folder.rglob("*.py"))


def weights_hash(source: Source, folder: Path, trust_remote_code: bool) -> str:
    """SHA-256 over the weights, and over a folder's own code where it is run.

    No commit pins a folder of one's own, and its code decides the output as its weights do.
    """
    weights = files_hash(weight_files(folder))
    if not (trust_remote_code and source.kind == "folder"):
        return weights
    return hashlib.sha256(f"{weights} {code_hash(folder)}".encode()).hexdigest()


def are_unchanged(spec: TargetSpec, info: Mapping[str, Any]) -> bool:
    """Whether loading a target would find the very files that an earlier load found.

    A hub id is only believed at a pinned commit: a branch may have moved.

    Args:
        spec: The target; asked for in the same way as then.
        info: Facts of the earlier load, see :class:`~hyflash_bench.targets.info.TargetInfo`.
    """
    source = parse(spec.target)
    if source.kind == "hub":
        return bool(_COMMIT.fullmatch(source.revision or "")) and info.get("revision") == source.revision
    folder = _present_folder(source)
    fingerprint = info.get("fingerprint")
    if folder is None or not isinstance(fingerprint, Mapping) or info.get("settings") is None:
        return False
    if info["settings"] != settings_hash(folder):
        return False
    return bool(fingerprint.get("weights") == weights_hash(source, folder, spec.trust_remote_code))


def _present_folder(source: Source) -> Path | None:
    """The folder of a preset, GGUF file or folder, if nothing has to be fetched or converted for it."""
    if source.kind == "folder":
        return Path(source.location)
    path = Path(source.location)
    digest = PRESETS[source.location].gguf_sha256 if source.kind == "preset" else files_hash([path])
    folder = cache_dir("models") / digest
    return folder if folder.is_dir() else None


def _named_hash(paths: Iterator[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in paths if path.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _hub_hint(source: Source) -> str:
    hint = f"There is no folder {source.location!r} here, so it was looked for on the hub."
    if os.environ.get("HF_HUB_OFFLINE"):
        hint += " Offline, only models that are already in the hub's cache can be loaded."
    return hint
