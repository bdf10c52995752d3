"""Small layers that the networks share; the shapes and equations of Llama-type targets."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from hyflash_bench.drafters.networks.products import Linear, normalised
from hyflash_bench.precision import in_float64

__all__ = ["RMSNorm", "SwiGLU", "rotary_tables", "rotate"]


class RMSNorm(nn.Module):
    """See :func:`normalised`."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        return normalised(x, self.weight, self.eps)


class SwiGLU(nn.Module):
    """``down(silu(gate(x)) * up(x))`` (Shazeer, 2002.05202), gate and up in one product."""

    def __init__(self, size: int, intermediate_size: int) -> None:
        super().__init__()
        self.gate_up = Linear(size, 2 * intermediate_size, bias=False)
        self.down = Linear(intermediate_size, size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """``[..., d]`` to ``[..., d]``."""
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        out: Tensor = self.down(functional.silu(gate) * up)
        return out


def rotary_tables(positions: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines of rotary positions (Su et al., 2104.09864), halves layout as in Llama.

    Angles are taken in float64, so that far positions are as exact as near ones.

    Args:
        positions: ``[...]`` integers.
        head_dim: Size of a head.
        theta: Base of the frequencies.

    Returns:
        Two ``[..., head_dim // 2]`` float32.
    """
    exact = in_float64(positions)[..., None]
    steps = torch.arange(0, head_dim, 2, dtype=exact.dtype, device=exact.device) / head_dim
    angles = exact * theta**-steps
    return angles.cos().float().to(positions.device), angles.sin().float().to(positions.device)


def rotate(x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate heads ``[..., heads, head_dim]`` by tables of shape ``[..., head_dim // 2]``."""
    cosine, sine = (table.unsqueeze(-2).to(x.dtype) for table in tables)
    low, high = x.chunk(2, dim=-1)
    return torch.cat([low * cosine - high * sine, high * cosine + low * sine], dim=-1)
