"""NVIDIA's own counters of one GPU: memory, power, energy. Whatever is not there is None."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

__all__ = ["GpuCounters", "visible_devices"]

_Number = TypeVar("_Number", int, float)


def visible_devices(setting: str | None, num_devices: int) -> tuple[str, ...]:
    """The devices that CUDA shows, in its order, as it reads ``CUDA_VISIBLE_DEVICES``.

    Args:
        setting: The variable's value; None where it is not set, which shows all.
        num_devices: GPUs in the system.

    Returns:
        Indices as digits, or identifiers that begin with ``GPU-`` or ``MIG-`` and may be abbreviated.
        The first entry that is invalid hides itself and all behind it; an entry given twice hides all.
        Source: CUDA programming guide, environment variables.
    """
    if setting is None:
        return tuple(map(str, range(num_devices)))
    shown: list[str] = []
    for entry in (part.strip() for part in setting.split(",")):
        is_index = entry.isdecimal() and int(entry) < num_devices
        if not is_index and not entry.startswith(("GPU-", "MIG-")):
            break
        name = str(int(entry)) if is_index else entry
        if name in shown:
            return ()
        shown.append(name)
    return tuple(shown)


class GpuCounters:
    """Counters of the GPU that CUDA calls number ``index``; a context manager.

    Outside the ``with`` block, without a driver, and for a counter that the device lacks (energy
    before Volta, energy and power of a MIG slice), readings are None.

    Args:
        index: CUDA's number of the device, as in ``cuda:1``.
        uuid: Its identifier as CUDA tells it, without a prefix: then the environment is not asked.
    """

    def __init__(self, index: int = 0, uuid: str | None = None) -> None:
        self._index = index
        self._uuid = uuid
        self._nvml: Any = None
        self._handle: Any = None

    def __enter__(self) -> Self:
        # NVML fails in ways of its own (no library, no driver, no rights): all of them mean no counters.
        with suppress(Exception):
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
            self._handle = self._found()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        nvml, self._nvml, self._handle = self._nvml, None, None
        if nvml is not None:
            with suppress(Exception):
                nvml.nvmlShutdown()

    @property
    def is_there(self) -> bool:
        """Whether the device was found."""
        return self._handle is not None

    def used_bytes(self) -> int | None:
        """Memory in use on the device, other programs' included."""
        return self._read(lambda nvml, handle: int(nvml.nvmlDeviceGetMemoryInfo(handle).used))

    def energy_j(self) -> float | None:
        """Joules used since the driver was loaded; only differences mean anything."""
        return self._read(lambda nvml, handle: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3)

    def power_w(self) -> float | None:
        """Watts drawn now, the board's memory included."""
        return self._read(lambda nvml, handle: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3)

    def _read(self, counter: Callable[[Any, Any], _Number]) -> _Number | None:
        if self._handle is None:
            return None
        try:
            return counter(self._nvml, self._handle)
        except Exception:  # noqa: BLE001 - not supported, not permitted, device lost: not measured
            return None

    def _found(self) -> Any:
        """The device's handle, or None where CUDA shows no such device."""
        if self._uuid is not None:
            return self._by_name(f"GPU-{self._uuid}") or self._by_name(f"MIG-{self._uuid}")
        num_devices = self._nvml.nvmlDeviceGetCount()
        shown = visible_devices(os.environ.get("CUDA_VISIBLE_DEVICES"), num_devices)
        if not 0 <= self._index < len(shown):
            return None
        name = shown[self._index]
        return self._nvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdecimal() else self._by_name(name)

    def _by_name(self, name: str) -> Any:
        """The one device whose identifier begins so."""
        with suppress(self._nvml.NVMLError):
            return self._nvml.nvmlDeviceGetHandleByUUID(name)
        starting = [handle for handle in self._all() if self._name(handle).startswith(name)]
        return starting[0] if len(starting) == 1 else None

    def _all(self) -> Iterator[Any]:
        """Every GPU, and every slice of one that is cut up."""
        for number in range(self._nvml.nvmlDeviceGetCount()):
            gpu = self._nvml.nvmlDeviceGetHandleByIndex(number)
            yield gpu
            yield from self._slices(gpu)

    def _slices(self, gpu: Any) -> Sequence[Any]:
        slices: list[Any] = []
        with suppress(self._nvml.NVMLError):  # a GPU that cannot be cut up
            for number in range(self._nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
                with suppress(self._nvml.NVMLError):  # a place where no slice is
                    slices.append(self._nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, number))
        return slices

    def _name(self, handle: Any) -> str:
        name = self._nvml.nvmlDeviceGetUUID(handle)
        return name.decode() if isinstance(name, bytes) else str(name)
