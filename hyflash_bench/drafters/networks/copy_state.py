"""The last rows that a drafter copies from, while drafting."""

from __future__ import annotations

import torch
from torch import Tensor

from hyflash_bench.drafters.base import Held
from hyflash_bench.drafters.networks.network import DraftNetwork
from hyflash_bench.drafters.networks.places import draft_places

__all__ = ["CopyState"]


class CopyState:
    """Keys and tokens of the last verified rows; their bytes are constant.

    Nothing is known of what comes before the first row of a text, so that one is not held.

    Args:
        network: One that copies.

    Attributes:
        keys: ``[window, size]``; the last :attr:`num_rows` are filled.
        places: ``[window]`` int32, of the tokens in the draft vocabulary; likewise.
        last_row: ``[1, d]``, the context row of the last verified token.
        num_rows: Rows held.
    """

    def __init__(self, network: DraftNetwork) -> None:
        assert network.copying is not None
        self._network, self._head = network, network.copying
        weight, window = self._head.project.weight, self._head.window
        self.keys = weight.new_zeros(window, self._head.size)
        self.places = torch.zeros(window, dtype=torch.int32, device=weight.device)
        self.last_row = weight.new_zeros(1, network.config.target.hidden_size)
        self.num_rows = 0
        self._has_begun = False

    def held(self) -> list[Held]:
        """All tensors kept alive."""
        return [Held("kv", self.keys), Held("kv", self.places), Held("buffer", self.last_row)]

    def extend(self, tokens: Tensor, rows: Tensor) -> None:
        """Take in T verified tokens ``[T]`` and their context rows ``[T, d]``, T at least 1."""
        rows = rows.to(self.last_row.dtype)
        before = torch.cat([self.last_row, rows[:-1]])
        fresh = slice(max(0 if self._has_begun else 1, len(rows) - self._head.window), None)
        keys = self._head.keys(self._network.known_of(tokens[fresh], before[fresh]))
        places = self._places(tokens[fresh])
        for held, new in ((self.keys, keys), (self.places, places)):
            held.copy_(torch.cat([held[len(new) :], new.to(held.dtype)]))
        self.num_rows = min(self._head.window, self.num_rows + len(keys))
        self.last_row.copy_(rows[-1:])
        self._has_begun = True

    def votes(self, last_token: int) -> Tensor:
        """What is copied to the slots behind the last token, see :func:`with_votes`: ``[B, V_d]``."""
        head, rows = self._head, slice(self._head.window - self.num_rows, None)
        anchor = torch.tensor([last_token], device=self.keys.device)
        num_slots, size = len(head.trust), self._network.config.draft_vocab_size
        unknown = anchor.new_full((num_slots,), size)
        known = torch.cat([self.places[rows].long(), self._places(anchor), unknown])
        named = torch.stack([known[slot : slot + self.num_rows] for slot in range(1, num_slots + 1)])
        visible = torch.ones(1, self.num_rows, dtype=torch.bool, device=anchor.device)
        query = head.keys(self._network.known_of(anchor, self.last_row))
        found: Tensor = head(query, self.keys[rows], visible, named[None], size)
        return found[0]

    def _places(self, tokens: Tensor) -> Tensor:
        ids = self._network.head.draft_ids
        return draft_places(tokens.to(ids.device), ids)
