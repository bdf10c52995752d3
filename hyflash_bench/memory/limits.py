"""Caps that the system enforces on this process.

A cap covers what the ledger covers: the target's weights and everything that comes on top. The
interpreter, its libraries and what loading leaves behind are the program's own, so a limit is laid
after the target is loaded: at what is in use then, plus the cap less the weights.

==============  ===================================================================================
kind            what counts, and what a breach is
==============  ===================================================================================
cuda_fraction   what torch's allocator holds on the GPU; a failed allocation
mps_fraction    the same on Apple's GPU
cgroup          pages in use (Linux, see :mod:`hyflash_bench.memory.cgroup`); the kernel ends the process
rlimit_data     private writable memory, touched or not (Linux 4.7 or newer); a failed allocation
rlimit_as       all address space, mapped files included (other Unix); a failed allocation
==============  ===================================================================================
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import platform
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import psutil

from hyflash_bench.errors import UsageError
from hyflash_bench.memory.cgroup import Cgroup, usable_parent
from hyflash_bench.spec.units import format_bytes

__all__ = ["EnforcedLimit", "Enforcement", "enforce", "enforcement_available"]

Enforcement = Literal["cuda_fraction", "mps_fraction", "cgroup", "rlimit_data", "rlimit_as"]

_COUNTS_MAPPINGS = (4, 7)
"""First Linux whose RLIMIT_DATA counts private mappings, where large allocations live, beside the heap."""


def enforcement_available(backend: str = "cpu") -> Enforcement | None:
    """How a cap would be enforced here, None where it cannot be. Imports no torch."""
    return next(iter(_kinds(backend)), None)


def enforce(cap_bytes: int, held_bytes: int = 0, backend: str = "cpu") -> EnforcedLimit:
    """Lay a cap on this process.

    Args:
        cap_bytes: The cap.
        held_bytes: Of these in use already: the target's weights.
        backend: What torch computes on, and whose memory is meant.

    Raises:
        UsageError: Nothing here can enforce it.
    """
    _let_go()
    for kind in _kinds(backend):
        with suppress(OSError, ValueError):
            limit = _laid(kind, cap_bytes, held_bytes, backend)
            if limit.holds():
                return limit
            limit.lift()
    raise UsageError(
        f"A cap of {format_bytes(cap_bytes)} cannot be enforced on backend {backend} of this "
        f"{platform.system()} system. Use --cap-kind simulated, or add --allow-simulated."
    )


@dataclass(frozen=True, slots=True)
class EnforcedLimit:
    """A cap in force.

    Attributes:
        kind: How it is enforced.
        cap_bytes: What was asked for.
        limit_bytes: What the system was told, in its own way of counting.
        baseline_bytes: What of this is the program's own.
        backend: Whose memory is meant.
        group: The cgroup, with kind ``cgroup``.
    """

    kind: Enforcement
    cap_bytes: int
    limit_bytes: int
    baseline_bytes: int
    backend: str = "cpu"
    group: Cgroup | None = None

    def used_bytes(self) -> int:
        """What counts against the cap now: weights, and all that came since."""
        return _in_use(self.kind, self.backend, self.group) - self.baseline_bytes

    def peak_bytes(self) -> int | None:
        """The most that was ever used, where the system keeps count of it."""
        if self.group is not None:
            peak = self.group.peak_bytes
        elif self.kind == "cuda_fraction":
            peak = int(_torch().cuda.max_memory_reserved(_gpu(self.backend)))
        else:
            peak = None
        return None if peak is None else peak - self.baseline_bytes

    def lift(self) -> None:
        """Take the limit away, to be laid again by :meth:`lay`: telling of a breach takes memory too."""
        if not self.kind.startswith("rlimit"):
            return
        import resource

        which = _resource(self.kind)
        _, hard = resource.getrlimit(which)
        resource.setrlimit(which, (hard, hard))

    def lay(self) -> None:
        """Put the limit in force.

        Raises:
            OSError, ValueError: The system does not take it.
        """
        if self.kind.startswith("rlimit"):
            import resource

            which = _resource(self.kind)
            _, hard = resource.getrlimit(which)
            most = self.limit_bytes if hard == resource.RLIM_INFINITY else min(self.limit_bytes, hard)
            resource.setrlimit(which, (most, hard))
        elif self.group is not None:
            self.group.limit(self.limit_bytes)
        elif self.kind == "cuda_fraction":
            cuda, gpu = _torch().cuda, _gpu(self.backend)
            total = cuda.get_device_properties(gpu).total_memory
            cuda.set_per_process_memory_fraction(min(self.limit_bytes / total, 1.0), gpu)
        else:
            mps = _torch().mps
            mps.set_per_process_memory_fraction(min(self.limit_bytes / mps.recommended_max_memory(), 2.0))

    def holds(self) -> bool:
        """Whether the system keeps to it: some take a limit and never look at it."""
        if not self.kind.startswith("rlimit"):
            return True
        try:
            mmap.mmap(
                -1, self.limit_bytes + mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            ).close()
        except OSError:
            return True
        return False


def _kinds(backend: str) -> list[Enforcement]:
    """What can be tried, best first."""
    if backend.startswith("cuda"):
        return ["cuda_fraction"]
    if backend == "mps":
        return ["mps_fraction"]
    if sys.platform == "win32" or sys.platform == "darwin":  # macOS takes limits and does not keep to them
        return []
    kinds: list[Enforcement] = ["cgroup"] if usable_parent() else []
    if sys.platform == "linux" and _release() >= _COUNTS_MAPPINGS:
        kinds.append("rlimit_data")
    return [*kinds, "rlimit_as"]


def _release() -> tuple[int, ...]:
    numbers = platform.release().split("-")[0].split(".")
    return tuple(int(number) for number in numbers if number.isdecimal())


def _laid(kind: Enforcement, cap_bytes: int, held_bytes: int, backend: str) -> EnforcedLimit:
    group = None
    if kind == "cgroup":
        parent = usable_parent()
        assert parent is not None
        group = Cgroup.around(os.getpid(), parent)
    baseline = _in_use(kind, backend, group) - held_bytes
    limit = EnforcedLimit(kind, cap_bytes, max(baseline + cap_bytes, 0), baseline, backend, group)
    limit.lay()
    return limit


def _in_use(kind: Enforcement, backend: str, group: Cgroup | None) -> int:
    """Bytes in the way that the kind of limit counts them."""
    if group is not None:
        return group.used_bytes
    if kind == "cuda_fraction":
        return int(_torch().cuda.memory_reserved(_gpu(backend)))
    if kind == "mps_fraction":
        return int(_torch().mps.driver_allocated_memory())
    memory: Any = _process(os.getpid()).memory_info()
    return int(memory.data if kind == "rlimit_data" else memory.vms)


@lru_cache(maxsize=1)
def _process(pid: int) -> psutil.Process:
    """Kept, since making one costs several times what asking it costs."""
    return psutil.Process(pid)


def _let_go() -> None:
    """Give back what is free already, so that it does not count as the program's own."""
    gc.collect()
    with suppress(OSError, AttributeError, TypeError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)
    if "torch" in sys.modules and (torch := _torch()).cuda.is_available():
        torch.cuda.empty_cache()


def _resource(kind: Enforcement) -> int:
    import resource

    return resource.RLIMIT_DATA if kind == "rlimit_data" else resource.RLIMIT_AS


def _gpu(backend: str) -> int:
    """CUDA's number of the device."""
    index = _torch().device(backend).index
    return int(_torch().cuda.current_device() if index is None else index)


def _torch() -> Any:
    import torch

    return torch
