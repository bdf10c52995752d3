"""Formats by name."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from hyflash_bench.errors import UnknownName
from hyflash_bench.suites.formats import chats, documents, questions, tasks
from hyflash_bench.suites.formats.base import Format

__all__ = ["FORMATS", "format_named"]

_ALL = (*questions.FORMATS, *chats.FORMATS, *documents.FORMATS, *tasks.FORMATS)

FORMATS: Final = MappingProxyType({each.name: each for each in _ALL})


def format_named(name: str, hint: str = "") -> Format:
    """A format.

    Raises:
        UnknownName: There is none of that name.
    """
    if name not in FORMATS:
        raise UnknownName("format", name, FORMATS, hint)
    return FORMATS[name]
