"""Where downloads, converted models, hashes and measurements of the machine are kept."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hyflash_bench.data import cache_folder
from hyflash_bench.errors import DataError

__all__ = ["cache_dir", "read_json", "writable", "write_json"]

logger = logging.getLogger("hyflash_bench.targets")


def cache_dir(*parts: str) -> Path:
    """A folder in the user's cache, made if missing and if the cache can be written.

    Many things go on without the cache, so that only those that need it complain.
    """
    folder = cache_folder().joinpath(*parts)
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Say what to do where a folder of the cache is needed and cannot be written.

    Raises:
        DataError: With the reason.
    """
    try:
        yield
    except OSError as error:
        raise DataError(
            f"The cache folder {folder} cannot be written: {error.strerror or error}. "
            "Set HYFLASH_BENCH_CACHE to a folder that can."
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """The object stored in ``path``; empty when there is none or it is damaged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Store an object; a reader sees the old one or the new one, never half of it.

    A cache that cannot be written costs time, not correctness, so this only logs.
    """
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=path.name, delete=False
        ) as file:
            json.dump(value, file, indent=1, sort_keys=True)
        Path(file.name).replace(path)
    except OSError as error:
        logger.debug("not kept in the cache: %s (%s)", path, error)
