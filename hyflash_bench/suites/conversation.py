"""Items of work and the conversations built from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Conversation", "Expected", "Item", "UserTurn"]


@dataclass(frozen=True, slots=True)
class Item:
    """One conversation as planned, before any text is read.

    Attributes:
        item_id: Stable name, unique within the suite: ``longctx/documentation/howto-auth/2048``.
        suite: Name of the suite.
        task: Name of the task within the suite.
        kind: What the model is asked to do: question, summary, continuation, code, needle ...
        category: Finer grouping for tables, may equal the kind.
        context_length: Prompt tokens of the first turn that the builder must hit exactly, or None
            where the suite does not fix a length.
        num_turns: User turns.
        document: Name of the text that it is about, where others of the suite may be about the same; None
            for one of its own.
    """

    item_id: str
    suite: str
    task: str
    kind: str
    category: str
    context_length: int | None
    num_turns: int
    document: str | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """How to score a reply. Scores lie in 0..1.

    Attributes:
        rule: ``contains_all``: share of ``answers`` found in the reply, case folded;
            ``contains_any``: 1 if one of them is;
            ``word_set``: F1 of the words named against ``answers``;
            ``choice``: 1 if the first letter A to D that stands by itself is the answer;
            ``last_number``: 1 if the last number is the answer.
        answers: What is looked for.
    """

    rule: Literal["contains_all", "contains_any", "word_set", "choice", "last_number"]
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UserTurn:
    """What the user says in one turn, and how its reply is scored, if it is."""

    text: str
    expected: Expected | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """A built conversation.

    Attributes:
        item: The plan it was built from.
        turns: User turns in order; the replies between them are the target's own.
        system: System message, or None.
        content_hash: SHA-256 over everything the target will read of it.
        sources: Where the text came from: package, version, file, slice, hash; for the record.
    """

    item: Item
    turns: tuple[UserTurn, ...]
    system: str | None
    content_hash: str
    sources: tuple[str, ...] = field(default=())
