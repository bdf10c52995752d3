"""The memory branch of a block drafter: what verified rows write, and how all slots read it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from hyflash_bench.drafters.networks.delta import Writes
from hyflash_bench.drafters.networks.layers import RMSNorm
from hyflash_bench.drafters.networks.products import Linear

__all__ = ["MemoryReader", "MemoryWriter"]

_READ_EPS = 1e-6
"""Below the square of what a single weak write gives back, so that the norm does not mute it."""


class MemoryWriter(nn.Module):
    """From normalised features to keys, values, strengths and decays.

    Heads differ in how long they remember: their half-lives are spread evenly on a logarithmic
    scale. A gate alone does not give a half-life, since later writes also erase: unit keys in ``dk``
    dimensions shrink what is stored to 1/e after about ``dk / beta`` writes. Strengths therefore
    start at ``ln 2 * dk / half-life``, at most 0.3.

    A head with a shift binds the key of so many rows before to a row's value: asked with what is
    now, it tells what came so many rows after.
    """

    def __init__(
        self, size: int, heads: int, key_dim: int, value_dim: int, shifts: Sequence[int] = ()
    ) -> None:
        super().__init__()
        self.heads, self.key_dim, self.shifts = heads, key_dim, tuple(shifts)
        self.project = Linear(size, heads * (key_dim + value_dim), bias=False)
        self.gates = Linear(size, 2 * heads)
        self.log_rates = nn.Parameter(torch.zeros(heads))

    @torch.no_grad()
    def reset_gates(self, shortest: float, longest: float) -> None:
        """Spread half-lives, in rows, over the heads; until trained, they hold whatever is written."""
        shares = torch.linspace(0.0, 1.0, self.heads) if self.heads > 1 else torch.ones(1)
        half_lives = shortest * (longest / shortest) ** shares
        strengths = (math.log(2) * self.key_dim / half_lives).clamp(max=0.3)
        rates = (math.log(2) / half_lives).expm1().log()
        self.gates.weight.zero_()
        self.gates.bias.copy_(torch.cat([strengths.logit(), rates]))
        self.log_rates.zero_()

    def forward(self, rows: Tensor, before: Tensor | None = None) -> Writes:
        """What rows write, in float32.

        Args:
            rows: ``[T, d]`` normalised features.
            before: ``[max(shifts), d]`` rows just before them; None for the start of a document.
        """
        projected: Tensor = self.project(rows).float().unflatten(-1, (self.heads, -1))
        keys, values = projected[..., : self.key_dim], projected[..., self.key_dim :]
        if self.shifts:
            keys = self._shifted(keys, rows, before)
        with torch.autocast(rows.device.type, enabled=False):
            gates = functional.linear(rows.float(), self.gates.weight.float(), self.gates.bias.float())
        strengths, rates = gates.chunk(2, dim=-1)
        decays = -self.log_rates.float().exp() * functional.softplus(rates)
        return Writes(functional.normalize(keys, dim=-1), values, strengths.sigmoid(), decays)

    def _shifted(self, keys: Tensor, rows: Tensor, before: Tensor | None) -> Tensor:
        most = max(self.shifts)
        if before is None:
            earlier = keys.new_zeros(most, *keys.shape[1:])
        else:
            earlier = self.project(before).float().unflatten(-1, (self.heads, -1))[..., : self.key_dim]
        joined = torch.cat([earlier, keys])
        starts = [most - shift for shift in self.shifts]
        return torch.stack(
            [joined[start : start + len(rows), head] for head, start in enumerate(starts)], dim=1
        )


class MemoryReader(nn.Module):
    """All slots of a block read one state and mix it in, gated by what they hold themselves.

    The projection into the residual stream starts at zero, so a new drafter is the one without
    memory. A learned code tells the memory which slot asks.
    """

    def __init__(self, size: int, slots: int, heads: int, key_dim: int, value_dim: int, eps: float) -> None:
        super().__init__()
        self.key_dim = key_dim
        self.project = Linear(size, heads * (key_dim + value_dim), bias=False)
        self.slot_codes = nn.Parameter(torch.empty(slots, heads, key_dim))
        self.norm = RMSNorm(value_dim, min(eps, _READ_EPS))
        self.mix = Linear(heads * value_dim, size, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start unmixed."""
        nn.init.normal_(self.slot_codes, std=self.project.in_features**-0.5)
        nn.init.zeros_(self.mix.weight)

    @torch.no_grad()
    def ask_like(self, writer: MemoryWriter) -> None:
        """Start queries as keys: rows that are alike then find each other before any training."""
        shape = (self.slot_codes.shape[1], -1, self.project.in_features)
        keys = writer.project.weight.view(shape)[:, : self.key_dim]
        self.project.weight.view(shape)[:, : self.key_dim] = keys

    def forward(self, rows: Tensor, states: Tensor) -> Tensor:
        """Read for N blocks.

        Args:
            rows: ``[N, B, d]``, normalised.
            states: ``[N, H, dk, dv]`` float32.

        Returns:
            ``[N, B, d]`` to add to the residual stream.
        """
        heads = self.slot_codes.shape[1]
        projected: Tensor = self.project(rows).float().unflatten(-1, (heads, -1))
        asked, gates = projected[..., : self.key_dim], projected[..., self.key_dim :]
        queries = functional.normalize(asked + self.slot_codes.float(), dim=-1)
        with torch.autocast(rows.device.type, enabled=False):
            found = (queries.transpose(1, 2) @ states).transpose(1, 2)
        gated = self.norm(found) * gates.sigmoid()
        out: Tensor = self.mix(gated.flatten(-2).to(rows.dtype))
        return out
