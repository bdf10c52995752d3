"""What the process and the GPU use, as the system counts it: beside the ledger, not instead of it.

A thread looks every few milliseconds and keeps the largest values. What a system or a device does
not count is None.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from hyflash_bench.memory.nvml import GpuCounters

__all__ = ["COST", "PERIOD_S", "Looking", "Meter", "Reading"]

Reading = int | float | None

PERIOD_S = 0.05
"""Seconds between two looks, at least."""
COST = 0.002
"""Largest share of one core's time that looking may take; the period grows until it is kept."""

_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
_STACK_BYTES = 256 * 2**10


class Looking:
    """A thread that looks at something again and again, without taking the time of what it looks at.

    Args:
        look: Called in the thread.
        period_s: Seconds between two calls, at least.

    Attributes:
        num_looks: Calls so far.
        busy_s: CPU seconds that they took together.
    """

    def __init__(self, look: Callable[[], None], period_s: float = PERIOD_S) -> None:
        self._look = look
        self._period_s = period_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.num_looks = 0
        self.busy_s = 0.0

    def __enter__(self) -> Self:
        self._stop.clear()
        before = threading.stack_size(_STACK_BYTES)  # a cap must not be spent on the thread's stack
        try:
            self._thread = threading.Thread(target=self._run, name="hyflash-meter", daemon=True)
            self._thread.start()
        finally:
            threading.stack_size(before)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        period_s = self._period_s
        while not self._stop.wait(period_s):
            before = time.thread_time()
            with suppress(MemoryError, OSError):  # nothing was to be had at this moment: look again later
                self._look()
            took_s = time.thread_time() - before
            self.num_looks, self.busy_s = self.num_looks + 1, self.busy_s + took_s
            period_s = max(self._period_s, took_s / COST)


class Meter:
    """Measures from :meth:`reset` to :meth:`readings`, as often as asked for; a context manager.

    Args:
        backend: What torch computes on; counters of a GPU are read for ``cuda`` alone.
        period_s: Seconds between two looks, at least.
    """

    def __init__(self, backend: str = "cpu", period_s: float = PERIOD_S) -> None:
        self._period_s = period_s
        self._process = psutil.Process()
        self._cuda = _Cuda(backend) if backend.startswith("cuda") else None
        self._exit = ExitStack()
        self._gpu = GpuCounters()
        self._lock = threading.Lock()
        self._resets_peak = False
        self._rss = 0
        self._used: int | None = None
        self._energy_j: float | None = None
        self._watts: list[float] = []
        self._started = 0.0

    def __enter__(self) -> Self:
        if self._cuda is not None:
            self._gpu = self._exit.enter_context(GpuCounters(self._cuda.index, self._cuda.uuid))
        self.reset()
        self._exit.enter_context(Looking(self.look, self._period_s))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._exit.close()

    def reset(self) -> None:
        """Forget all peaks: what is measured begins now."""
        if self._cuda is not None:
            self._cuda.reset()
        with self._lock:
            self._resets_peak = _reset_peak()
            self._rss, self._used, self._watts = 0, None, []
            self._energy_j, self._started = self._gpu.energy_j(), time.perf_counter()
        self.look()

    def look(self) -> None:
        """Take in what is used at this moment; the thread does nothing else."""
        rss, used, watts = self._process.memory_info().rss, self._gpu.used_bytes(), self._gpu.power_w()
        with self._lock:
            self._rss = max(self._rss, rss)
            if used is not None:
                self._used = max(used, self._used or 0)
            if watts is not None:
                self._watts.append(watts)

    def readings(self) -> dict[str, Reading]:
        """What was used since :meth:`reset`.

        Returns:
            ``process_rss`` and ``process_pss`` now (bytes; PSS counts shared pages by their share),
            ``process_peak_rss`` (by the kernel where it lets its peak be reset, else the largest
            value seen), ``cuda_allocated_peak`` and ``cuda_reserved_peak`` (bytes of tensors, and
            of what torch's allocator holds for them), ``nvml_used`` (largest value seen of the whole
            device, in bytes), ``nvml_power_w`` (watts drawn, the mean of all looks) and
            ``nvml_energy_j`` (joules by the device's counter, else that power times the time).
        """
        self.look()
        rss, pss = self._process.memory_info().rss, _pss(self._process)
        peak = _kernel_peak() if self._resets_peak else None
        allocated, reserved = (None, None) if self._cuda is None else self._cuda.peaks()
        with self._lock:
            return {
                "process_rss": rss,
                "process_peak_rss": max(self._rss, rss, peak or 0),
                "process_pss": pss,
                "cuda_allocated_peak": allocated,
                "cuda_reserved_peak": reserved,
                "nvml_used": self._used,
                "nvml_power_w": self._power(),
                "nvml_energy_j": self._energy(),
            }

    def _energy(self) -> float | None:
        now_j = self._gpu.energy_j()
        if now_j is not None and self._energy_j is not None:
            return now_j - self._energy_j
        watts = self._power()
        return None if watts is None else watts * (time.perf_counter() - self._started)

    def _power(self) -> float | None:
        return sum(self._watts) / len(self._watts) if self._watts else None


class _Cuda:
    """Torch's allocator on one GPU."""

    def __init__(self, backend: str) -> None:
        import torch

        self._torch: Any = torch
        self._device = torch.device(backend)
        self.index = torch.cuda.current_device() if self._device.index is None else self._device.index
        uuid = getattr(torch.cuda.get_device_properties(self.index), "uuid", None)
        self.uuid = None if uuid is None else str(uuid)

    def reset(self) -> None:
        self._torch.cuda.reset_peak_memory_stats(self._device)

    def peaks(self) -> tuple[int, int]:
        cuda = self._torch.cuda
        return cuda.max_memory_allocated(self._device), cuda.max_memory_reserved(self._device)


def _reset_peak() -> bool:
    """Have the kernel forget the largest resident size so far (Linux)."""
    with suppress(OSError):
        _CLEAR_REFS.write_text(_RESET_PEAK)
        return True
    return False


def _kernel_peak() -> int | None:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None


def _pss(process: psutil.Process) -> int | None:
    """Resident bytes with shared pages split among those who share them; Linux alone counts so."""
    try:
        pss = getattr(process.memory_full_info(), "pss", None)
    except (psutil.Error, OSError):
        return None
    return None if pss is None else int(pss)
