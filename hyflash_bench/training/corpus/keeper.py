"""Keeps what the target computes while it writes, so that training need not have it read all again."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from hyflash_bench.atomic import write_error
from hyflash_bench.drafters.base import Requires
from hyflash_bench.targets.info import TargetInfo
from hyflash_bench.training.corpus.part import Document
from hyflash_bench.training.feature_file import FLAGS_FILE, ROWS_FILE, append_rows, describe
from hyflash_bench.training.features import bytes_per_token, features_root, require_room, shard_folder

__all__ = ["FeatureKeeper"]


class FeatureKeeper:
    """Features of the documents that wait for their shard; a context manager.

    They are written to disk as they come, and take the name of the shard once it has one: just before
    the manifest names it. What a kill leaves behind belongs to no shard and is begun anew.

    Args:
        corpus: Folder of the corpus, of which one process at a time writes.
        info: The target.
        requires: Taps; the last hidden state is always held.

    Raises:
        DataError: The disk is full or cannot be written.
    """

    def __init__(self, corpus: Path, info: TargetInfo, requires: Requires) -> None:
        self.requires = Requires(requires.taps, last_hidden=True)
        self._info, self._root = info, features_root()
        name = hashlib.sha256(str(corpus.resolve()).encode()).hexdigest()[:16]
        self._folder = self._root / f".{name}"
        self._begin()

    def _begin(self) -> None:
        self._lengths: list[int] = []
        self._flags: list[bool] = []

    def require_room(self, num_tokens: int) -> str:
        """Say what the features of so many tokens take, or refuse what the disk cannot hold.

        Raises:
            DataError: They do not fit.
        """
        return require_room(self._root, num_tokens, bytes_per_token(self.requires, self._info.hidden_size))

    def __enter__(self) -> Self:
        self._remove()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._begin()

    def add(self, document: Document) -> None:
        """Keep what a document brings along; room is left where it brings nothing.

        Raises:
            DataError: The disk is full; finished shards stay.
        """
        length = min(len(document.tokens), self._info.max_positions)
        num_bytes = length * bytes_per_token(self.requires, self._info.hidden_size)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with (self._folder / ROWS_FILE).open("ab") as file:
                if document.features is None:
                    file.truncate(file.tell() + num_bytes)
                else:
                    append_rows(file.fileno(), document.features)
        except OSError as error:
            raise write_error(self._folder, error) from error
        self._lengths.append(length)
        self._flags.append(document.features is not None)

    def finish_shard(self, digest: str) -> None:
        """Give what was kept to the shard that its documents were written to.

        Raises:
            DataError: As :meth:`add`.
        """
        if any(self._flags):
            width = bytes_per_token(self.requires, self._info.hidden_size) // 2
            folder = shard_folder(self._root, digest, self._info, self.requires)
            try:
                with (self._folder / ROWS_FILE).open("ab") as file:
                    os.fsync(file.fileno())
                np.array(self._flags, np.uint8).tofile(self._folder / FLAGS_FILE)
                describe(self._folder, self._lengths, width)
                shutil.rmtree(folder, ignore_errors=True)
                self._folder.replace(folder)
            except OSError as error:
                raise write_error(folder, error) from error
        self._remove()
