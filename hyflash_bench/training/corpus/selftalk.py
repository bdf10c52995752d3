"""Conversations that the target makes up by itself, the user's turns included."""

from __future__ import annotations

from collections.abc import Iterator

from hyflash_bench.spec.corpus import SelfTalkSpec
from hyflash_bench.suites import ChatTokenizer
from hyflash_bench.targets.target import Target
from hyflash_bench.training.corpus.part import Document, OnTokens, Part, rng_of
from hyflash_bench.training.corpus.talk import Talk, grow
from hyflash_bench.training.corpus.template import TurnTokens

__all__ = ["SelfTalk"]


class SelfTalk(Part):
    """Waves of conversations, sampled on from the chat template's opening.

    Args:
        spec: Of the recipe.
        seed: Of the recipe.
        target: Speaks for both sides.
        max_tokens: About what all waves are to give; at least one is made.
    """

    name = "self-talk"

    def __init__(self, spec: SelfTalkSpec, seed: int, target: Target, max_tokens: int) -> None:
        chat = ChatTokenizer(target.tokenizer)
        of_wave = spec.rows * spec.length
        self.num_units = max(1, max_tokens // of_wave)
        self.planned_tokens = self.num_units * of_wave
        self._spec = spec
        self._seed = seed
        self._target = target
        self._turns = TurnTokens.of(chat, target.info.eos_token_ids)
        self._openers = [chat.encode(text) for text in spec.openers]
        self._follow_ups = [chat.encode(text) for text in spec.talk.follow_ups]

    def documents(self, unit: int, on_tokens: OnTokens) -> Iterator[Document]:
        """Grow one wave."""
        spec = self._spec
        talks = [self._talk(unit, row) for row in range(spec.rows)]
        seed = rng_of(self._seed, self.name, unit).getrandbits(63)
        grown = grow(self._target, talks, spec.length, spec.talk, seed, on_tokens, self.requires)
        yield from grown.documents([None] * spec.rows)

    def _talk(self, wave: int, row: int) -> Talk:
        rng = rng_of(self._seed, self.name, wave, row)
        opening = list(self._turns.opening)
        if self._openers and rng.random() < self._spec.opened_share:
            opening += rng.choice(self._openers)
        return Talk(
            opening,
            begins_with_reply=False,
            spec=self._spec.talk,
            turns=self._turns,
            follow_ups=self._follow_ups,
            rng=rng,
        )
