"""What a result depends on besides the request: the machine and the software, no names of either."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

__all__ = ["BUSY_SHARE", "busy_share", "environment", "git_state", "num_cores"]

BUSY_SHARE = 0.25
"""Above this share of all cores in use by others, speeds are not to be believed."""

_PACKAGES = ("hyflash-bench", "torch", "transformers", "tokenizers", "safetensors", "numpy", "pandas")

_VECTOR_UNITS = (("avx512f", "AVX-512"), ("avx2", "AVX2"), ("sve", "SVE"), ("asimd", "NEON"))
"""Widest first, by the flag that Linux gives them."""


def environment() -> dict[str, Any]:
    """Versions and hardware. Holds no host name, user name or path."""
    return {
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _told_of_cpu("model name"),
        "vector_units": _vector_units(),
        "num_cores": num_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "gpus": _gpus(),
    }


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def busy_share(seconds: float = 0.3) -> float:
    """Share of all cores that is in use now, 0..1; asked before a run adds its own work."""
    return psutil.cpu_percent(interval=seconds) / 100


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit and whether the work tree differs from it; None outside a checkout.

    A package installed below someone else's repository is not part of it: git has to know the folder.
    """
    if not _git(folder, "ls-files", "--", "."):
        return None
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    return {"commit": commit, "dirty": bool(_git(folder, "status", "--porcelain"))}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _told_of_cpu(name: str) -> str | None:
    """What Linux tells of its first processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return (platform.processor() or None) if name == "model name" else None
    return next(
        (line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == name), None
    )


def _vector_units() -> str | None:
    """The widest vector instructions, on which speed depends as on the processor; None if unknown."""
    flags = (_told_of_cpu("flags") or _told_of_cpu("Features") or "").split()
    return next((told for flag, told in _VECTOR_UNITS if flag in flags), None)


def _gpus() -> list[dict[str, Any]] | None:
    """GPUs as NVML names them; None where NVML is not there."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 - no driver, no library: not measured
        return None
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return [
            {
                "name": str(pynvml.nvmlDeviceGetName(handle)),
                "memory_bytes": int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
            }
            for handle in handles
        ]
    finally:
        pynvml.nvmlShutdown()
