"""The target's features of a corpus: computed once, kept on disk, filled where they are asked for."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from hyflash_bench.data import cache_folder
from hyflash_bench.drafters.base import Features, Requires
from hyflash_bench.errors import DataError, UsageError
from hyflash_bench.spec.units import format_bytes
from hyflash_bench.targets.cache import KVCache
from hyflash_bench.targets.info import TargetInfo
from hyflash_bench.targets.target import Target
from hyflash_bench.training.feature_file import BYTES_PER_NUMBER, FeatureFile, is_whole

__all__ = [
    "Documents",
    "FeatureStore",
    "OnDocument",
    "are_kept",
    "bytes_per_token",
    "features_of",
    "features_root",
    "require_room",
    "rows_of",
    "said_now_and_then",
    "shard_folder",
    "spread_taps",
    "wanted_features",
]

_TELL_EVERY_S = 10.0

OnDocument = Callable[[int, int], None]
"""Told how many documents are done, and of how many."""


class Documents(Protocol):
    """What training needs of a corpus."""

    @property
    def hash(self) -> str:
        """Identifies the text."""

    @property
    def shards(self) -> Sequence[tuple[str, int]]:
        """Hash and number of documents of each of its files, in the order of the documents."""

    @property
    def num_documents(self) -> int:
        """How many there are."""

    def document(self, index: int) -> tuple[Tensor, Tensor]:
        """Tokens ``[n]`` int64 and roles ``[n]`` uint8."""

    def split(self, held_out_share: float, seed: int = 0) -> tuple[list[int], list[int]]:
        """Documents to train on and documents held out."""

    def token_counts(self) -> Tensor:
        """``[V]`` int64."""


def spread_taps(num_layers: int) -> tuple[int, ...]:
    """The layers that drafters read by default: three, of 30 they are 9, 19 and 28."""
    return tuple(sorted({num_layers * 3 // 10, num_layers * 19 // 30, max(0, num_layers - 2)}))


class _Layered(Protocol):
    """A target, loaded or on paper."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def num_layers(self) -> int:
        """Decoder layers."""


def wanted_features(target: _Layered, taps: Sequence[int] | None = None) -> Requires:
    """The features that drafters read of a target.

    Args:
        target: What is known of it.
        taps: Its layers, counted from 0; those of :func:`spread_taps` by default.

    Raises:
        UsageError: A layer that it has not got.
    """
    for layer in taps or ():
        if not 0 <= layer < target.num_layers:
            last = target.num_layers - 1
            raise UsageError(f"There is no layer {layer} to tap: {target.name} has layers 0 to {last}.")
    return Requires(tuple(sorted(set(taps or spread_taps(target.num_layers)))), last_hidden=True)


def features_root() -> Path:
    """Where features are kept in the user's cache."""
    return cache_folder() / "features"


def bytes_per_token(requires: Requires, hidden_size: int) -> int:
    """Disk that the features of a token take: taps, and the last hidden state always."""
    return (len(requires.taps) + 1) * hidden_size * BYTES_PER_NUMBER


def require_room(root: Path, num_tokens: int, of_token: int) -> str:
    """Say what features take, or refuse to begin what the disk cannot hold.

    Args:
        root: Where they are to lie.
        num_tokens: Still to come.
        of_token: Bytes of a token, see :func:`bytes_per_token`.

    Raises:
        DataError: Less is free than is needed.
    """
    needed, free = num_tokens * of_token, _free_bytes(root)
    text = (
        f"Features of about {num_tokens:,} tokens take {format_bytes(needed)} of disk, {of_token:,} bytes a "
        f"token; {format_bytes(free)} are free in {root}."
    )
    if needed > free:
        raise DataError(
            f"{text} That is not enough: set HYFLASH_BENCH_CACHE to a larger disk, ask for fewer tokens, or "
            "build without features."
        )
    return text


def _free_bytes(folder: Path) -> int:
    """What is free where a folder is, or will be."""
    return shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free


def shard_folder(root: Path, digest: str, info: TargetInfo, requires: Requires) -> Path:
    """The folder of a shard's features: named after its content, the target, taps and precision."""
    taps = "-".join(map(str, requires.taps)) or "none"
    return root / f"{_stem(digest, info.fingerprint.weights)}-{taps}-{info.dtype}"


def are_kept(digest: str, weights: str, dtype: str, *, whole: bool = False) -> bool:
    """Whether a target has read a shard before.

    Args:
        digest: Of the shard.
        weights: Of the target, its fingerprint.
        dtype: Precision in which it did.
        whole: Whether all documents count, or any.
    """
    folders = features_root().glob(f"{_stem(digest, weights)}-*-{dtype}")
    return any(is_whole(folder) or not whole for folder in folders)


def _stem(digest: str, weights: str) -> str:
    return f"{digest[:16]}-{weights[:16]}"


def rows_of(features: Features, requires: Requires) -> Tensor:
    """Taps and last hidden state side by side, ``[..., width]``."""
    assert features.last_hidden is not None
    return torch.cat([*(features.taps[tap] for tap in requires.taps), features.last_hidden], dim=-1)


def features_of(rows: Tensor, held: Sequence[int], taps: Sequence[int]) -> Features:
    """What :func:`rows_of` put side by side, with some of the taps that are held."""
    *found, last_hidden = torch.tensor_split(rows, len(held) + 1, dim=-1)
    by_tap = dict(zip(held, found, strict=True))
    return Features(taps={tap: by_tap[tap] for tap in taps}, last_hidden=last_hidden)


def said_now_and_then(say: Callable[[str], None]) -> OnDocument:
    """For :meth:`FeatureStore.fill`: says every few seconds, and at the end, how many documents are done."""
    told = time.monotonic()

    def tell(done: int, of: int) -> None:
        nonlocal told
        if done == of or time.monotonic() - told >= _TELL_EVERY_S:
            told = time.monotonic()
            say(f"Features: {done} of {of} documents that had none")

    return tell


class _Shard(NamedTuple):
    """The features of a shard, and the taps among them."""

    file: FeatureFile
    taps: tuple[int, ...]
    num_documents: int


class FeatureStore:
    """Taps and last hidden state of every token, a :class:`FeatureFile` for each shard of the corpus.

    Documents are computed in the order in which they are asked for, whole (or up to the longest
    context of the target); so a training may start at once, a second one finds what the first has
    computed or the building of the corpus has kept, and what a corpus grows by is all that is new.
    Files that hold more taps than are asked for are read too.

    Attributes:
        lengths: Rows of each document.
        requires: The features asked for.
        num_bytes: Disk that the whole takes.
        free_bytes: Disk that is free now.

    Args:
        corpus: The text.
        target: Computes the features.
        requires: Taps; the last hidden state is always held.
        root: Made if missing; :func:`features_root` by default.

    Raises:
        DataError: The folder cannot be written, or holds something else.
    """

    def __init__(
        self, corpus: Documents, target: Target, requires: Requires, root: Path | None = None
    ) -> None:
        self._corpus, self._target, self._root = corpus, target, root or features_root()
        self.requires = Requires(requires.taps, last_hidden=True)
        longest = target.info.max_positions
        self.lengths = [min(len(corpus.document(index)[0]), longest) for index in range(corpus.num_documents)]
        self._cache: KVCache | None = None
        self._shards = list(self._opened())
        self._places = [(shard, place) for shard in self._shards for place in range(shard.num_documents)]

    def _opened(self) -> Iterator[_Shard]:
        first = 0
        for digest, count in self._corpus.shards:
            folder, taps = self._found(digest)
            lengths = self.lengths[first : first + count]
            width = (len(taps) + 1) * self._target.info.hidden_size
            yield _Shard(FeatureFile(folder, lengths, width), taps, count)
            first += count

    def _found(self, digest: str) -> tuple[Path, tuple[int, ...]]:
        """The folder with just these taps, or else one with more of them, or else a new one."""
        info, taps = self._target.info, self.requires.taps
        exact = shard_folder(self._root, digest, info, self.requires)
        if not exact.exists():
            for known in sorted(self._root.glob(f"{_stem(digest, info.fingerprint.weights)}-*-{info.dtype}")):
                held = tuple(int(layer) for layer in known.name.split("-")[2:-1] if layer.isdecimal())
                if set(taps) <= set(held):
                    return known, held
        return exact, taps

    @property
    def num_rows(self) -> int:
        """Tokens of all documents."""
        return sum(self.lengths)

    @property
    def num_bytes(self) -> int:
        """See the class."""
        return self.num_rows * bytes_per_token(self.requires, self._target.info.hidden_size)

    @property
    def free_bytes(self) -> int:
        """See the class."""
        return _free_bytes(self._root)

    @property
    def done_share(self) -> float:
        """Share of all rows that are on disk."""
        return sum(shard.file.num_done for shard in self._shards) / max(1, self.num_rows)

    def describe(self) -> str:
        """Disk needed and free, for people."""
        missing = round(self.num_bytes * (1 - self.done_share))
        text = (
            f"Features take {format_bytes(self.num_bytes)} of disk, {format_bytes(missing)} of it still to "
            f"be computed; {format_bytes(self.free_bytes)} are free in {self._root}."
        )
        is_enough = missing < self.free_bytes
        return text if is_enough else f"{text} That is not enough: set HYFLASH_BENCH_CACHE to a larger disk."

    def fill(self, documents: Sequence[int], on_document: OnDocument = lambda done, of: None) -> None:
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

    def fill_all(self, say: Callable[[str], None]) -> None:
        """Compute what is missing of all documents, and say now and then how far it is.

        Raises:
            DataError: As :meth:`fill`.
        """
        self.fill(range(len(self.lengths)), said_now_and_then(say))

    def rows(self, index: int, stop: int | None = None) -> Features:
        """Features of the first rows of a document, bfloat16 on the CPU; computed if missing.

        Args:
            index: The document.
            stop: How many rows; all by default.
        """
        if not self._is_done(index):
            self._compute(index)
        shard, place = self._places[index]
        return features_of(shard.file.read(place, stop), shard.taps, self.requires.taps)

    def _is_done(self, index: int) -> bool:
        shard, place = self._places[index]
        return shard.file.is_done(place)

    def _compute(self, index: int) -> None:
        shard, place = self._places[index]
        requires, length = Requires(shard.taps, last_hidden=True), self.lengths[index]
        tokens = self._corpus.document(index)[0][:length]
        features = self._target.prefill(tokens, self._empty_cache(length), requires).features
        shard.file.write(place, rows_of(features, requires))

    def _empty_cache(self, capacity: int) -> KVCache:
        if self._cache is None or self._cache.capacity < capacity:
            self._cache = self._target.new_cache(capacity)
        self._cache.length = 0
        return self._cache
