"""Completing the next function of a Python file, at exact prompt lengths.

The prompt ends with the signature of a named function; more context means more of the file, and
of the files before it, ahead of that signature.
"""

from __future__ import annotations

import ast
from typing import Annotated

from pydantic import Field, field_validator

from hyflash_bench.errors import DataError
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
    split_lines,
)
from hyflash_bench.suites.texts import Document, joined, locate

__all__ = ["Code"]


class Program(Document):
    """A Python file and the function whose body is asked for."""

    complete: str = Field(min_length=1, description="function or Class.method")


class CodeOptions(Spec):
    """Options of the builder ``code``."""

    source: str = Field(description="Where the files come from, unless one says otherwise.")
    contexts: tuple[Annotated[int, Field(ge=64)], ...] = Field(min_length=1)
    neighbours: tuple[str, ...] = Field((), description="Files (patterns) in reading order.")
    prompt: str = Field(description="Wording with {text}.")
    documents: tuple[Program, ...] = Field(min_length=1)

    @field_validator("prompt")
    @classmethod
    def _has_text(cls, prompt: str) -> str:
        if prompt.count("{text}") != 1:
            raise ValueError("the prompt needs {text} exactly once")
        return prompt

    @field_validator("documents")
    @classmethod
    def _unique(cls, documents: tuple[Program, ...]) -> tuple[Program, ...]:
        ids = [document.id for document in documents]
        twice = sorted({name for name in ids if ids.count(name) > 1})
        if twice:
            raise ValueError(f"document {twice[0]!r} is given twice; rename one")
        return documents


class Code(Builder[CodeOptions]):
    """Builds prompts that end where a function's body is to begin."""

    name = "code"
    Options = CodeOptions

    def items(self) -> tuple[Item, ...]:
        """Plan the conversations."""
        suite, task = self.context.suite, self.context.task.name
        return tuple(
            Item(
                item_id=f"{suite}/{task}/code/{document.id}/{context}",
                suite=suite,
                task=task,
                kind="code",
                category=task,
                context_length=context,
                num_turns=1,
                document=document.name(self.options.source),
            )
            for document in self.options.documents
            for context in self.options.contexts
            if context <= (document.max_context or context)
        )

    def sources(self, item: Item) -> frozenset[str]:
        """Name the sources of an item."""
        return frozenset({self._plan(item).source or self.options.source})

    def build(self, item: Item, chat: ChatTokenizer) -> Conversation:
        """Build one conversation."""
        document = self._plan(item)
        assert item.context_length is not None
        text = joined(
            self.context.library,
            document,
            "backward",
            enough_chars=item.context_length * MAX_CHARS_PER_TOKEN,
            label="# {file}",
        )
        main = text.text[text.main_start : text.main_start + text.main_length]
        body = _body_position(main, document)
        pieces = split_lines(text.text)
        signature_end = locate(pieces, text.main_start + body)
        cut = cut_exactly(
            chat,
            item.context_length,
            pieces,
            _frames(self.options.prompt),
            anchors=[signature_end],
            grow="backward",
            where=item.item_id,
        )
        used = text.describe(self.context.library, pieces, cut.first, cut.last)
        return conversation(item, [UserTurn(cut.text)], sources=used)

    def _plan(self, item: Item) -> Program:
        name = item.item_id.split("/")[-2]
        document = next(d for d in self.options.documents if d.id == name)
        changes = {
            "source": document.source or self.options.source,
            "neighbours": document.neighbours or self.options.neighbours,
        }
        return document.model_copy(update=changes)


def _frames(prompt: str) -> list[Frame]:
    def framed(wording: str) -> Frame:
        before, after = wording.split("{text}")
        return lambda pieces: before + excerpt(pieces) + after

    return [framed(wording) for wording in phrasings(prompt.strip())]


def _body_position(text: str, document: Program) -> int:
    """Where the first statement of the function begins, in characters."""
    try:
        scope: ast.AST = ast.parse(text)
    except SyntaxError as error:
        raise DataError(
            f"Document {document.id!r}: {document.file} is not valid Python "
            f"(line {error.lineno}: {error.msg})."
        ) from None
    for name in document.complete.split("."):
        found = [node for node in ast.iter_child_nodes(scope) if getattr(node, "name", "") == name]
        if not found:
            raise DataError(
                f"Document {document.id!r}: {document.file} has no {document.complete!r}. "
                "Name a function, or a method as Class.method."
            )
        scope = found[-1]
    if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
        raise DataError(f"Document {document.id!r}: {document.complete!r} is not a function.")
    first = scope.body[0]
    lines = text.splitlines(keepends=True)
    before_line = sum(map(len, lines[: first.lineno - 1]))
    return before_line + len(lines[first.lineno - 1]) - len(lines[first.lineno - 1].lstrip())
