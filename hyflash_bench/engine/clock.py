"""Wall-clock seconds that include the device's work."""

from __future__ import annotations

import time

import torch

__all__ = ["Clock"]


class Clock:
    """Reads the monotonic clock after the device has finished what it was given.

    Args:
        device: Where the work runs; kernels launched there are waited for.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def now(self) -> float:
        """Seconds since an arbitrary start."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        elif self._device.type == "mps":
            torch.mps.synchronize()
        return time.perf_counter()
