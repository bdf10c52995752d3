"""What the target answers when it is asked about texts by people."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

from hyflash_bench.errors import DataError
from hyflash_bench.spec.corpus import AnswersSpec
from hyflash_bench.suites import ChatTokenizer
from hyflash_bench.suites.cutting import MAX_CHARS_PER_TOKEN
from hyflash_bench.suites.sources import Progress
from hyflash_bench.targets.target import Target
from hyflash_bench.training.corpus.part import Document, OnTokens, Part, rng_of
from hyflash_bench.training.corpus.talk import Talk, grow
from hyflash_bench.training.corpus.template import TurnTokens
from hyflash_bench.training.corpus.texts import CorpusTexts, TextFile

__all__ = ["Answers"]

_TRIES = 200
_PARAGRAPH = re.compile(r"\n[ \t]*\n(?=\S)")


class Answers(Part):
    """Batches of prompts of one length, each an excerpt with something asked about it.

    The excerpt ends where the prompt is full, so all prompts of a batch have the same number of
    tokens and their conversations can grow in step.

    Args:
        spec: Of the recipe.
        seed: Of the recipe.
        target: Answers.
        texts: Of the recipe.
        max_tokens: About what all batches are to give; at least one is made.
        progress: Told about fetches.
    """

    name = "answers"

    def __init__(
        self,
        spec: AnswersSpec,
        seed: int,
        target: Target,
        texts: CorpusTexts,
        max_tokens: int,
        progress: Progress | None = None,
    ) -> None:
        self._spec = spec
        self._seed = seed
        self._target = target
        self._texts = texts
        self._chat = ChatTokenizer(target.tokenizer)
        self._turns = TurnTokens.of(self._chat, target.info.eos_token_ids)
        self._follow_ups = [self._chat.encode(text) for text in spec.talk.follow_ups]
        self._files = texts.files(spec.texts, progress)
        self._weights = [file.weight for file in self._files]
        self.num_units, self.planned_tokens = self._plan(max_tokens)

    def documents(self, unit: int, on_tokens: OnTokens) -> Iterator[Document]:
        """Ask and answer one batch."""
        spec, context = self._spec, self._context(unit)
        groups, talks = [], []
        for row in range(spec.rows):
            rng = rng_of(self._seed, self.name, unit, row)
            file, prompt = self._prompt(context, rng)
            groups.append(file.label)
            talks.append(self._talk(prompt, rng))
        seed = rng_of(self._seed, self.name, unit).getrandbits(63)
        length = context + spec.new_tokens
        grown = grow(self._target, talks, length, spec.talk, seed, on_tokens, self.requires)
        yield from grown.documents(groups)

    def _plan(self, max_tokens: int) -> tuple[int, int]:
        total = 0
        for unit in range(self._spec.batches):
            of_batch = self._spec.rows * (self._context(unit) + self._spec.new_tokens)
            if unit and total + of_batch > max_tokens:
                return unit, total
            total += of_batch
        return self._spec.batches, total

    def _context(self, unit: int) -> int:
        return self._spec.contexts[unit % len(self._spec.contexts)]

    def _talk(self, prompt: list[int], rng: Random) -> Talk:
        return Talk(
            prompt,
            begins_with_reply=True,
            spec=self._spec.talk,
            turns=self._turns,
            follow_ups=self._follow_ups,
            rng=rng,
        )

    def _prompt(self, context: int, rng: Random) -> tuple[TextFile, list[int]]:
        """A prompt of exactly so many tokens, and the file that it quotes."""
        before, after = map(self._chat.encode, rng.choice(self._spec.prompts).split("{text}"))
        room = context - len(self._turns.opening) - len(before) - len(after) - len(self._turns.to_reply)
        for _ in range(_TRIES):
            file = rng.choices(self._files, self._weights)[0]
            excerpt = self._excerpt(self._texts.read(file), room, rng)
            if excerpt is not None:
                return file, [*self._turns.opening, *before, *excerpt, *after, *self._turns.to_reply]
        raise DataError(
            f"The texts under answers: are too short for prompts of {context} tokens. "
            "Name longer files, or set answers: contexts: to shorter lengths."
        )

    def _excerpt(self, text: str, num_tokens: int, rng: Random) -> list[int] | None:
        """So many tokens from the start of a paragraph on, or None if the text is too short."""
        starts = [0, *(found.end() for found in _PARAGRAPH.finditer(text))]
        start = rng.choice(starts[: 1 + len(starts) * 3 // 4])
        tokens = self._chat.encode(text[start : start + num_tokens * MAX_CHARS_PER_TOKEN])
        return tokens[:num_tokens] if num_tokens > 0 and len(tokens) >= num_tokens else None
