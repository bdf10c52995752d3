"""Arithmetic that rounding must not bias."""

from __future__ import annotations

from torch import Tensor

__all__ = ["in_float64"]


def in_float64(tensor: Tensor) -> Tensor:
    """The same numbers in float64: where they lie, or on the CPU if that device has none (MPS)."""
    return (tensor.cpu() if tensor.device.type == "mps" else tensor).double()
