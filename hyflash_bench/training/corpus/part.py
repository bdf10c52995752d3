"""What a part of a corpus is: units of work that give documents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from torch import Tensor

from hyflash_bench.drafters.base import Requires

__all__ = ["Document", "OnTokens", "Part", "rng_of"]

OnTokens = Callable[[int], None]
"""Told how many tokens were written or read since the last time."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document.

    Attributes:
        tokens: ``[n]``.
        roles: ``[n]``, see :class:`hyflash_bench.training.corpus.store.Role`.
        group: The text that it was cut from, if from any.
        features: ``[n, width]`` of its tokens, where the target came by and they were asked for.
    """

    tokens: Tensor
    roles: Tensor
    group: str | None = None
    features: Tensor | None = None


class Part(ABC):
    """A part of a recipe at work.

    A unit gives the same documents each time, whatever was built before it: a build that was
    killed goes on at the unit that it was in.

    Attributes:
        num_units: How many there are.
        planned_tokens: What they will give, more or less.
        requires: Features that documents are to bring along where the target writes them; None for none.
    """

    name: ClassVar[str]
    num_units: int
    planned_tokens: int
    requires: Requires | None = None

    @abstractmethod
    def documents(self, unit: int, on_tokens: OnTokens) -> Iterator[Document]:
        """The documents of a unit, 0 to ``num_units - 1``."""


def rng_of(seed: int, part: str, *where: object) -> Random:
    """The source of randomness of one place in a part."""
    return Random("/".join(map(str, (seed, part, *where))))
