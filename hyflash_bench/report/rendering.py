"""Templates, and JSON that may stand inside a page; shared by everything that becomes HTML."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hyflash_bench.report.text import shortened, visible, without_paths

__all__ = ["environment", "script_json", "source"]

_FOLDER: Final = PackageLoader("hyflash_bench.report")


def environment(*, include_host: bool = False) -> Environment:
    """Templates in which every text is escaped, control characters are seen, and no path is told.

    Args:
        include_host: Let absolute paths stand as they are.
    """
    finalize = partial(_shown, include_host=include_host)
    made = Environment(
        loader=_FOLDER,
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["short"] = shortened
    return made


def source(name: str) -> Markup:
    """A style sheet or script of ours, to stand in a page as it is."""
    text = _FOLDER.get_source(environment(), name)[0]
    return Markup(text)  # noqa: S704 - our own file


def script_json(value: Any) -> Markup:
    """JSON without NaN that no text inside can break out of a script element with."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for sign in ("<", ">", "&", "\u2028", "\u2029"):
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    # Half a surrogate pair has no UTF-8; spelt out, it is JSON again.
    whole = text.encode("utf-8", "backslashreplace").decode()
    return Markup(whole)  # noqa: S704 - nothing in it can end the element


def _shown(value: object, *, include_host: bool) -> object:
    """What a template puts in, unless it is markup of ours."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return visible(value if include_host else without_paths(value))
