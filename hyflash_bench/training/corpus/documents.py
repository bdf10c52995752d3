"""Long texts by people, cut into pieces."""

from __future__ import annotations

from collections.abc import Iterator
from math import log

import torch

from hyflash_bench.spec.corpus import DocumentsSpec
from hyflash_bench.suites import ChatTokenizer
from hyflash_bench.suites.sources import Progress
from hyflash_bench.training.corpus.part import Document, OnTokens, Part, rng_of
from hyflash_bench.training.corpus.store import Role
from hyflash_bench.training.corpus.texts import CorpusTexts

__all__ = ["Documents"]

_SHORTEST = 64
"""Tokens below which a piece has no context worth reading."""


class Documents(Part):
    """Files in a drawn order, until they hold what is asked for.

    Args:
        spec: Of the recipe.
        seed: Of the recipe.
        chat: The target's tokenizer.
        texts: Of the recipe.
        max_tokens: Files are taken until they hold so much.
        progress: Told about fetches.
    """

    name = "documents"

    def __init__(
        self,
        spec: DocumentsSpec,
        seed: int,
        chat: ChatTokenizer,
        texts: CorpusTexts,
        max_tokens: int,
        progress: Progress | None = None,
    ) -> None:
        self._spec = spec
        self._chat = chat
        self._texts = texts
        self._files = texts.files(spec.texts, progress)
        rng = rng_of(seed, self.name)
        # Files of a heavier source come earlier: this orders as drawing without replacement would.
        self._files.sort(key=lambda file: log(1.0 - rng.random()) / file.weight, reverse=True)
        self.num_units = len(self._files)
        self.planned_tokens = max_tokens

    def documents(self, unit: int, on_tokens: OnTokens) -> Iterator[Document]:
        """Cut one file."""
        file = self._files[unit]
        tokens = torch.tensor(self._chat.encode(self._texts.read(file)), dtype=torch.int64)
        for piece in torch.split(tokens, self._spec.piece_tokens):
            if len(piece) >= _SHORTEST:
                on_tokens(len(piece))
                yield Document(piece, torch.full_like(piece, Role.NATURAL), file.label)
