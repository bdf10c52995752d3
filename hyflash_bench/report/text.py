"""Numbers and names as people read them, the same in the terminal and in the page."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from hyflash_bench.spec.units import format_bytes

__all__ = [
    "NOT_MEASURED",
    "cell_text",
    "duration_text",
    "heading",
    "printable",
    "ratio_text",
    "shortened",
    "visible",
    "without_paths",
]

NOT_MEASURED = "\u2013"

_ABSOLUTE_PATH = re.compile(
    r"""(?<![\w.:/\\~-])(?:~|/|[A-Za-z]:[\\/]|\\\\)[^\s'"<>|,;()\[\]{}]*[\\/](?=[^\s'"<>|,;()\[\]{}]*)"""
)

_COMMANDS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def cell_text(column: str, value: Any) -> str:
    """A value of a frame for people; the column's name carries the unit.

    Args:
        column: Name of the column, for example ``peak_bytes`` or ``decode_tok_per_s``.
        value: What stands there; None and NaN are "not measured".
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={cell_text(str(key), item)}" for key, item in value.items())
    if isinstance(value, Sequence):
        return ", ".join(cell_text(column, item) for item in value)
    return _scalar_text(column, value)


def duration_text(seconds: float | None) -> str:
    """A duration for people: ``45 s``, ``12 min``, ``3 h 20 min``."""
    if seconds is None:
        return NOT_MEASURED
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def heading(column: str) -> str:
    """A column's name as a table heading: ``decode_tok_per_s`` -> ``decode tok/s``."""
    words = column.removeprefix("num_").replace("tok_per_s", "tok/s").replace("_", " ")
    return re.sub(r" s$", " (s)", words)


def ratio_text(value: float | None) -> str:
    """A ratio: three decimals near one, three digits far from it, since what is told apart lies close."""
    if value is None or math.isnan(value):
        return NOT_MEASURED
    return f"{value:.3f}" if 0.1 <= value < 100 else f"{value:.3g}"


def printable(text: str) -> str:
    """The text with what could command a terminal spelt out: control characters and bidi marks."""
    return _COMMANDS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def shortened(text: str, length: int = 600) -> str:
    """The text, or its beginning with how long it was."""
    return (
        text if len(text) <= length else f"{text[:length]}\N{HORIZONTAL ELLIPSIS} ({len(text):,} characters)"
    )


def visible(text: str) -> str:
    """The text with a sign for each control character and bidi mark: a page must not hide what it holds.

    ``ESC`` becomes ``\u241b``; what has no sign of its own is spelt out.
    """
    return _COMMANDS.sub(lambda found: _sign(found[0]), text)


def without_paths(text: str) -> str:
    """The text with the folders of absolute paths left out: they name people and machines."""
    return _ABSOLUTE_PATH.sub(".../", text)


def _sign(command: str) -> str:
    """Unicode's control pictures stand in the order of the control characters."""
    code = ord(command)
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else command.encode("unicode_escape").decode()


def _is_missing(value: Any) -> bool:
    # pandas' NA and NaT are unequal to themselves too, or answer NA, which has no truth value.
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, Real) and math.isnan(float(value))


def _scalar_text(column: str, value: Any) -> str:
    if _is_missing(value):
        return NOT_MEASURED
    if type(value).__name__ in ("bool", "bool_"):  # numpy's own is no subclass of Python's
        return "yes" if value else "no"
    if not isinstance(value, Real):
        return str(value)
    return _number_text(column, float(value), whole=isinstance(value, Integral))


def _number_text(column: str, value: float, *, whole: bool) -> str:
    if column.endswith("_bytes"):
        return format_bytes(value)
    if column.endswith("tok_per_s"):
        return f"{value:,.1f}"
    if column.endswith("_share"):
        return f"{value:.3f}"
    if column.endswith("_s"):
        return f"{value:.3g}" if value >= 1e-3 or value == 0 else f"{value:.6f}"
    if whole or (column.startswith("num_") and value.is_integer()):
        return f"{int(value):,}"
    return f"{value:,.2f}" if abs(value) >= 0.01 or value == 0 else f"{value:.2g}"
