"""C code built with the machine's own compiler on first use.

Optional: where it cannot be built everything runs in plain torch, with the same results up to rounding.
A library is kept in the user's cache under a hash of the source, the compiler and the processor.
``HYFLASH_BENCH_NATIVE=0`` turns it off.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

from hyflash_bench.data import cache_folder

__all__ = ["open_library", "processor"]

T = TypeVar("T")

logger = logging.getLogger("hyflash_bench.native")

_HEADER = "lanes.h"
_FLAGS = ("-O3", "-fopenmp", "-shared", "-fPIC")


def open_library(make: Callable[[Path, str], T], package: str, source: str) -> T | None:
    """Build a source file unless that was done before, and open what came of it.

    Args:
        make: Opens a library, given its path and a digest of source, compiler and processor.
        package: Where the source lies.
        source: Its name.

    Returns:
        What ``make`` gives; None where there is no compiler, or it fails.
    """
    if os.environ.get("HYFLASH_BENCH_NATIVE") == "0" or sys.platform != "linux":
        return None
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        logger.info("no C compiler: passes of a few rows run in plain torch, more slowly")
        return None
    try:
        return _opened(make, package, source, compiler)
    except (OSError, subprocess.SubprocessError, AttributeError) as error:
        detail = getattr(error, "stderr", None) or error
        logger.info("the native kernels could not be built, plain torch is used: %s", detail)
        return None


def processor() -> str:
    """Identifies the kind of processor, which compiled code and timings depend on."""
    lines: set[str] = set()
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as file:
            lines = {line for line in file if line.startswith(("model name", "flags", "Features"))}
    except OSError:
        pass
    text = "".join(sorted(lines)) + platform.machine() + platform.processor()
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _opened(make: Callable[[Path, str], T], package: str, source: str, compiler: str) -> T:
    path, digest = _build(package, source, compiler)
    try:
        return make(path, digest)
    except (OSError, AttributeError):  # damaged since it was built: once more
        path.unlink(missing_ok=True)
        return make(*_build(package, source, compiler))


def _build(package: str, name: str, compiler: str) -> tuple[Path, str]:
    source = files(package).joinpath(name).read_bytes()
    header = files("hyflash_bench.native").joinpath(_HEADER).read_bytes()
    version = subprocess.run(
        [compiler, "--version"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    key = source + header + version.encode() + processor().encode() + " ".join(_FLAGS).encode()
    digest = hashlib.sha256(key).hexdigest()[:16]
    folder = cache_folder() / "native"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{Path(name).stem}-{digest}.so"
    if path.exists():
        return path, digest
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        code, built = Path(scratch, name), Path(scratch, "built.so")
        code.write_bytes(source)
        Path(scratch, _HEADER).write_bytes(header)
        subprocess.run(
            [compiler, *_FLAGS, _tuning(compiler), str(code), "-o", str(built), "-lm"],
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        with built.open("rb") as file:  # half a library would kill those who open it
            os.fsync(file.fileno())
        built.replace(path)
    return path, digest


def _tuning(compiler: str) -> str:
    """The flag that makes the compiler use all of this processor."""
    probe = subprocess.run(
        [compiler, "-march=native", "-E", "-x", "c", os.devnull],
        capture_output=True,
        check=False,
        timeout=60,
    )
    return "-march=native" if probe.returncode == 0 else "-mcpu=native"
