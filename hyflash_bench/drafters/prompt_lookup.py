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

from hyflash_bench.drafters.base import Draft, Drafter, DrafterOptions, Features, Held
from hyflash_bench.drafters.sampler import Sampler

__all__ = ["PromptLookup"]

TOKEN_BITS = 21  # two million token ids, beyond any vocabulary in use


class PromptLookup(Drafter):
    """Copies the continuation of an earlier occurrence of the last n tokens, longest n first."""

    name = "prompt-lookup"

    class Options(DrafterOptions):
        """What may be set."""

        max_ngram: int = Field(3, ge=1, le=16, description="Most tokens that must agree.")
        min_ngram: int = Field(1, ge=1, le=16, description="Fewest tokens that must agree.")
        num_draft_tokens: int = Field(10, ge=1, description="Most tokens to propose in a step.")
        match: Literal["latest", "first"] = Field(
            "latest", description="Which of several earlier occurrences is continued."
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

    def observe(self, tokens: Tensor, features: Features) -> None:
        """See :meth:`Drafter.observe`."""
        arrived: list[int] = tokens.tolist()
        for index in self._indexes:
            index.extend(arrived)
        self._tokens.extend(arrived)

    def draft(self, last_token: int, budget: int, sampler: Sampler, along: Tensor | None = None) -> Draft:
        """See :meth:`Drafter.draft`."""
        length = min(budget, self.options.num_draft_tokens)
        for index in self._indexes:
            start = index.place_after(last_token)
            if start is not None:
                # The text ends with the last token, which is not observed yet.
                copied = [*self._tokens[start : start + length], last_token]
                return Draft.chain(copied[:length])
        return Draft.empty()

    def memory(self) -> list[Held]:
        """See :meth:`Drafter.memory`."""
        num_bytes = sys.getsizeof(self._tokens) + sum(index.num_bytes for index in self._indexes)
        return [Held("buffer", num_bytes=num_bytes)]


class _NgramIndex:
    """For every n-gram that something followed, the position of what followed.

    An n-gram is one integer, its token ids side by side, so that an entry costs two integers
    and no tuple.
    """

    def __init__(self, size: int, keep_first: bool) -> None:
        self._size = size
        self._keep_first = keep_first
        self._mask = (1 << TOKEN_BITS * size) - 1
        self._last_ngram = 0
        self._length = 0
        self._place_after: dict[int, int] = {}

    def extend(self, tokens: list[int]) -> None:
        places, mask = self._place_after, self._mask
        ngram, position = self._last_ngram, self._length
        for token in tokens:
            if position >= self._size and not (self._keep_first and ngram in places):
                places[ngram] = position
            ngram = (ngram << TOKEN_BITS | token) & mask
            position += 1
        self._last_ngram, self._length = ngram, position

    def place_after(self, last_token: int) -> int | None:
        """Where the n-gram that ends with ``last_token`` is followed by something."""
        if self._length + 1 < self._size:
            return None
        ngram = (self._last_ngram << TOKEN_BITS | last_token) & self._mask
        indexed = self._place_after.get(ngram)
        # The n-gram before the last token is followed by that token: it can only be the same
        # n-gram when one token is repeated, and is then the latest match.
        is_repetition = self._length >= self._size and ngram == self._last_ngram
        if is_repetition and not (self._keep_first and indexed is not None):
            return self._length
        return indexed

    @property
    def num_bytes(self) -> int:
        entry = sys.getsizeof(self._mask) + sys.getsizeof(self._length)
        return sys.getsizeof(self._place_after) + len(self._place_after) * entry
