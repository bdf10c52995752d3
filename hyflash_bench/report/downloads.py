"""The data behind a page, inside it: small tables as they are, words that repeat written once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from hyflash_bench.report.text import visible, without_paths

if TYPE_CHECKING:
    import pandas as pd

    from hyflash_bench.report.sections import Numbers

__all__ = ["MEANINGS", "MOST_ROWS", "downloads_of"]

MOST_ROWS: Final = 50_000
DIGITS: Final = 7
"""Digits kept of a measured number; a clock gives no more."""

MEANINGS: Final[Mapping[str, str]] = {
    "headline": "one row per drafter, suite, sampling and memory cap, with intervals",
    "by_context": "the same by context length",
    "cells": "one row per cell, with its status",
    "turns": "one row per turn of every conversation: counts, times, bytes",
}

Json = dict[str, Any]


def downloads_of(numbers: Numbers) -> dict[str, Json]:
    """Tables by name: ``columns`` by name, each as ``values``, or ``words`` with the ``index`` of each row.

    Tables without rows are left out, and so are those of more than :data:`MOST_ROWS`.
    """
    frames = {
        "headline": numbers.headline,
        "by_context": numbers.by_context,
        "cells": numbers.published(numbers.run.cells),
        "turns": numbers.published(numbers.run.turns),
    }
    return {
        name: _columns(frame, numbers.include_host)
        for name, frame in frames.items()
        if 0 < len(frame) <= MOST_ROWS
    }


def _columns(frame: pd.DataFrame, include_host: bool) -> Json:
    return {
        "rows": len(frame),
        "columns": {str(name): _column(frame[name], include_host) for name in frame},
    }


def _column(column: pd.Series[Any], include_host: bool) -> Json:
    import pandas as pd

    codes, distinct = pd.factorize(column, use_na_sentinel=False)
    plain = [_plain(value) for value in distinct.astype("object")]
    # Numbers that differ beyond the digits kept are one word; True and 1 are two.
    places: dict[tuple[type, Any], int] = {}
    place = [places.setdefault((type(value), value), len(places)) for value in plain]
    words = [word for _, word in places]
    if len(words) > max(1, len(column) // 3) and not any(isinstance(word, str) for word in words):
        return {"values": [plain[code] for code in codes]}
    shown = [_published(word, include_host) for word in words]
    return {"words": shown} if len(words) == 1 else {"words": shown, "index": [place[code] for code in codes]}


def _plain(value: Any) -> Any:
    """A value that JSON has: no NaN, no numpy."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, str):
        return value
    if type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    number = float(value)
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() and abs(number) < 2**53 else float(f"{number:.{DIGITS}g}")


def _published(word: Any, include_host: bool) -> Any:
    if not isinstance(word, str):
        return word
    return visible(word if include_host else without_paths(word))
