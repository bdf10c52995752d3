"""Names of the tensors in a folder's weight files, without torch and without reading a tensor."""

from __future__ import annotations

import json
import pickletools
import zipfile
import zlib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

__all__ = ["tensor_names"]

_ENDINGS = ("safetensors", "bin", "pt")
"""In the order in which loaders prefer them."""
_MOST_BYTES = 2**24
"""Of a file's directory; no drafter has names enough to fill it."""
_LEGACY_PICKLES = 4
"""Torch's older files begin with a magic number, a version and facts of the machine, then come the names."""


def tensor_names(folder: Path, stem: str = "*") -> frozenset[str]:
    """What weight files say they hold; empty where there are none or none can be read.

    Torch's files are pickles, of which every text is given, the tensors' names among them. Nothing in
    them is run. What is wrong with a file is said by those who read its tensors.

    Args:
        folder: Holds them.
        stem: Only files with this name; ``*`` for any.
    """
    for ending in _ENDINGS:
        if files := sorted(folder.glob(f"{stem}.{ending}")):
            return frozenset(name for path in files for name in _names(path))
    return frozenset()


def _names(path: Path) -> Iterator[str]:
    try:
        if path.suffix == ".safetensors":
            yield from _of_safetensors(path)
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for entry in archive.namelist():
                    if entry.endswith("data.pkl"):
                        yield from _texts(archive.open(entry).read(_MOST_BYTES), 1)
        else:
            with path.open("rb") as file:
                yield from _texts(file.read(_MOST_BYTES), _LEGACY_PICKLES)
    except (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error):
        return  # a RuntimeError is what zipfile has to say of encryption


def _of_safetensors(path: Path) -> list[str]:
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(min(size, _MOST_BYTES)))
    return [name for name in header if name != "__metadata__"] if isinstance(header, dict) else []


def _texts(pickled: bytes, num_pickles: int) -> Iterator[str]:
    stream = BytesIO(pickled)
    for _ in range(num_pickles):
        for _, value, _ in pickletools.genops(stream):
            if isinstance(value, str):
                yield value
