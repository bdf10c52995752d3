"""Products of a few rows with a weight, by the compiled kernels where they serve."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from hyflash_bench.targets import architecture
from hyflash_bench.targets.native import MAX_ROWS, fits, load_native

__all__ = ["Linear", "product"]


class Linear(nn.Linear):
    """``nn.Linear`` whose passes of a few rows are fast."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name is torch's
        """``[..., in]`` to ``[..., out]``."""
        return product(input, self.weight, self.bias)


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x [..., in]`` times ``weight [out, in]``, plus bias: ``[..., out]``.

    A block of drafted rows is bound by reading the weights, which torch's own product does at half
    the speed of the kernels that the target runs on. Training and long passes stay with torch.
    """
    rows = x.numel() // x.shape[-1]
    linear = architecture.Linear(weight, bias)
    if not 0 < rows <= MAX_ROWS or _is_torchs(x) or not fits(linear):
        return functional.linear(x, weight, bias)
    library = load_native()
    if library is None:
        return functional.linear(x, weight, bias)
    return library.linear(x.reshape(rows, -1).contiguous(), linear).view(*x.shape[:-1], -1)


def _is_torchs(x: Tensor) -> bool:
    """Whether only torch's product follows gradients, autocast, compilation and other devices."""
    return (
        torch.is_grad_enabled()
        or x.dtype != torch.float32
        or x.device.type != "cpu"
        or torch.is_autocast_enabled("cpu")
        or torch.compiler.is_compiling()
    )
