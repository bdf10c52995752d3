"""Names of others as names of files: safe on every system, in every address, and never the same twice."""

from __future__ import annotations

import hashlib
import re
from typing import Final

__all__ = ["safe_name"]

_UNSAFE = re.compile(r"[^a-z0-9._]+")
_MOST: Final = 60
_HASHED = re.compile(r"(^|-)[0-9a-f]{8}$")
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?")
"""What Windows takes for a device, whatever stands behind the dot."""


def safe_name(text: str) -> str:
    """The text in lower-case letters, digits, dots, dashes and underscores.

    Where something had to go, or the text looks as if something had, a hash of the whole is added, so that
    two texts do not share a name.
    """
    name = _UNSAFE.sub("-", text.lower()).strip("-._")[:_MOST].strip("-._")
    if name and name == text and not (_DEVICES.fullmatch(name) or _HASHED.search(name)):
        return name
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name}-{digest}" if name else digest
