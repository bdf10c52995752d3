"""The target's features of a corpus: computed once, kept on disk, filled where they are asked for."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import numpy as np
import torch
from torch import Tensor

from hyflash_bench.atomic import write_error, write_text
from hyflash_bench.data import cache_folder
from hyflash_bench.drafters.base import Features, Requires
from hyflash_bench.errors import DataError
from hyflash_bench.targets.cache import KVCache
from hyflash_bench.targets.target import Target

__all__ = ["Documents", "FeatureStore", "features_folder"]


_GIB = 2**30


class Documents(Protocol):
    """What training needs of a corpus."""

    @property
    def hash(self) -> str:
        """Identifies the text."""

    @property
    def num_documents(self) -> int:
        """How many there are."""

    def document(self, index: int) -> tuple[Tensor, Tensor]:
        """Tokens ``[n]`` int64 and roles ``[n]`` uint8."""

    def split(self, held_out_share: float, seed: int = 0) -> tuple[list[int], list[int]]:
        """Documents to train on and documents held out."""

    def token_counts(self) -> Tensor:
        """``[V]`` int64."""


def features_folder(corpus: Documents, target: Target, requires: Requires) -> Path:
    """Where the features of a corpus are kept in the user's cache."""
    made_by = target.info.fingerprint.weights
    taps = "-".join(map(str, requires.taps)) or "none"
    return cache_folder() / "features" / f"{corpus.hash[:16]}-{made_by[:16]}-{taps}-{target.info.dtype}"


class FeatureStore:
    """Taps and last hidden state of every token, as one flat bfloat16 file that is read by mapping it.

    Documents are computed in the order in which they are asked for, whole (or up to the longest
    context of the target), and marked as done when their rows are written; so a training may start
    at once, and a second one finds what the first has computed. A context manager.

    Attributes:
        lengths: Rows of each document.
        requires: The features held.
        num_bytes: Disk that the whole takes; the file is sparse until it is filled.
        free_bytes: Disk that is free now.

    Args:
        corpus: The text.
        target: Computes the features.
        requires: Taps; the last hidden state is always held.
        folder: Made if missing; see :func:`features_folder`.

    Raises:
        DataError: The folder cannot be written, or holds something else.
    """

    def __init__(self, corpus: Documents, target: Target, requires: Requires, folder: Path) -> None:
        self._corpus, self._target, self._folder = corpus, target, folder
        self.requires = Requires(requires.taps, last_hidden=True)
        longest = target.info.max_positions
        self.lengths = [min(len(corpus.document(index)[0]), longest) for index in range(corpus.num_documents)]
        self._starts = np.concatenate([[0], np.cumsum(self.lengths)])
        self._width = (len(self.requires.taps) + 1) * target.info.hidden_size
        self._cache: KVCache | None = None
        try:
            self._open()
        except OSError as error:
            raise write_error(folder, error) from error

    def _open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        described = {"num_documents": len(self.lengths), "num_rows": self.num_rows, "width": self._width}
        self._compare(described)
        self._rows_file = os.open(self._folder / "rows.bf16", os.O_RDWR | os.O_CREAT, 0o666)
        self._done_file = os.open(self._folder / "done.u8", os.O_RDWR | os.O_CREAT, 0o666)
        os.ftruncate(self._rows_file, self.num_bytes)
        os.ftruncate(self._done_file, len(self.lengths))
        # Writes go through the file, where a full disk is an error; through the map it would be a crash.
        path = self._folder / "rows.bf16"
        self._rows = np.memmap(path, np.int16, "r", shape=(self.num_rows, self._width))
        self._done = np.frombuffer(os.pread(self._done_file, len(self.lengths), 0), np.uint8).copy()

    def _compare(self, described: dict[str, int]) -> None:
        """Leave word of what the files hold, or see that it is the same."""
        about = self._folder / "features.json"
        try:
            stored = json.loads(about.read_text(encoding="utf-8"))
        except FileNotFoundError:
            write_text(about, json.dumps(described, indent=2) + "\n")
            return
        except ValueError:
            stored = None
        if stored != described:
            raise DataError(
                f"{about} does not describe the features of this corpus and target (it says {stored}, "
                f"{described} is wanted). Remove the folder {self._folder}; they are computed anew."
            )

    @property
    def num_rows(self) -> int:
        """Tokens of all documents."""
        return int(self._starts[-1])

    @property
    def num_bytes(self) -> int:
        """See the class."""
        return self.num_rows * self._width * 2

    @property
    def free_bytes(self) -> int:
        """See the class."""
        return shutil.disk_usage(self._folder).free

    @property
    def done_share(self) -> float:
        """Share of all rows that are on disk."""
        done = sum(length for length, flag in zip(self.lengths, self._done, strict=True) if flag)
        return done / max(1, self.num_rows)

    def describe(self) -> str:
        """Disk needed and free, for people."""
        missing = self.num_bytes * (1 - self.done_share)
        text = (
            f"Features take {self.num_bytes / _GIB:.2f} GiB of disk, {missing / _GIB:.2f} GiB of it still "
            f"to be computed; {self.free_bytes / _GIB:.1f} GiB are free in {self._folder}."
        )
        is_enough = missing < self.free_bytes
        return text if is_enough else f"{text} That is not enough: set HYFLASH_BENCH_CACHE to a larger disk."

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._rows_file)
        os.close(self._done_file)

    def fill(
        self, documents: Sequence[int], on_document: Callable[[int, int], None] = lambda done, of: None
    ) -> None:
        """Compute what is missing of some documents.

        Args:
            documents: Their indices.
            on_document: Told how many of the missing ones are done, and how many there are.

        Raises:
            DataError: The disk is full; what was computed before stays.
        """
        missing = [index for index in dict.fromkeys(documents) if not self._is_done(index)]
        for count, index in enumerate(missing, 1):
            self._compute(index)
            on_document(count, len(missing))

    def rows(self, index: int, stop: int | None = None) -> Features:
        """Features of the first rows of a document, bfloat16 on the CPU; computed if missing.

        Args:
            index: The document.
            stop: How many rows; all by default.
        """
        if not self._is_done(index):
            self._compute(index)
        start, end = int(self._starts[index]), int(self._starts[index + 1])
        end = end if stop is None else min(end, start + stop)
        flat = torch.from_numpy(self._rows[start:end].copy()).view(torch.bfloat16)
        *taps, last_hidden = torch.tensor_split(flat, len(self.requires.taps) + 1, dim=1)
        return Features(taps=dict(zip(self.requires.taps, taps, strict=True)), last_hidden=last_hidden)

    def _is_done(self, index: int) -> bool:
        """Whether a document's rows are there; another process may have written them meanwhile."""
        if not self._done[index]:
            self._done[index] = os.pread(self._done_file, 1, index)[0]
        return bool(self._done[index])

    def _compute(self, index: int) -> None:
        length, start = self.lengths[index], int(self._starts[index])
        tokens = self._corpus.document(index)[0][:length]
        features = self._target.prefill(tokens, self._empty_cache(length), self.requires).features
        assert features.last_hidden is not None
        flat = torch.cat([*(features.taps[tap] for tap in self.requires.taps), features.last_hidden], dim=1)
        raw = flat.to("cpu", torch.bfloat16).contiguous().view(torch.int16).numpy().data.cast("B")
        try:
            _write_all(self._rows_file, raw, start * self._width * 2)
            os.fsync(self._rows_file)  # a flag that outlives its rows would hold zeros to be the features
            os.pwrite(self._done_file, b"\x01", index)
        except OSError as error:
            raise write_error(self._folder, error) from error
        self._done[index] = 1

    def _empty_cache(self, capacity: int) -> KVCache:
        if self._cache is None or self._cache.capacity < capacity:
            self._cache = self._target.new_cache(capacity)
        self._cache.length = 0
        return self._cache


def _write_all(file: int, raw: memoryview, at: int) -> None:
    while raw:
        written = os.pwrite(file, raw, at)
        raw, at = raw[written:], at + written
