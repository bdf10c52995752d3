"""What a format is: a function from a row to the conversations in it; and how fields are checked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hyflash_bench.suites.conversation import UserTurn

__all__ = ["BadRow", "Entry", "Format", "Row", "name_of"]


class BadRow(Exception):
    """A row that is not what its format says; the message is the reason, without the place."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One conversation of a row.

    Attributes:
        turns: What the user says; replies that the data set has are left out, the target gives its own.
        key: Its name in the data set; None where the data set has none to rely on, so that the line
            stands in.
        part: Its name within the row, where a row holds several.
        category: As the data set groups it; "" for none.
        system: System message.
        document: Name of the text that it is about, see :func:`name_of`; "" for one of its own.
    """

    turns: tuple[UserTurn, ...]
    key: str | None = None
    part: str = ""
    category: str = ""
    system: str | None = None
    document: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """The fields of a row, each checked when it is asked for.

    Attributes:
        fields: As read.
        file: Name of the file without its endings, or what tells it from others; some data sets
            name their tasks there only.
        inside: Where these fields stand within the row, for messages.
    """

    fields: Mapping[str, Any]
    file: str = ""
    inside: str = ""

    def has(self, key: str) -> bool:
        """Whether the field is there and not null."""
        return self.fields.get(key) is not None

    def text(self, key: str, default: str | None = None) -> str:
        """A text, which may be empty; the default where the field is missing or null."""
        if not self.has(key) and default is not None:
            return default
        return self._readable(self._checked(key, str, "a text"), key)

    def filled(self, key: str) -> str:
        """A text with something in it."""
        value = self.text(key)
        if not value.strip():
            raise BadRow(f"{self._at(key)} is empty")
        return value

    def texts(self, key: str) -> list[str]:
        """A list of texts, each with something in it."""
        values = self._checked(key, list, "a list of texts")
        if not values:
            raise BadRow(f"{self._at(key)} is an empty list")
        for number, value in enumerate(values, start=1):
            if not isinstance(value, str):
                raise BadRow(f"{self._at(key)}: number {number} is {_kind(value)}, not a text")
            if not value.strip():
                raise BadRow(f"{self._at(key)}: number {number} is empty")
        return [self._readable(value, key) for value in values]

    def rows(self, key: str) -> list[Row]:
        """A list of objects."""
        values = self._checked(key, list, "a list of objects")
        for number, value in enumerate(values, start=1):
            if not isinstance(value, Mapping):
                raise BadRow(f"{self._at(key)}: number {number} is {_kind(value)}, not an object")
        return [Row(value, self.file, f"{self._at(key)} {n}") for n, value in enumerate(values, start=1)]

    def row(self, key: str) -> Row:
        """An object."""
        return Row(self._checked(key, Mapping, "an object"), self.file, self._at(key))

    def name(self, *keys: str) -> str | None:
        """The first of these fields that is there, a number or a text, as a text."""
        for key in keys:
            if self.has(key):
                value = self.fields[key]
                if isinstance(value, bool) or not isinstance(value, int | str):
                    raise BadRow(f"{self._at(key)} is {_kind(value)}, not a number or a text")
                return self._readable(str(value).strip(), key) or None
        return None

    def _checked(self, key: str, kind: type, wanted: str) -> Any:
        if key not in self.fields:
            known = ", ".join(list(self.fields)[:8]) or "nothing"
            raise BadRow(f"{self._at(key)} is missing; it has {known}")
        value = self.fields[key]
        if not isinstance(value, kind):
            raise BadRow(f"{self._at(key)} is {_kind(value)}, not {wanted}")
        return value

    def _readable(self, text: str, key: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BadRow(
                f"{self._at(key)}: character {error.start + 1} is half of a surrogate pair"
            ) from None
        return text

    def _at(self, key: str) -> str:
        return f"{self.inside}, key {key!r}" if self.inside else f"key {key!r}"


@dataclass(frozen=True, slots=True)
class Format:
    """A format of data sets.

    Attributes:
        name: As suites name it.
        fields: What a row holds, for people.
        read: Makes the conversations of a row; raises :class:`BadRow`.
    """

    name: str
    fields: str
    read: Callable[[Row], Sequence[Entry]]


def name_of(text: str) -> str:
    """The same name for the same text, in whichever row or file it comes."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _kind(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list"}
    return names.get(type(value), "an object")
