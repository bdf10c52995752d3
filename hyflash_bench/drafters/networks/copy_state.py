"""The rows that a drafter copies from, while drafting."""

from __future__ import annotations

import torch
from torch import Tensor

from hyflash_bench.drafters.base import Held
from hyflash_bench.drafters.networks.copying import cosines
from hyflash_bench.drafters.networks.native import kernels_for
from hyflash_bench.drafters.networks.network import Anchor, DraftNetwork
from hyflash_bench.drafters.networks.places import draft_places
from hyflash_bench.drafters.networks.recall import Recall
from hyflash_bench.native.library import LANES

__all__ = ["CopyState"]


class CopyState:
    """Keys and tokens of the last verified rows, and those recalled from before; bytes are constant.

    Nothing is known of what comes before the first row of a text, so that one is not held.

    Args:
        network: One that copies.
        recall: Go on from what others left in it; None for an empty one, if the network recalls.
        is_fixed: Write nothing to it: a control.

    Attributes:
        keys: ``[window, size]``; the last :attr:`num_rows` are filled.
        places: ``[1 + window]`` int32, of the tokens in the draft vocabulary: those of the rows, and
            before the oldest one the token before it.
        last_row: ``[1, d]``, the context row of the last verified token.
        num_rows: Rows held.
        recall: What is remembered of rows before these, if anything is.
    """

    def __init__(
        self, network: DraftNetwork, recall: Recall | None = None, *, is_fixed: bool = False
    ) -> None:
        assert network.copying is not None
        self._network, self._head = network, network.copying
        weight, window = self._head.project.weight, self._head.window
        self.keys = weight.new_zeros(window, self._head.size)
        self.places = torch.zeros(1 + window, dtype=torch.int32, device=weight.device)
        self.last_row = weight.new_zeros(1, network.config.target.hidden_size)
        self.num_rows = 0
        self.recall = recall
        if recall is None and self._head.num_recalled:
            self.recall = Recall.of(self._head)
        self._is_fixed = is_fixed
        self._has_begun = False

    def held(self) -> list[Held]:
        """All tensors kept alive."""
        held = [Held("kv", self.keys), Held("kv", self.places), Held("buffer", self.last_row)]
        if self.recall is not None:
            held += [Held("state", self.recall.keys), Held("state", self.recall.named)]
        return held

    def extend(self, tokens: Tensor, rows: Tensor) -> None:
        """Take in T verified tokens ``[T]`` and their context rows ``[T, d]``, T at least 1."""
        rows = rows.to(self.last_row.dtype)
        before = torch.cat([self.last_row, rows[:-1]])
        known = self.places[len(self.places) - self.num_rows - self._has_begun :]
        places = torch.cat([known, self._places(tokens).to(known.dtype)])
        recall = None if self._is_fixed else self.recall
        most = self._head.window if recall is None else len(rows)
        fresh = slice(max(0 if self._has_begun else 1, len(rows) - most), None)
        arriving = self._head.keys(self._network.known_of(tokens[fresh], before[fresh])).to(self.keys.dtype)
        keys = torch.cat([self.keys[len(self.keys) - self.num_rows :], arriving])
        num_leaving = len(keys) - len(self.keys)
        if recall is not None and num_leaving > 0:
            recall.write(keys[:num_leaving], places)
        self.num_rows = min(len(keys), len(self.keys))
        kept, named = keys[len(keys) - self.num_rows :], places[-1 - self.num_rows :]
        self.keys[len(self.keys) - len(kept) :] = kept
        self.places[len(self.places) - len(named) :] = named
        self.last_row.copy_(rows[-1:])
        self._has_begun = True

    def anchor(self, last_token: int) -> Anchor:
        """What is known of the last committed token."""
        return self._network.anchor(last_token, self.last_row)

    def votes(self, anchor: Anchor) -> Tensor:
        """What is copied to the slots behind the last token, see :func:`with_votes`: ``[B, V_d]``."""
        head, first = self._head, len(self.keys) - self.num_rows
        keys, places = self.keys[first:], self.places[1 + first :]
        size = self._network.config.draft_vocab_size
        kernels = kernels_for(anchor.known, keys)
        if kernels is not None and head.size % LANES == 0:
            recalled = None if self.recall is None else (self.recall.keys, self.recall.named)
            query, parameters = head.project(anchor.known), (head.trust, head.log_sharpness, head.threshold)
            return kernels.vote(query, keys, places, int(anchor.place), recalled, parameters, size)
        num_slots, query = len(head.trust), head.keys(anchor.known)
        unknown = anchor.place.new_full((num_slots,), size)
        upcoming = torch.cat([places.long(), anchor.place, unknown])
        named = torch.stack([upcoming[slot : slot + self.num_rows] for slot in range(1, num_slots + 1)])
        visible = torch.ones(self.num_rows, dtype=torch.bool, device=keys.device)
        alike = cosines(query, keys)
        if self.recall is not None:
            alike = torch.cat([alike, cosines(query, self.recall.keys)], dim=1)
            visible = torch.cat([visible, self.recall.is_filled])
            named = torch.cat([named, self.recall.named.T.long().clamp(min=0)], dim=1)
        found: Tensor = head(alike, visible[None], named[None], size)
        return found[0]

    def _places(self, tokens: Tensor) -> Tensor:
        ids = self._network.head.draft_ids
        return draft_places(tokens.to(ids.device), ids)
