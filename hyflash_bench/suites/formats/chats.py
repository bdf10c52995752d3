"""Conversations with replies: ShareGPT, OpenAI's messages, MT-Bench-101.

The replies in the files are left out: the history holds the target's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from hyflash_bench.suites.conversation import UserTurn
from hyflash_bench.suites.formats.base import BadRow, Entry, Format, Row

__all__ = ["FORMATS", "spoken"]

_SPEAKERS = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}


def spoken(messages: Sequence[Row], speaker: str, content: str) -> tuple[str | None, tuple[UserTurn, ...]]:
    """The system message and the user's turns of a conversation.

    What a user says in several messages in a row is one turn. A reply at the beginning or at the end
    answers nothing here and is left out with the others.

    Args:
        messages: The conversation.
        speaker: Field that says who speaks.
        content: Field that says what.
    """
    system: list[str] = []
    turns: list[str] = []
    before = ""
    for message in messages:
        name = message.text(speaker)
        role = _SPEAKERS.get(name.casefold())
        if role is None:
            raise BadRow(f"{message.inside}: speaker {name!r} is none of {', '.join(_SPEAKERS)}")
        if role == "system":
            system.append(_said(message, content))
        elif role == "user":
            said = _said(message, content)
            if before == "user":
                turns[-1] += f"\n\n{said}"
            else:
                turns.append(said)
        before = role if role != "system" else before
    if not turns:
        raise BadRow("the user says nothing in it")
    return "\n\n".join(filter(str.strip, system)) or None, tuple(map(UserTurn, turns))


def _said(message: Row, content: str) -> str:
    """A text, or a list of parts that are all texts."""
    if not isinstance(message.fields.get(content), list):
        return message.filled(content)
    parts = message.rows(content)
    for part in parts:
        if part.text("type", "text") != "text":
            raise BadRow(f"{part.inside}: it is of type {part.text('type')!r}; only text can be used")
    return "\n\n".join(part.filled("text") for part in parts)


def _sharegpt(row: Row) -> Sequence[Entry]:
    """Ids repeat where a long conversation was split, so that the line stands in for them."""
    key = "conversations" if row.has("conversations") or not row.has("conversation") else "conversation"
    system, turns = spoken(row.rows(key), "from", "value")
    return [Entry(turns, system=system)]


def _messages(row: Row) -> Sequence[Entry]:
    """Also as lines of OpenAI's batch interface, which wrap them in a body."""
    body = row.row("body") if row.has("body") else row
    system, turns = spoken(body.rows("messages"), "role", "content")
    return [Entry(turns, row.name("custom_id", "id"), category=row.text("category", ""), system=system)]


def _mt_bench_101(row: Row) -> Sequence[Entry]:
    task = row.filled("task")
    turns = tuple(UserTurn(part.filled("user")) for part in row.rows("history"))
    if not turns:
        raise BadRow("key 'history' is an empty list")
    number = row.name("id")
    return [Entry(turns, None if number is None else f"{task}/{number}", category=task)]


FORMATS = (
    Format("sharegpt", "conversations: list of from and value", _sharegpt),
    Format("messages", "messages: list of role and content", _messages),
    Format("mt-bench-101", "task, id, history: list of user and bot", _mt_bench_101),
)
