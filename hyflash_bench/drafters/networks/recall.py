"""What is remembered of rows that are too old to be copied from: the last one of each pair of tokens.

A recurrent state of fixed size. In the words of the delta rule (2102.11174) its keys are one-hot and its
writes whole: a hash of a row's token and the one before it chooses a place, and the row takes it from
whatever stood there. So a text of any length leaves its latest passages of every kind, and what is rare
in it stays longest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

if TYPE_CHECKING:
    from hyflash_bench.drafters.networks.copying import CopyHead

__all__ = ["Recall", "places_taken", "written_over"]

_EMPTY = -1


def places_taken(before: Tensor, tokens: Tensor, num_places: int) -> Tensor:
    """``[T]``: where rows are written, by their tokens and those before them in the draft vocabulary."""
    mixed = (before.long() * 2_654_435_761 + tokens.long() * 2_246_822_519) & 0xFFFF_FFFF
    return (mixed ^ (mixed >> 15)) % num_places


def written_over(taken: Tensor) -> Tensor:
    """``[T]``: the next row that is written where each row was; T for none.

    Args:
        taken: ``[T]`` as of :func:`places_taken`, of a whole text.
    """
    order = taken.argsort(stable=True)
    earlier, later = order[:-1], order[1:]
    is_same = taken[earlier] == taken[later]
    following = torch.full_like(taken, len(taken))
    following[earlier[is_same]] = later[is_same]
    return following


class Recall:
    """The state while drafting; its bytes are constant.

    Attributes:
        keys: ``[num_places, size]`` of the rows that stand there.
        named: ``[num_places, B]`` int32, the B tokens that followed each, in the draft vocabulary.
    """

    def __init__(self, keys: Tensor, named: Tensor) -> None:
        self.keys, self.named = keys, named

    @classmethod
    def of(cls, head: CopyHead) -> Self:
        """An empty one."""
        weight, num_places = head.project.weight, head.num_recalled
        keys = weight.new_zeros(num_places, head.size)
        return cls(keys, keys.new_full((num_places, len(head.trust)), _EMPTY, dtype=torch.int32))

    @property
    def is_filled(self) -> Tensor:
        """``[num_places]`` bool."""
        return self.named[:, 0] != _EMPTY

    def is_of(self, draft_vocab_size: int) -> bool:
        """Whether all it names are places in a draft vocabulary, or the one behind it for none."""
        return int(self.named.min()) >= _EMPTY and int(self.named.max()) <= draft_vocab_size

    def write(self, keys: Tensor, tokens: Tensor) -> None:
        """Take in T rows that leave, oldest first.

        Args:
            keys: ``[T, size]``.
            tokens: ``[1 + T + B]`` in the draft vocabulary: the one before the first row, those of the
                rows, and the B that followed the last.
        """
        num_rows, (num_places, num_slots) = len(keys), self.named.shape
        taken = places_taken(tokens[:num_rows], tokens[1 : num_rows + 1], num_places)
        rows = torch.arange(num_rows, device=taken.device)
        last = taken.new_full((num_places,), -1).scatter_reduce(0, taken, rows, "amax")
        places = (last >= 0).nonzero()[:, 0]
        winners = last[places]
        self.keys[places] = keys[winners].to(self.keys.dtype)
        behind = winners[:, None] + torch.arange(2, num_slots + 2, device=taken.device)
        self.named[places] = tokens[behind].to(torch.int32)
