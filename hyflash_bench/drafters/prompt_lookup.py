"""Prompt lookup: copy what followed an earlier occurrence of the last tokens.

After Saxena, "Prompt Lookup Decoding" (2023), where the text is scanned at every step. Here an
index from n-gram to the place after it is kept while tokens arrive, so a step costs the same
at any context length; it is paid for in bytes, which :meth:`PromptLookup.memory` counts.
"""

from __future__ import annotations

import sys
from array import array
from typing import Literal, Self

from pydantic import Field, model_validator
from torch import Tensor

from hyflash_bench.drafters.base import Draft, Drafter, DrafterOptions, Features, Held, MemoryKind
from hyflash_bench.drafters.recent import RecentText, widest
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.spec.base import MAX_COUNT

__all__ = ["PromptLookup"]

TOKEN_BITS = 21  # two million token ids, beyond any vocabulary in use


class PromptLookup(Drafter):
    """Copies the continuation of an earlier occurrence of the last n tokens, longest n first."""

    name = "prompt-lookup"

    class Options(DrafterOptions):
        """What may be set."""

        max_ngram: int = Field(3, ge=1, le=16, description="Most tokens that must agree.")
        min_ngram: int = Field(1, ge=1, le=16, description="Fewest tokens that must agree.")
        num_draft_tokens: int = Field(10, ge=1, le=MAX_COUNT, description="Most tokens to propose in a step.")
        match: Literal["latest", "first"] = Field(
            "latest", description="Which of several earlier occurrences is continued."
        )

        window: int = Field(
            0,
            ge=0,
            le=MAX_COUNT,
            description="Keep and look through so many of the last tokens only, without an index; 0 for all.",
        )

        @model_validator(mode="after")
        def _ordered(self) -> Self:
            if self.min_ngram > self.max_ngram:
                raise ValueError(f"min_ngram {self.min_ngram} is above max_ngram {self.max_ngram}; lower it")
            return self

    options: Options

    def __init__(self, options: DrafterOptions | None = None) -> None:
        super().__init__(options)
        self.reset()

    def reset(self) -> None:
        """See :meth:`Drafter.reset`."""
        self._tokens = array("i")
        sizes = range(self.options.max_ngram, self.options.min_ngram - 1, -1)
        keep_first = self.options.match == "first"
        self._indexes = [_NgramIndex(size, keep_first) for size in sizes]
        self._recent = RecentText(self.options.window)

    def observe(self, tokens: Tensor, features: Features) -> None:
        """See :meth:`Drafter.observe`."""
        if self.options.window:
            self._recent.extend(tokens)
            return
        arrived: list[int] = tokens.tolist()
        for index in self._indexes:
            index.extend(arrived)
        self._tokens.extend(arrived)

    def draft(self, last_token: int, budget: int, sampler: Sampler, along: Tensor | None = None) -> Draft:
        """See :meth:`Drafter.draft`."""
        start = self._place_after(last_token)
        if start is None:
            return Draft.empty()
        length = min(budget, self.options.num_draft_tokens)
        span = slice(start, start + length)
        copied = self._recent.ids[span].tolist() if self.options.window else self._tokens[span]
        # The text ends with the last token, which is not observed yet.
        return Draft.chain([*copied, last_token][:length])

    def memory(self) -> list[Held]:
        """See :meth:`Drafter.memory`."""
        if self.options.window:
            return self._recent.held()
        num_bytes = sys.getsizeof(self._tokens) + sum(index.num_bytes for index in self._indexes)
        return [Held("buffer", num_bytes=num_bytes)]

    def memory_formula(self, context_length: int) -> dict[MemoryKind, int] | None:
        """See :meth:`Drafter.memory_formula`; there is one with a window only."""
        return self._recent.formula(context_length) if self.options.window else None

    def within(self, num_bytes: int) -> PromptLookup:
        """See :meth:`Drafter.within`."""
        window = widest(num_bytes, self.options.window)
        return PromptLookup(self.options.model_copy(update={"window": window}))

    def _place_after(self, last_token: int) -> int | None:
        """Where the text goes on from the earlier occurrence that is copied from."""
        for index in self._indexes:
            if self.options.window:
                places = self._recent.places_after(last_token, index.size)
                if len(places):
                    return int(places[0 if self.options.match == "first" else -1])
            elif (place := index.place_after(last_token)) is not None:
                return place
        return None


class _NgramIndex:
    """For every n-gram that something followed, the position of what followed.

    An n-gram is one integer, its token ids side by side, so that an entry costs two integers
    and no tuple.
    """

    def __init__(self, size: int, keep_first: bool) -> None:
        self.size = size
        self._keep_first = keep_first
        self._mask = (1 << TOKEN_BITS * size) - 1
        self._last_ngram = 0
        self._length = 0
        self._place_after: dict[int, int] = {}

    def extend(self, tokens: list[int]) -> None:
        places, mask = self._place_after, self._mask
        ngram, position = self._last_ngram, self._length
        for token in tokens:
            if position >= self.size and not (self._keep_first and ngram in places):
                places[ngram] = position
            ngram = (ngram << TOKEN_BITS | token) & mask
            position += 1
        self._last_ngram, self._length = ngram, position

    def place_after(self, last_token: int) -> int | None:
        """Where the n-gram that ends with ``last_token`` is followed by something."""
        if self._length + 1 < self.size:
            return None
        ngram = (self._last_ngram << TOKEN_BITS | last_token) & self._mask
        indexed = self._place_after.get(ngram)
        # The n-gram before the last token is followed by that token: it can only be the same
        # n-gram when one token is repeated, and is then the latest match.
        is_repetition = self._length >= self.size and ngram == self._last_ngram
        if is_repetition and not (self._keep_first and indexed is not None):
            return self._length
        return indexed

    @property
    def num_bytes(self) -> int:
        entry = sys.getsizeof(self._mask) + sys.getsizeof(self._length)
        return sys.getsizeof(self._place_after) + len(self._place_after) * entry
