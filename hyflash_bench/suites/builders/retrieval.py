"""Invented facts hidden in natural text, at exact prompt lengths, with scored answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import Field, model_validator

from hyflash_bench.spec.base import Spec
from hyflash_bench.suites.builders.base import Builder, conversation
from hyflash_bench.suites.chat import ChatTokenizer
from hyflash_bench.suites.conversation import Conversation, Item, UserTurn
from hyflash_bench.suites.cutting import (
    MAX_CHARS_PER_TOKEN,
    Frame,
    cut_exactly,
    excerpt,
    phrasings,
    split_sentences,
)
from hyflash_bench.suites.puzzles import PUZZLES, Puzzle
from hyflash_bench.suites.texts import Document, joined

__all__ = ["Retrieval"]

NUM_ANCHORS = 8


class RetrievalOptions(Spec):
    """Options of the builder ``retrieval``."""

    source: str = Field(description="Where the haystacks come from, unless one says otherwise.")
    contexts: tuple[Annotated[int, Field(ge=512)], ...] = Field(min_length=1)
    kinds: tuple[str, ...] = Field(tuple(PUZZLES), min_length=1)
    items_per_kind: int = Field(8, ge=1, description="Conversations per kind and context length.")
    seed: int = 0
    neighbours: tuple[str, ...] = Field((), description="Files (patterns) in reading order.")
    prompt: str = Field(description="Wording with {text} and {question}.")
    haystacks: tuple[Document, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        unknown = [kind for kind in self.kinds if kind not in PUZZLES]
        if unknown:
            raise ValueError(f"no kind {unknown[0]!r}; there are {', '.join(PUZZLES)}")
        if self.prompt.count("{text}") != 1 or self.prompt.count("{question}") != 1:
            raise ValueError("the prompt needs {text} and {question} exactly once")
        return self


class Retrieval(Builder[RetrievalOptions]):
    """Hides sentences in a text and asks for what they say."""

    name = "retrieval"
    Options = RetrievalOptions

    def items(self) -> tuple[Item, ...]:
        """Plan the conversations."""
        suite, task = self.context.suite, self.context.task.name
        return tuple(
            Item(
                item_id=f"{suite}/{task}/{kind}/{index + 1}/{context}",
                suite=suite,
                task=task,
                kind=kind,
                category=self._puzzle(kind, index).category,
                context_length=context,
                num_turns=1,
                document=self._haystack(index).name(self.options.source),
            )
            for kind in self.options.kinds
            for index in range(self.options.items_per_kind)
            for context in self.options.contexts
            if context <= (self._haystack(index).max_context or context)
        )

    def sources(self, item: Item) -> frozenset[str]:
        """Name the sources of an item."""
        return frozenset({self._haystack(_index(item)).source or self.options.source})

    def build(self, item: Item, chat: ChatTokenizer) -> Conversation:
        """Build one conversation."""
        assert item.context_length is not None
        index = _index(item)
        puzzle = self._puzzle(item.kind, index)
        text = joined(
            self.context.library,
            self._haystack(index),
            "forward",
            enough_chars=item.context_length * MAX_CHARS_PER_TOKEN,
        )
        pieces = split_sentences(text.text)
        cut = cut_exactly(
            chat,
            item.context_length,
            pieces,
            _frames(self.options.prompt, puzzle),
            anchors=range(min(NUM_ANCHORS, len(pieces))),
            grow="forward",
            where=item.item_id,
        )
        used = text.describe(self.context.library, pieces, cut.first, cut.last)
        return conversation(item, [UserTurn(cut.text, puzzle.expected)], sources=used)

    def _puzzle(self, kind: str, index: int) -> Puzzle:
        return PUZZLES[kind](self.options.seed, index, self.options.items_per_kind)

    def _haystack(self, index: int) -> Document:
        document = self.options.haystacks[index % len(self.options.haystacks)]
        changes = {
            "source": document.source or self.options.source,
            "neighbours": document.neighbours or self.options.neighbours,
        }
        return document.model_copy(update=changes)


def _index(item: Item) -> int:
    return int(item.item_id.split("/")[-2]) - 1


def _frames(prompt: str, puzzle: Puzzle) -> list[Frame]:
    def framed(wording: str) -> Frame:
        before, after = wording.replace("{question}", puzzle.question).split("{text}")
        return lambda pieces: before + excerpt(_hide(pieces, puzzle)) + after

    return [framed(wording) for wording in phrasings(prompt.strip())]


def _hide(pieces: Sequence[str], puzzle: Puzzle) -> list[str]:
    """Put each hidden sentence between two pieces, near its depth."""
    places = _open_places(pieces)
    added: dict[int, list[str]] = {}
    for depth, sentence in puzzle.hidden:
        wanted = depth * len(pieces)
        place = min(places, key=lambda open_place: abs(open_place - wanted))
        added.setdefault(place, []).append(sentence)
    result = []
    for index, piece in enumerate(pieces):
        space = piece[: len(piece) - len(piece.lstrip())]
        result += [space + sentence for sentence in added.get(index, [])]
        result.append(piece)
    return result + ["\n\n" + sentence for sentence in added.get(len(pieces), [])]


def _open_places(pieces: Sequence[str]) -> list[int]:
    """Indexes before which a sentence can stand: not within an indented block, nor at the top."""
    inside = [index for index in range(1, len(pieces)) if _is_open(pieces[index])]
    return [*inside, len(pieces)]


def _is_open(piece: str) -> bool:
    space = piece[: len(piece) - len(piece.lstrip())]
    return space.strip(" ") == "" or space.endswith("\n")
