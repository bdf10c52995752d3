"""Question files: MT-Bench, Spec-Bench, EAGLE, DeepSpec, Arena-Hard, SPEED-Bench. One row, one conversation.

References are not read: they are texts, lists or lists of lists, and judged by models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hyflash_bench.suites.conversation import UserTurn
from hyflash_bench.suites.formats.base import BadRow, Entry, Format, Row
from hyflash_bench.suites.formats.chats import spoken

__all__ = ["FORMATS"]

_PLACEHOLDER = "full benchmark data should be fetched"


def _question(row: Row) -> Sequence[Entry]:
    """``turns`` (or ``prompt``, as on the hub) with an id and a category, if there are any."""
    turns = _turns(row)
    if any(turn.lstrip().casefold().startswith(_PLACEHOLDER) for turn in turns):
        raise BadRow("a placeholder stands where the question should be; fetch the full data set first")
    return [_entry(row, tuple(UserTurn(turn) for turn in turns), row.text("system_prompt", "") or None)]


def _turns(row: Row) -> list[str]:
    """A list of texts; in Arena-Hard, of objects with a content, or later one text."""
    key = "turns" if row.has("turns") or not row.has("prompt") else "prompt"
    value = row.fields.get(key)
    if key == "prompt" and isinstance(value, str):
        return [row.filled(key)]
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return [turn.filled("content") for turn in row.rows(key)]
    return row.texts(key)


def _speed_bench(row: Row) -> Sequence[Entry]:
    """As questions, or with the whole conversation under ``messages``."""
    if row.has("turns") or not row.has("messages"):
        return _question(row)
    system, turns = spoken(row.rows("messages"), "role", "content")
    _question(Row({"turns": [turn.text for turn in turns]}))  # refuses placeholders
    return [_entry(row, turns, system)]


def _entry(row: Row, turns: tuple[UserTurn, ...], system: str | None) -> Entry:
    key = row.name("question_id", "prompt_id", "uid")
    return Entry(turns, key, category=row.text("category", "").strip(), system=system)


FORMATS = (
    Format("questions", "turns (or prompt), question_id?, category?, reference?", _question),
    Format("speed-bench", "question_id, category, turns or messages", _speed_bench),
)
