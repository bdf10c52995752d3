"""Questions, summaries and continuations of long documents, at exact prompt lengths.

One document serves every context length, so that length is the only thing that changes:

* a prompt that grows *forward* begins at a fixed place (the passage that answers its question, or
  the top of the page) and reads on from there;
* a prompt that grows *backward* ends at a fixed place, so that the same text is to be continued
  with more and more of what came before it.

Where a file is too short, its neighbours in reading order follow it, or come before it.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hyflash_bench.errors import DataError
from hyflash_bench.spec.base import Spec
from hyflash_bench.suites.builders.base import Builder, conversation
from hyflash_bench.suites.chat import ChatTokenizer
from hyflash_bench.suites.conversation import Conversation, Expected, Item, UserTurn
from hyflash_bench.suites.cutting import (
    MAX_CHARS_PER_TOKEN,
    Frame,
    Grow,
    cut_exactly,
    excerpt,
    phrasings,
    split_sentences,
)
from hyflash_bench.suites.texts import Document, joined, locate

__all__ = ["Documents"]

ContextLength = Annotated[int, Field(ge=64)]
NUM_ANCHORS = 8


class Question(Spec):
    """A question that a passage of the document answers."""

    ask: str = Field(min_length=1)
    passage: str = Field(min_length=1, description="First words of the passage, exactly as in the file.")
    answers: tuple[str, ...] = Field((), description="What a right reply holds.")


class Kind(Spec):
    """One kind of work."""

    prompt: str = Field(description="Wording with {text}, and {question} if it asks one.")
    grow: Grow = "forward"
    start: Literal["top", "passage"] = Field("top", description="Where forward prompts begin.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.prompt.count("{text}") != 1:
            raise ValueError("the prompt needs {text} exactly once")
        if self.start == "passage" and ("{question}" not in self.prompt or self.grow == "backward"):
            raise ValueError("start: passage goes with {question} in the prompt and grow: forward")
        return self


class QuestionedDocument(Document):
    """A document with what can be asked about it."""

    question: Question | None = None
    end_at: float = Field(0.75, gt=0.0, le=1.0, description="Where backward prompts end in the file.")


class DocumentsOptions(Spec):
    """Options of the builder ``documents``."""

    source: str = Field(description="Where the documents come from, unless one says otherwise.")
    contexts: tuple[ContextLength, ...] = Field(min_length=1)
    category: str | None = Field(None, description="Label in tables; the task's name if null.")
    neighbours: tuple[str, ...] = Field((), description="Files (patterns) in reading order.")
    kinds: dict[str, Kind] = Field(min_length=1)
    documents: tuple[QuestionedDocument, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        ids = [document.id for document in self.documents]
        twice = sorted({name for name in ids if ids.count(name) > 1})
        if twice:
            raise ValueError(f"document {twice[0]!r} is given twice; rename one")
        return self


class Documents(Builder[DocumentsOptions]):
    """Builds prompts around excerpts of documents."""

    name = "documents"
    Options = DocumentsOptions

    def items(self) -> tuple[Item, ...]:
        """Plan the conversations."""
        return tuple(
            self._item(kind, document, context)
            for kind, wanted in self.options.kinds.items()
            for document in self.options.documents
            for context in self.options.contexts
            if context <= (document.max_context or context)
            if document.question or "{question}" not in wanted.prompt
        )

    def sources(self, item: Item) -> frozenset[str]:
        """Name the sources of an item."""
        _, document = self._plan(item)
        return frozenset({document.source or self.options.source})

    def build(self, item: Item, chat: ChatTokenizer) -> Conversation:
        """Build one conversation."""
        kind, document = self._plan(item)
        assert item.context_length is not None
        text = joined(
            self.context.library,
            document,
            kind.grow,
            enough_chars=item.context_length * MAX_CHARS_PER_TOKEN,
        )
        pieces = split_sentences(text.text)
        cut = cut_exactly(
            chat,
            item.context_length,
            pieces,
            _frames(kind, document.question),
            anchors=_anchors(pieces, kind, document, text.main_start, text.main_length),
            grow=kind.grow,
            where=item.item_id,
        )
        used = text.describe(self.context.library, pieces, cut.first, cut.last)
        return conversation(item, [UserTurn(cut.text, _expected(kind, document))], sources=used)

    def _item(self, kind: str, document: Document, context: int) -> Item:
        task = self.context.task.name
        return Item(
            item_id=f"{self.context.suite}/{task}/{kind}/{document.id}/{context}",
            suite=self.context.suite,
            task=task,
            kind=kind,
            category=self.options.category or task,
            context_length=context,
            num_turns=1,
            document=document.name(self.options.source),
        )

    def _plan(self, item: Item) -> tuple[Kind, QuestionedDocument]:
        _, kind, name, _ = item.item_id.rsplit("/", 3)
        document = next(d for d in self.options.documents if d.id == name)
        changes = {
            "source": document.source or self.options.source,
            "neighbours": document.neighbours or self.options.neighbours,
        }
        return self.options.kinds[kind], document.model_copy(update=changes)


def _frames(kind: Kind, question: Question | None) -> list[Frame]:
    asked = question.ask if question else ""

    def framed(wording: str) -> Frame:
        before, after = wording.replace("{question}", asked).split("{text}")
        return lambda pieces: before + excerpt(pieces) + after

    return [framed(wording) for wording in phrasings(kind.prompt.strip())]


def _anchors(
    pieces: list[str], kind: Kind, document: QuestionedDocument, main_start: int, main_length: int
) -> list[int]:
    if kind.grow == "backward":
        end = locate(pieces, main_start + int(main_length * document.end_at)) + 1
        return [min(end + step, len(pieces)) for step in range(NUM_ANCHORS)]
    if kind.start == "top":
        return list(range(min(NUM_ANCHORS, len(pieces))))
    assert document.question is not None
    position = "".join(pieces).find(document.question.passage)
    if position < 0:
        raise DataError(
            f"Document {document.id!r}: the passage {document.question.passage!r} is not in "
            f"{document.file}. Copy its first words exactly."
        )
    start = locate(pieces, position)
    return [start - step for step in range(min(NUM_ANCHORS, start + 1))]


def _expected(kind: Kind, document: QuestionedDocument) -> Expected | None:
    question = document.question
    if question is None or not question.answers or "{question}" not in kind.prompt:
        return None
    return Expected("contains_all", question.answers)
