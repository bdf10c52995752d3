"""A drafter that is right and wrong on purpose: for tests of engines, reports and plugins.

It is told the text in advance and how many tokens to get right in each step::

    drafter = Scripted(Scripted.Options(pattern="3 0 5"))
    drafter.follow(text)  # the conversation's tokens, from position 0

In greedy decoding the engine must then accept 3, 0 and 5 tokens, again and again. :meth:`play`
proposes ready-made drafts instead.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from itertools import chain, count, islice, repeat
from typing import Annotated, Any

import torch
from pydantic import AfterValidator, BeforeValidator, Field
from torch import Tensor

from hyflash_bench.drafters.base import (
    CellFacts,
    Draft,
    Drafter,
    DrafterOptions,
    Features,
    Held,
    LoadContext,
)
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.errors import DrafterError
from hyflash_bench.spec.base import MAX_COUNT

__all__ = ["Scripted"]


def _joined(value: Any) -> Any:
    """One number may be written as a number, several as a list."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.replace(",", " ").split()]


def _only_numbers(text: str) -> str:
    if not all(part.isdecimal() for part in text.replace(",", " ").split()):
        raise ValueError("must be whole numbers separated by spaces, for example '3 0 5'")
    return text


_Numbers = Annotated[str, BeforeValidator(_joined), AfterValidator(_only_numbers)]


class Scripted(Drafter):
    """Proposes a known text, right for as many tokens as a pattern says, then wrong."""

    name = "scripted"

    class Options(DrafterOptions):
        """What may be set."""

        pattern: _Numbers = Field(
            "3 0 5", description="Right tokens in each step, repeated; separated by spaces."
        )
        text: _Numbers = Field(
            "", description="Token ids of the conversation from position 0, separated by spaces."
        )
        num_wrong_tokens: int = Field(
            1, ge=0, le=MAX_COUNT, description="Wrong tokens proposed after the right ones."
        )
        num_wrong_siblings: int = Field(
            0,
            ge=0,
            le=MAX_COUNT,
            description="Wrong tokens tried before each right one; makes the draft a tree.",
        )
        wrong_token: int = Field(
            0,
            ge=0,
            le=MAX_COUNT,
            description="Token id that is proposed when wrong; the next free one if right.",
        )
        confidence: float | None = Field(
            None,
            gt=0.0,
            le=1.0,
            description="When sampling: mass of the scripted token, the rest spread evenly, and "
            "tokens drawn from that; null makes the script certain.",
        )

    options: Options

    def __init__(self, options: DrafterOptions | None = None) -> None:
        super().__init__(options)
        self._pattern = _numbers(self.options.pattern) or [0]
        self._texts: list[list[int]] = [_numbers(self.options.text)]
        self._drafts: list[Draft] | None = None
        self._vocab_size: int | None = None
        self.reset()

    def follow(self, *texts: Iterable[int] | Tensor) -> None:
        """Learn the texts to propose from, instead of the option's.

        Args:
            texts: Token ids of whole conversations, prompt included; each conversation follows
                the text that begins with it.
        """
        self._texts = [[int(token) for token in text] for text in texts]

    def play(self, drafts: Iterable[Draft]) -> None:
        """Propose these drafts, one a step, in every conversation; nothing once they are used up.

        They are cut to the budget; the pattern and the texts are not looked at.
        """
        self._drafts = list(drafts)

    def load(self, context: LoadContext) -> None:
        """See :meth:`Drafter.load`."""
        self._vocab_size = int(context.info.vocab_size)

    def skip(self, facts: CellFacts) -> str | None:
        """A tree of samples cannot be scored against a trace."""
        is_sampled = self.options.confidence is not None and not facts.is_greedy
        if is_sampled and self.options.num_wrong_siblings > 0 and facts.mode == "replay":
            return "a tree of sampled tokens can be scored live only"
        return None

    def reset(self) -> None:
        """See :meth:`Drafter.reset`."""
        self._observed = array("i")
        self._step = 0
        self._has_drafted = False

    def observe(self, tokens: Tensor, features: Features) -> None:
        """See :meth:`Drafter.observe`."""
        # A step ends when tokens arrive after a draft, in however many chunks.
        self._step += self._has_drafted
        self._has_drafted = False
        self._observed.extend(tokens.tolist())

    def draft(self, last_token: int, budget: int, sampler: Sampler, along: Tensor | None = None) -> Draft:
        """See :meth:`Drafter.draft`."""
        self._has_drafted = True
        if self._drafts is not None:
            return _cut(next(iter(self._drafts[self._step :]), Draft.empty()), budget)
        draft = _cut(self._scripted(last_token), budget)
        if self.options.confidence is None or sampler.is_greedy:
            return draft
        return self._unsure(draft, self.options.confidence, sampler, along)

    def memory(self) -> list[Held]:
        """See :meth:`Drafter.memory`."""
        return [Held("buffer", num_bytes=sys.getsizeof(self._observed))]

    def _scripted(self, last_token: int) -> Draft:
        """Right tokens, each after its wrong siblings, then a wrong tail."""
        future = self._future(last_token)
        num_right = min(self._pattern[self._step % len(self._pattern)], len(future))
        tokens: list[int] = []
        parents: list[int] = []

        def propose(siblings: list[int]) -> None:
            parent = len(tokens) - 1
            tokens.extend(siblings)
            parents.extend([parent] * len(siblings))

        for right in future[:num_right]:
            propose([*self._wrong(right, self.options.num_wrong_siblings), right])
        expected = chain(future[num_right:], repeat(None))
        for right_instead in islice(expected, self.options.num_wrong_tokens):
            propose(self._wrong(right_instead, 1))
        if self.options.num_wrong_siblings == 0:
            return Draft.chain(tokens)
        return Draft(_ids(tokens), _ids(parents))

    def _future(self, last_token: int) -> list[int]:
        """What follows in the text that begins with the conversation, [] if none does."""
        known = [*self._observed, last_token]
        for text in self._texts:
            if text[: len(known)] == known:
                return text[len(known) :]
        return []

    def _wrong(self, right: int | None, how_many: int) -> list[int]:
        candidates = count(self.options.wrong_token)
        return list(islice((token for token in candidates if token != right), how_many))

    def _unsure(self, draft: Draft, confidence: float, sampler: Sampler, along: Tensor | None) -> Draft:
        """Tokens drawn around the script, or those to score, with what they are drawn from."""
        if self._vocab_size is None:
            raise DrafterError("Drafter 'scripted': confidence needs load() before draft().")
        num_tokens = len(draft) if along is None else min(len(draft), len(along))
        others = (1.0 - confidence) / (self._vocab_size - 1)
        rows = torch.full((num_tokens, self._vocab_size), others, dtype=torch.float64)
        rows.scatter_(1, draft.tokens[:num_tokens, None], confidence)
        if along is not None:
            return Draft(along[:num_tokens], None, rows)
        return Draft(_ids([sampler.draw(row) for row in rows]), draft.parents, rows)


def _cut(draft: Draft, budget: int) -> Draft:
    """The first tokens of a draft; parents come first, so they are a draft too."""
    return Draft(
        draft.tokens[:budget],
        None if draft.parents is None else draft.parents[:budget],
        None if draft.probabilities is None else draft.probabilities[:budget],
    )


def _ids(values: list[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)
