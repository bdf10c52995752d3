"""What every network in training is fed: documents with features, and anchors in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from hyflash_bench.drafters.base import Features

__all__ = ["Batch"]


@dataclass(frozen=True, slots=True)
class Batch:
    """Documents one after the other, with anchors drawn in them.

    An anchor ``a`` is the row of a last committed token: a drafter knows the tokens up to and with
    row ``a`` and the features of rows before ``a``, of the same document only. It is to say what
    stands at rows ``a + 1``, ``a + 2``, ...

    Attributes:
        tokens: ``[T]`` int64.
        features: T rows, on the network's device.
        starts: Row at which each document begins; the first is 0.
        anchors: ``[N]`` int64, ascending; none is the first row of its document.
    """

    tokens: Tensor
    features: Features
    starts: tuple[int, ...]
    anchors: Tensor

    @property
    def num_anchors(self) -> int:
        """N."""
        return int(self.anchors.shape[0])

    def spans(self) -> Iterator[slice]:
        """Rows of each document."""
        ends = (*self.starts[1:], len(self.tokens))
        for start, end in zip(self.starts, ends, strict=True):
            yield slice(start, end)

    def anchors_within(self, span: slice) -> slice:
        """Which of the anchors lie in a document, as a slice of ``anchors``."""
        low, high = torch.searchsorted(self.anchors, torch.tensor([span.start, span.stop])).tolist()
        return slice(low, high)

    def labels(self, num_slots: int) -> tuple[Tensor, Tensor]:
        """What stands in each anchor's slots.

        Returns:
            ``[N, num_slots]`` token ids, and whether the slot lies in the anchor's document.
        """
        rows = self.anchors[:, None] + torch.arange(1, num_slots + 1)
        ends = torch.tensor([*self.starts[1:], len(self.tokens)])
        document = torch.searchsorted(torch.tensor(self.starts), self.anchors, right=True) - 1
        inside = rows < ends[document][:, None]
        return self.tokens[rows.clamp(max=len(self.tokens) - 1)], inside
