"""Drafts with a block network: all slots in one pass over what is kept of the verified text."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from hyflash_bench.drafters.base import Draft, Features, Held, MemoryKind
from hyflash_bench.drafters.formats.load import Network
from hyflash_bench.drafters.networks.block import BlockConfig, BlockNetwork
from hyflash_bench.drafters.networks.block_pass import BlockPass
from hyflash_bench.drafters.networks.context_state import ContextState, WindowState
from hyflash_bench.drafters.networks.copying import with_votes
from hyflash_bench.drafters.networks.native import kernels_for
from hyflash_bench.drafters.networks.network import Anchor
from hyflash_bench.drafters.networks.places import draft_places
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.drafters.trained import TrainedDrafter
from hyflash_bench.errors import DrafterError

__all__ = ["BlockDrafter"]


class BlockDrafter(TrainedDrafter):
    """Base of the drafters that share the block network and differ in what context they keep."""

    network_kind = "block"
    wanted: ClassVar[str]
    """What its checkpoints are, for the message when one is something else."""

    network: BlockNetwork

    @classmethod
    @abstractmethod
    def accepts(cls, config: BlockConfig) -> bool:
        """Whether a network of this shape is this drafter's."""

    def _new_state(self) -> ContextState:
        return WindowState(self.network, kv_dtype=self.options.kv_dtype)

    def _adopt(self, network: Network, folder: Path) -> None:
        assert isinstance(network, BlockNetwork)
        config = network.config
        if not self.accepts(config):
            raise DrafterError(
                f"{folder} was trained with attention={config.attention}, memory={config.memory}; "
                f"{self.name} needs {self.wanted}. Choose another checkpoint or another drafter."
            )

    def reset(self) -> None:
        """See :meth:`Drafter.reset`."""
        self._state = self._new_state()
        self._pass = None if self.options.compile else BlockPass.of(self.network, self._state)
        self._copies = self._new_copies()

    @torch.inference_mode()
    def observe(self, tokens: Tensor, features: Features) -> None:
        """See :meth:`Drafter.observe`."""
        if not len(tokens):
            return
        rows = self.network.context_rows(features)
        self._state.extend(rows)
        if self._copies is not None:
            self._copies.extend(tokens, rows)

    @torch.inference_mode()
    def draft(self, last_token: int, budget: int, sampler: Sampler, along: Tensor | None = None) -> Draft:
        """See :meth:`Drafter.draft`."""
        length = self._limit(budget)
        if sampler.is_greedy:
            return self._likeliest(self._anchor(last_token), length)
        if along is None:
            return self._drawn(self._anchor(last_token), length, sampler)
        along = along[:length]
        rows = [sampler.probabilities(row) for row in self.logits(last_token, along)[: len(along)]]
        if not rows:
            return Draft.empty()
        return Draft(along, None, self.network.head.spread(torch.stack(rows)))

    def memory(self) -> list[Held]:
        """See :meth:`Drafter.memory`."""
        return [*self._weights(), *self._state.held(), *self._held_copies()]

    def memory_formula(self, context_length: int) -> dict[MemoryKind, int]:
        """See :meth:`Drafter.memory_formula`."""
        return super().memory_formula(context_length) | self._state.formula(context_length)

    # Proposing

    def logits(self, last_token: int, along: Tensor) -> Tensor:
        """``[M, V_d]``: the slots' logits when the given ``[M]`` tokens are what is drafted.

        The drafting form of :meth:`BlockNetwork.forward` at one anchor.
        """
        along = along[: self.network.config.num_slots]
        anchor = self._anchor(last_token)
        logits = self._block_logits(anchor, len(along))
        before = torch.cat([anchor.place, self._places(along[:-1])])[: len(along)]
        votes = self._votes(anchor)
        return self._settled(logits, None if votes is None else votes[: len(logits)], before)

    def _settled(self, logits: Tensor, votes: Tensor | None, places_before: Tensor) -> Tensor:
        """Logits ``[M, V_d]`` of some slots with what the tokens before them and copying say.

        Args:
            logits: ``[M, V_d]`` of the network.
            votes: ``[M, V_d]``, or None.
            places_before: ``[M]`` of the tokens before the slots, in the draft vocabulary.
        """
        if self.network.markov is not None:
            logits = logits + self.network.markov(places_before)
        return logits if votes is None else with_votes(logits, votes)

    def _slots(self, anchor: Anchor, length: int) -> Iterator[Callable[[Tensor], Tensor]]:
        """For each slot: its logits ``[1, V_d]``, once the place ``[1]`` of the token before it is known."""
        logits, votes = self._block_logits(anchor, length), self._votes(anchor)
        for slot in range(len(logits)):
            copied = None if votes is None else votes[slot, None]
            yield partial(self._settled, logits[slot, None], copied)

    def _anchor(self, last_token: int) -> Anchor:
        return self.network.anchor(last_token, self._state.last_row[None])

    def _block_logits(self, anchor: Anchor, length: int) -> Tensor:
        """Logits of the first slots. The block is computed whole, since its slots see each other."""
        network, state = self.network, self._state
        kernels = kernels_for(anchor.known)
        if kernels is not None and self._pass is not None:
            return self._pass.logits(kernels, anchor.known, length)
        hidden = network.block_input(anchor.known)
        slots = torch.arange(network.config.num_slots, device=hidden.device)
        tables = network.rotations(state.position + slots[None])
        for index, layer in enumerate(network.layers):
            hidden = layer(hidden, tables, partial(state.attend, index), state.memory(index))
        logits: Tensor = network.head(hidden[0, :length])
        return logits

    def _likeliest(self, anchor: Anchor, length: int) -> Draft:
        kernels = kernels_for(anchor.known)
        if kernels is None or self._pass is None:
            return self._likeliest_one_by_one(anchor, length)
        logits, votes, markov = self._block_logits(anchor, length), self._votes(anchor), self.network.markov
        correction = None if markov is None else (markov.table, markov.out.weight)
        places, chances = kernels.walk(logits, votes, correction, int(anchor.place))
        self._require_numbers(chances)
        if self.options.min_confidence:
            is_kept = chances.cumprod(0) >= self.options.min_confidence
            places = places[: int(is_kept.cumprod(0).sum())]
        return self._chain(places)

    def _likeliest_one_by_one(self, anchor: Anchor, length: int) -> Draft:
        place, confidence = anchor.place, 1.0
        chosen: list[Tensor] = []
        tops: list[Tensor] = []
        for logits_after in self._slots(anchor, length):
            row = logits_after(place)[0]
            top, place = row.max(-1, keepdim=True)
            tops.append(top)
            confidence = self._confidence(confidence, row, place)
            if confidence < self.options.min_confidence:
                break
            chosen.append(place)
        if tops:
            self._require_numbers(torch.cat(tops))  # at the end, since asking waits for the device
        return self._chain(torch.cat(chosen)) if chosen else Draft.empty()

    def _drawn(self, anchor: Anchor, length: int, sampler: Sampler) -> Draft:
        """Drawn over the draft vocabulary: a token outside it has no chance in either form."""
        place = anchor.place
        chosen, rows = [], []
        for logits_after in self._slots(anchor, length):
            row = logits_after(place)[0]
            rows.append(sampler.probabilities(row))
            place = torch.tensor([sampler.draw(rows[-1])], device=row.device)
            chosen.append(place)
        drawn = self._chain(torch.cat(chosen))
        return Draft(drawn.tokens, None, self.network.head.spread(torch.stack(rows)))

    def _chain(self, places: Tensor) -> Draft:
        return Draft(self.network.head.draft_ids[places].cpu())

    def _places(self, tokens: Tensor) -> Tensor:
        ids = self.network.head.draft_ids
        return draft_places(tokens.to(ids.device), ids)
