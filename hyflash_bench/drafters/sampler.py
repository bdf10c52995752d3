"""From logits to probabilities to tokens, the same way for target and drafters."""

from __future__ import annotations

import torch
from torch import Tensor

from hyflash_bench.precision import in_float64
from hyflash_bench.spec.sampling import Sampling

__all__ = ["Sampler"]


class Sampler:
    """A sampling rule with its own source of randomness.

    Every random choice of a cell goes through one sampler seeded from the cell, so that a
    repetition of the cell repeats its output.
    """

    def __init__(self, sampling: Sampling, seed: int) -> None:
        self.sampling = sampling
        self._generator = torch.Generator().manual_seed(seed & (2**63 - 1))

    @property
    def is_greedy(self) -> bool:
        """Whether every token is the likeliest one."""
        return self.sampling.is_greedy

    def probabilities(self, logits: Tensor) -> Tensor:
        """The distribution that tokens are drawn from.

        Temperature, then top-k, then top-p, then renormalisation, in float64 so that rounding
        cannot bias an acceptance test. Greedy puts all mass on the first likeliest token.

        Args:
            logits: ``[..., vocab]``.

        Returns:
            ``[..., vocab]`` float64, each row summing to one.
        """
        sampling, exact = self.sampling, in_float64(logits)
        if sampling.is_greedy:
            return torch.zeros_like(exact).scatter_(-1, exact.argmax(-1, keepdim=True), 1.0)
        scaled = exact / sampling.temperature
        if sampling.top_k is not None and sampling.top_k < scaled.shape[-1]:
            kept = scaled.topk(sampling.top_k, dim=-1)
            scaled = torch.full_like(scaled, -torch.inf).scatter_(-1, kept.indices, kept.values)
        if sampling.top_p is not None and sampling.top_p < 1.0:
            ordered, order = scaled.softmax(-1).sort(dim=-1, descending=True, stable=True)
            mass_before = ordered.cumsum(-1) - ordered
            beyond = torch.zeros_like(scaled, dtype=torch.bool)
            beyond.scatter_(-1, order, mass_before >= sampling.top_p)
            scaled = scaled.masked_fill(beyond, -torch.inf)
        return scaled.softmax(-1)

    def draw(self, probabilities: Tensor) -> int:
        """Draw one token from ``[vocab]`` probabilities (or any non-negative weights)."""
        cumulative = in_float64(probabilities).cumsum(-1)
        point = self.uniform() * float(cumulative[-1])
        index = int(torch.searchsorted(cumulative, point, right=True))
        if index >= len(cumulative):  # point rounded up to the total mass
            index = int(probabilities.nonzero()[-1])
        return index

    def uniform(self) -> float:
        """A number drawn uniformly from [0, 1)."""
        return float(torch.rand((), generator=self._generator, dtype=torch.float64))

    def choose(self, logits: Tensor) -> int:
        """The next token after ``[vocab]`` logits: the likeliest, or one drawn."""
        if self.is_greedy:
            return int(logits.argmax())
        return self.draw(self.probabilities(logits))
