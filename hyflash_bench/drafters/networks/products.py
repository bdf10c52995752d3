"""Products and norms of a few rows, by the compiled kernels where they serve."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from hyflash_bench.drafters.networks.native import kernels_for
from hyflash_bench.native.library import LANES, MAX_ROWS, fits

__all__ = ["Linear", "normalised", "product"]


class Linear(nn.Linear):
    """``nn.Linear`` whose passes of a few rows are fast."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name is torch's
        """``[..., in]`` to ``[..., out]``."""
        return product(input, self.weight, self.bias)


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x [..., in]`` times ``weight [out, in]``, plus bias: ``[..., out]``.

    A block of drafted rows is bound by reading the weights, which torch's own product does at half
    the speed of the kernels. Training and long passes stay with torch.
    """
    rows = x.numel() // x.shape[-1]
    kernels = kernels_for(x) if 0 < rows <= MAX_ROWS else None
    if kernels is None or not fits(weight) or weight.shape[1] != x.shape[-1]:
        return functional.linear(x, weight, bias)
    return kernels.product(x.reshape(rows, -1).contiguous(), weight, bias).view(*x.shape[:-1], -1)


def normalised(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """``x / rms(x) * weight`` (Zhang & Sennrich, 1910.07467) over the last dimension, in float32.

    Args:
        x: ``[..., d]``.
        weight: ``[d]``; None for ones.
        eps: Added to the mean square.
    """
    size = x.shape[-1]
    rows = x.numel() // size
    kernels = kernels_for(x) if 0 < rows <= MAX_ROWS and size % LANES == 0 else None
    is_served = weight is None or (weight.dtype == torch.float32 and weight.shape == (size,))
    if kernels is None or not is_served:
        gain = None if weight is None else weight.float()
        return functional.rms_norm(x.float(), (size,), gain, eps).to(x.dtype)
    return kernels.norm(x.reshape(rows, size).contiguous(), weight, eps).view(x.shape)
