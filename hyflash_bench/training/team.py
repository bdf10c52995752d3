"""The processes that train together, each on a device of its own: data-parallel, by accelerate.

Anchors of a step are dealt out; gradients are added up. So a step is the same step on one device as
on eight, up to rounding, and a training may go on with another number of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import timedelta

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

__all__ = ["ALONE", "Team"]

_PATIENCE = timedelta(hours=2)
"""How long processes wait for one that evaluates, saves or computes features."""


class Team:
    """What processes say to each other; with one process nothing is said.

    Attributes:
        size: Processes.
        index: Of this one.
        backend: What this one computes on.

    Args:
        backend: What was asked for; ``cuda`` becomes a GPU of each process's own.
        size: Processes; see :meth:`gathered`.
        index: Of this one.
    """

    def __init__(self, backend: str = "cpu", size: int = 1, index: int = 0) -> None:
        self.backend, self.size, self.index = backend, size, index

    @classmethod
    def gathered(cls, backend: str) -> Team:
        """The processes that ``accelerate launch`` or ``torchrun`` started; this one alone without them."""
        if int(os.environ.get("WORLD_SIZE", "1")) <= 1:
            return cls(backend)
        from accelerate import PartialState

        state = PartialState(cpu=backend == "cpu", timeout=_PATIENCE)
        own = backend if backend == "cpu" else str(state.device)
        return cls(own, state.num_processes, state.process_index)

    @property
    def is_main(self) -> bool:
        """Whether this process is the one that writes and tells."""
        return self.index == 0

    def share(self, anchors: NDArray[np.int64]) -> NDArray[np.int64]:
        """This process's part of ascending anchors: neighbours, so that few documents are read."""
        return np.array_split(anchors, self.size)[self.index]

    def total(self, value: Tensor) -> Tensor:
        """The sum of a tensor over all processes."""
        if self.size == 1:
            return value
        from accelerate.utils import reduce

        summed: Tensor = reduce(value, reduction="sum")
        return summed

    def agreed(self, flag: bool) -> bool:
        """Whether any process says so; all get the same answer."""
        if self.size == 1:
            return flag
        return bool(self.total(torch.tensor(float(flag), device=self.backend)) > 0)

    @torch.no_grad()
    def add_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace gradients by their sums; one that no process has stays None."""
        if self.size == 1:
            return
        has = torch.tensor([float(value.grad is not None) for value in parameters], device=self.backend)
        mine = [torch.zeros_like(value) if value.grad is None else value.grad for value in parameters]
        flat = self.total(torch.cat([has, *(gradient.flatten() for gradient in mine)]))
        has, *sums = torch.split(flat, [len(parameters), *(value.numel() for value in parameters)])
        for value, is_there, summed in zip(parameters, has.tolist(), sums, strict=True):
            value.grad = summed.view_as(value) if is_there else None

    def align(self, tensors: Iterable[Tensor]) -> None:
        """Make tensors those of the main process, which others may have rounded otherwise."""
        if self.size == 1:
            return
        from accelerate.utils import broadcast

        for tensor in tensors:
            broadcast(tensor.detach())

    def wait(self) -> None:
        """Until all processes are here."""
        self.agreed(flag=False)


ALONE = Team()
"""A training in one process."""
