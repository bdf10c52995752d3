"""Continuations of one context as a tree of tokens: one pass of the target serves all of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["Branches"]


class Branches:
    """Continuations that begin alike share the rows in which they do.

    The last token of the context is the root: what follows it is asked for. The last token of a
    continuation needs no row, since nothing is asked of what follows it.

    Args:
        root: Last token of the context.
    """

    def __init__(self, root: int) -> None:
        self._tokens = [root]
        self._parents = [-1]
        self._rows: dict[tuple[int, int], int] = {}  # by parent's row and token
        self._paths: list[list[int]] = []
        self._wanted: list[int] = []

    @property
    def num_rows(self) -> int:
        """Rows of the pass, the root counted."""
        return len(self._tokens)

    @property
    def tokens(self) -> Tensor:
        """``[num_rows]`` int64."""
        return torch.tensor(self._tokens)

    @property
    def parents(self) -> Tensor | None:
        """``[num_rows]`` int64 as :meth:`Target.forward` takes them; None where the tree is a chain."""
        is_chain = self._parents == list(range(-1, self.num_rows - 1))
        return None if is_chain else torch.tensor(self._parents)

    def num_new(self, continuation: Sequence[int]) -> int:
        """Rows that one more continuation would add."""
        row: int | None = 0
        shared = 0
        for token in continuation[:-1]:
            row = None if row is None else self._rows.get((row, token))
            shared += row is not None
        return len(continuation) - 1 - shared

    def add(self, continuation: Sequence[int]) -> None:
        """Add a continuation of at least one token."""
        path = [0]
        for token in continuation[:-1]:
            step = (path[-1], token)
            if step not in self._rows:
                self._rows[step] = self.num_rows
                self._tokens.append(token)
                self._parents.append(path[-1])
            path.append(self._rows[step])
        self._paths.append(path)
        self._wanted += continuation

    def said_of(self, logits: Tensor) -> list[tuple[Tensor, Tensor]]:
        """What the pass says of each continuation, in the order they were added.

        Args:
            logits: ``[num_rows, vocab]`` float32 after each row.

        Returns:
            For each continuation of n tokens ``[n]`` log p(token | all before it) and ``[n]`` bool,
            whether the token is the likeliest one.
        """
        rows = torch.tensor([row for path in self._paths for row in path])
        wanted = torch.tensor(self._wanted)
        likeliest = logits.argmax(-1)[rows] == wanted
        logprobs = logits.log_softmax(-1)[rows, wanted]
        sizes = [len(path) for path in self._paths]
        return list(zip(torch.split(logprobs, sizes), torch.split(likeliest, sizes), strict=True))
