"""Features of some documents on disk: rows one after the other, and a flag for each that is there."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hyflash_bench.atomic import write_error, write_text
from hyflash_bench.errors import DataError

__all__ = [
    "BYTES_PER_NUMBER",
    "FLAGS_FILE",
    "ROWS_FILE",
    "FeatureFile",
    "append_rows",
    "describe",
    "is_whole",
]

ROWS_FILE, FLAGS_FILE, _ABOUT_FILE = "rows.bf16", "done.u8", "features.json"
BYTES_PER_NUMBER = 2
"""Of bfloat16."""


class FeatureFile:
    """Rows of consecutive documents, bfloat16; sparse until it is filled.

    Documents are written in any order, and marked as done when their rows are on disk. Several
    processes may write to it; nothing is held open between two calls.

    Args:
        folder: Made with the first rows, if missing.
        lengths: Rows of each document.
        width: Numbers of a row.

    Raises:
        DataError: The folder cannot be written, or holds something else.
    """

    def __init__(self, folder: Path, lengths: Sequence[int], width: int) -> None:
        self._folder, self._lengths, self._width = folder, lengths, width
        self._starts = [0, *accumulate(lengths)]
        self._done = np.zeros(len(lengths), np.uint8)
        self._is_begun = False
        if folder.is_dir():
            self._begin()

    def _begin(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._compare()
            _set_size(self._folder / ROWS_FILE, self._starts[-1] * self._width * BYTES_PER_NUMBER)
            _set_size(self._folder / FLAGS_FILE, len(self._lengths))
            self._done = np.fromfile(self._folder / FLAGS_FILE, np.uint8)
        except OSError as error:
            raise write_error(self._folder, error) from error
        self._is_begun = True

    def _compare(self) -> None:
        """Leave word of what the files hold, or see that it is the same."""
        wanted = _described(self._lengths, self._width)
        try:
            stored = json.loads((self._folder / _ABOUT_FILE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            describe(self._folder, self._lengths, self._width)
            return
        except ValueError:
            stored = None
        if stored != wanted:
            raise DataError(
                f"{self._folder / _ABOUT_FILE} does not describe the features of this corpus and target: it "
                f"says {stored}, not {wanted}. Remove the folder {self._folder}; they are computed anew."
            )

    def is_done(self, place: int) -> bool:
        """Whether a document's rows are there; another process may have written them meanwhile."""
        if not self._is_begun and self._folder.is_dir():
            self._begin()
        if not self._done[place] and self._is_begun:
            self._done[place] = np.fromfile(self._folder / FLAGS_FILE, np.uint8, 1, offset=place)[0]
        return bool(self._done[place])

    @property
    def num_done(self) -> int:
        """Rows of the documents that are there."""
        return sum(length for length, flag in zip(self._lengths, self._done, strict=True) if flag)

    def read(self, place: int, stop: int | None = None) -> Tensor:
        """Rows of a document that is there, from its first on.

        Args:
            place: The document.
            stop: How many rows; all by default.

        Returns:
            ``[n, width]`` bfloat16.
        """
        count = self._lengths[place] if stop is None else min(stop, self._lengths[place])
        at = self._starts[place] * self._width * BYTES_PER_NUMBER
        flat = np.fromfile(self._folder / ROWS_FILE, np.int16, count * self._width, offset=at)
        return torch.from_numpy(flat).view(torch.bfloat16).view(count, self._width)

    def write(self, place: int, rows: Tensor) -> None:
        """Store the rows of a document, ``[n, width]``.

        Raises:
            DataError: The disk is full; what was written before stays.
        """
        if not self._is_begun:
            self._begin()
        at = self._starts[place] * self._width * BYTES_PER_NUMBER
        try:
            _write_through(self._folder / ROWS_FILE, _raw(rows), at)
            # Only now: a flag that outlives its rows would hold zeros to be the features.
            _write_through(self._folder / FLAGS_FILE, memoryview(b"\x01"), place)
        except OSError as error:
            raise write_error(self._folder, error) from error
        self._done[place] = 1


def is_whole(folder: Path) -> bool:
    """Whether the rows of all documents are there."""
    flags = folder / FLAGS_FILE
    return flags.is_file() and bool(np.fromfile(flags, np.uint8).all())


def append_rows(file: int, rows: Tensor) -> None:
    """Write the rows ``[n, width]`` of one more document at the end of an open file."""
    _write_all(file, _raw(rows), os.lseek(file, 0, os.SEEK_END))


def describe(folder: Path, lengths: Sequence[int], width: int) -> None:
    """Leave word of what the files of a folder hold."""
    write_text(folder / _ABOUT_FILE, json.dumps(_described(lengths, width), indent=2) + "\n")


def _described(lengths: Sequence[int], width: int) -> dict[str, int]:
    return {"num_documents": len(lengths), "num_rows": sum(lengths), "width": width}


def _raw(rows: Tensor) -> memoryview:
    return rows.to("cpu", torch.bfloat16).contiguous().view(torch.int16).numpy().data.cast("B")


def _set_size(path: Path, num_bytes: int) -> None:
    with path.open("ab") as file:
        file.truncate(num_bytes)


def _write_through(path: Path, raw: memoryview, at: int) -> None:
    """Write into a file and wait until it is on disk."""
    file = os.open(path, os.O_WRONLY)
    try:
        _write_all(file, raw, at)
        os.fsync(file)
    finally:
        os.close(file)


def _write_all(file: int, raw: memoryview, at: int) -> None:
    while raw:
        written = os.pwrite(file, raw, at)
        raw, at = raw[written:], at + written
