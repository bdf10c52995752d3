"""What every compiled library offers: products of a few rows with a weight, and norms of them."""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

__all__ = ["LANES", "MAX_ROWS", "Library", "fits"]

MAX_ROWS = 16
"""Rows of a pass up to which these kernels are meant to be used."""

LANES = 8
"""Numbers of a vector, as in lanes.h."""


class Library:
    """A compiled library.

    Attributes:
        digest: Identifies source, compiler and processor.
    """

    def __init__(self, path: Path, digest: str) -> None:
        self._functions = ctypes.CDLL(str(path))
        self.digest = digest
        self._linear = self.function("linear", [c_void_p] * 4 + [c_int64] * 3 + [c_int])
        self._rms_norm = self.function("rms_norm", [c_void_p] * 3 + [c_int64] * 2 + [c_float])

    def function(self, name: str, arguments: list[Any], result: Any = None) -> Any:
        """One of its functions.

        Raises:
            AttributeError: There is none of that name.
        """
        function = self._functions[name]
        function.argtypes, function.restype = arguments, result
        return function

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """``x [T, in]`` times a weight that :func:`fits`, both contiguous: ``[T, out]``."""
        rows, inputs = x.shape
        outputs = weight.shape[0]
        y = torch.empty(rows, outputs)
        threads = torch.get_num_threads()
        offset = None if bias is None else bias.data_ptr()
        self._linear(x.data_ptr(), weight.data_ptr(), offset, y.data_ptr(), rows, inputs, outputs, threads)
        return y

    def norm(self, x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
        """RMS norm of ``[T, d]``, contiguous, d a multiple of :data:`LANES`; no weight is one of ones."""
        y = torch.empty_like(x)
        gain = None if weight is None else weight.data_ptr()
        self._rms_norm(x.data_ptr(), gain, y.data_ptr(), *x.shape, eps)
        return y


def fits(weight: Tensor) -> bool:
    """Whether the compiled product can serve a weight."""
    return (
        weight.dtype == torch.float32
        and weight.device.type == "cpu"
        and weight.is_contiguous()
        and weight.shape[1] % LANES == 0
    )
