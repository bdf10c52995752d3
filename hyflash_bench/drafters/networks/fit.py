"""A start by least squares: the linear map from what a drafter knows to what the target will think.

Gradient steps take hundreds of batches to find what normal equations give from a few: with the
anchor's embedding and the features before it, a linear map already names the next token of
SmolLM2-135M's replies in a third of all cases.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from hyflash_bench.drafters.networks.batch import Batch

__all__ = ["LeastSquares", "SlotMaps", "shared_basis", "wanted_rows"]

_RIDGE = 3e-3
"""Relative to the mean square of the inputs."""


class LeastSquares:
    """Normal equations of ``y_j ~ W_j x + b_j`` for B slots that share their inputs.

    Args:
        num_inputs: Size of x.
        num_slots: B.
        num_outputs: Size of y.
        intercept: Whether there is a ``b_j``; fit none where none can be kept.
    """

    def __init__(self, num_inputs: int, num_slots: int, num_outputs: int, *, intercept: bool = True) -> None:
        size = num_inputs + 1
        self._moments = torch.zeros(size, size, dtype=torch.float64)
        self._products = torch.zeros(num_slots, size, num_outputs, dtype=torch.float64)
        self._intercept = intercept
        self._num_rows = 0

    def add(self, inputs: Tensor, outputs: Tensor) -> None:
        """Take in rows: ``[n, inputs]`` and ``[n, B, outputs]``."""
        last = inputs.new_full((len(inputs), 1), float(self._intercept), dtype=torch.float32)
        x = torch.cat([inputs.float(), last], dim=1).cpu()
        self._moments += (x.T @ x).double()
        self._products += torch.einsum("ni,njo->jio", x, outputs.float().cpu()).double()
        self._num_rows += len(x)

    @property
    def num_rows(self) -> int:
        """Rows taken in."""
        return self._num_rows

    def solve(self) -> SlotMaps:
        """The maps, with a little ridge on all but the intercepts."""
        moments = self._moments.clone()
        ridge = _RIDGE * moments.diagonal()[:-1].mean()
        moments.diagonal()[:-1] += ridge
        if not self._intercept:
            moments[-1, -1] = 1.0
        solved = torch.linalg.solve(moments, self._products).mT.float()
        return SlotMaps(solved[..., :-1], solved[..., -1], self._moments[:-1, :-1].float())


class SlotMaps(NamedTuple):
    """Solved maps.

    Attributes:
        weights: ``[B, outputs, inputs]``.
        biases: ``[B, outputs]``.
        moments: ``[inputs, inputs]``, sums of products of the inputs.
    """

    weights: Tensor
    biases: Tensor
    moments: Tensor


def shared_basis(maps: SlotMaps, rank: int) -> tuple[Tensor, Tensor]:
    """How the slots' maps differ from the first one's, in one basis of low rank.

    Directions count by how much of the inputs lies in them.

    Returns:
        ``[B, outputs, rank]`` and ``[rank, inputs]``, whose products are nearest to the differences.
    """
    values, vectors = torch.linalg.eigh(maps.moments.double())
    root = vectors * values.clamp(min=values[-1] * 1e-9).sqrt()
    differences = (maps.weights - maps.weights[:1]).double()
    weighted = differences @ root
    _, _, right = torch.linalg.svd(weighted.flatten(0, 1), full_matrices=False)
    basis = right[:rank]
    back = basis @ torch.linalg.pinv(root)
    return (weighted @ basis.T).float(), back.float()


def wanted_rows(batches: Iterable[Batch], num_slots: int) -> Iterable[tuple[Batch, Tensor]]:
    """Batches with the anchors whose slots all lie in their document, and the target's rows there.

    Yields:
        A batch with fewer anchors, and ``[N, B, d]``: the last hidden state that each slot should be.
    """
    for batch in batches:
        whole = batch.labels(num_slots)[1].all(dim=1)
        anchors = batch.anchors[whole]
        assert batch.features.last_hidden is not None
        rows = anchors[:, None] + torch.arange(num_slots)
        kept = Batch(batch.tokens, batch.features, batch.starts, anchors)
        yield kept, batch.features.last_hidden[rows.to(batch.features.last_hidden.device)]
