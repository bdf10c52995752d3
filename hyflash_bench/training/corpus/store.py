"""A corpus on disk: documents as token ids with a role for each token.

A folder holds ``manifest.json`` and shards ``0000.safetensors``, ``0001.safetensors`` ... of about
131,072 tokens, each with:

* ``tokens [T]`` int32, documents one after the other;
* ``roles [T]`` uint8, see :class:`Role`;
* ``starts [D]`` int64, where each document begins;
* ``origins [D]`` uint8, the part of the recipe it came from, counted as in the manifest;
* ``groups [D]`` int64, equal for documents cut from the same text, which a split keeps together.

Shards appear whole or not at all, and the manifest is rewritten after each: what was finished
before a kill stays, and the builder goes on behind it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from hyflash_bench.atomic import replacing
from hyflash_bench.errors import DataError, RunLocked
from hyflash_bench.suites.download import sha256_of
from hyflash_bench.targets.info import TargetInfo
from hyflash_bench.training.corpus.manifest import MANIFEST_FILE, Manifest, PartCounts

__all__ = ["SCORED_ROLES", "Corpus", "CorpusWriter", "Role"]

SHARD_TOKENS = 131_072
_NAMES = {"name", "model"}
_SIZES = ("waves", "batches", "max_tokens")
_TENSORS = ("tokens", "roles", "starts", "origins", "groups")


class Role(IntEnum):
    """Who wrote a token."""

    FORCED = 0
    """Put there: template, openings, quoted text, a stop token where a limit cut a turn short."""
    USER = 1
    """A user turn that the target sampled."""
    GREEDY = 2
    """A reply, the target's likeliest token each."""
    SAMPLED = 3
    """A reply, sampled."""
    NATURAL = 4
    """Text by people."""


SCORED_ROLES = (Role.GREEDY, Role.SAMPLED, Role.NATURAL)
"""What a drafter will be asked for: replies, and natural text that stands for them."""


class Corpus:
    """A corpus, opened for reading. Documents are numbered in the order in which they were written.

    Attributes:
        folder: Where it lies.
        manifest: What it says about itself.
    """

    def __init__(self, folder: Path, manifest: Manifest, shards: Sequence[dict[str, Tensor]]) -> None:
        self.folder = folder
        self.manifest = manifest
        self._counts = [len(shard["starts"]) for shard in shards]
        self._tensors = tensors = _joined(shards)
        self._ends = torch.cat(
            [tensors["starts"][1:], tensors["tokens"].new_tensor([len(tensors["tokens"])])]
        )

    @classmethod
    def open(cls, folder: Path, target: TargetInfo | None = None) -> Self:
        """Read a corpus, checking every shard against its hash.

        Args:
            folder: As written by :class:`CorpusWriter`.
            target: Whose corpus it must be; None to look at any.

        Raises:
            DataError: No corpus, an empty or damaged one, or one that another target wrote.
        """
        manifest = Manifest.read(folder)
        if target is not None:
            manifest.require_target(target, folder)
        if not manifest.shards:
            raise DataError(f"The corpus {folder} is empty. Build it with: hyflash-bench corpus build")
        shards = [_read_shard(folder / name, digest) for name, digest in sorted(manifest.shards.items())]
        return cls(folder, manifest, shards)

    @property
    def hash(self) -> str:
        """SHA-256 over the sorted hashes of the shards."""
        return self.manifest.corpus_hash

    @property
    def shards(self) -> list[tuple[str, int]]:
        """Hash and number of documents of each shard, in the order of the documents."""
        digests = [digest for _, digest in sorted(self.manifest.shards.items())]
        return list(zip(digests, self._counts, strict=True))

    @property
    def num_documents(self) -> int:
        """Documents in all shards."""
        return len(self._ends)

    @property
    def num_tokens(self) -> int:
        """Tokens in all shards."""
        return len(self._tensors["tokens"])

    def document(self, index: int) -> tuple[Tensor, Tensor]:
        """One document: tokens ``[n]`` int64 and roles ``[n]`` uint8."""
        inside = slice(int(self._tensors["starts"][index]), int(self._ends[index]))
        return self._tensors["tokens"][inside].long(), self._tensors["roles"][inside]

    def length(self, index: int) -> int:
        """Tokens of one document."""
        return int(self._ends[index] - self._tensors["starts"][index])

    def origin(self, index: int) -> str:
        """The part of the recipe that a document came from."""
        return self.manifest.parts[int(self._tensors["origins"][index])].name

    def split(self, held_out_share: float, seed: int = 0) -> tuple[list[int], list[int]]:
        """Indices of documents to train on, and of those held out.

        Which side a document is on hangs on itself alone, so a corpus may grow without any document
        changing sides; documents cut from the same text are always on the same side.

        Args:
            held_out_share: Share of texts to hold out, 0..1.
            seed: Another seed gives another split.
        """
        train: list[int] = []
        held_out: list[int] = []
        for index, group in enumerate(self._tensors["groups"].tolist()):
            digest = hashlib.sha256(f"{seed}/{group}".encode()).digest()
            is_held_out = int.from_bytes(digest[:8], "big") < held_out_share * 2**64
            (held_out if is_held_out else train).append(index)
        return train, held_out

    def token_counts(self, roles: Iterable[Role] = SCORED_ROLES) -> Tensor:
        """How often each token of the target's vocabulary was written, ``[V]`` int64.

        Args:
            roles: By whom.
        """
        wanted = torch.isin(self._tensors["roles"], torch.tensor([int(role) for role in roles]))
        tokens = self._tensors["tokens"][wanted].long()
        return torch.bincount(tokens, minlength=self.manifest.target.vocab_size)


class CorpusWriter:
    """Adds to a corpus; use it as a context manager, which keeps a second writer out.

    Documents are added in units of work (a wave, a batch, a file). A shard is written at the end of
    a unit once enough tokens have gathered, and at the end of a part, never in between: so a build
    that was killed goes on at :meth:`units_done` and ends with the very same shards.

    Args:
        folder: Made if missing; a corpus that is there already is continued.
        manifest: Target, recipe and names of the parts; its counts are used for a new corpus only.
        on_shard: Called with the hash of each shard, once it is whole and before the manifest names it.

    Raises:
        DataError: The folder holds a corpus of another target or recipe.
        RunLocked: Another process is writing to it.
    """

    def __init__(
        self, folder: Path, manifest: Manifest, on_shard: Callable[[str], None] | None = None
    ) -> None:
        self._folder, self._on_shard = folder, on_shard
        self._lock = FileLock(folder / ".lock")
        self._manifest = manifest
        self._pending: list[tuple[Tensor, Tensor, int, int]] = []
        self._counts: dict[str, dict[str, int]] = {}

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise RunLocked(
                f"Another process is building {self._folder}. Wait for it, or choose another --output-path."
            ) from None
        try:
            if (self._folder / MANIFEST_FILE).exists():
                self._manifest = _continued(Manifest.read(self._folder), self._manifest, self._folder)
        except BaseException:
            self._lock.release()
            raise
        self._counts = {part.name: part.model_dump(exclude={"name"}) for part in self._manifest.parts}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    @property
    def manifest(self) -> Manifest:
        """What is stored by now."""
        return self._manifest

    def units_done(self, part: str) -> int:
        """Units of a part that are stored."""
        return self._counts[part]["units_done"]

    def num_tokens(self, part: str) -> int:
        """Tokens of a part, those that are not stored yet included."""
        return self._counts[part]["tokens"]

    def add(self, part: str, tokens: Tensor, roles: Tensor, *, group: str | None = None) -> None:
        """Take in a document.

        Args:
            part: Of the recipe.
            tokens: ``[n]``, n at least 1.
            roles: ``[n]``, see :class:`Role`.
            group: Name of the text that it was cut from; by default it stands alone.
        """
        if tokens.ndim != 1 or tokens.shape != roles.shape or len(tokens) == 0:
            raise ValueError(f"tokens {list(tokens.shape)} and roles {list(roles.shape)} must be [n], n >= 1")
        tokens, roles = tokens.to("cpu", torch.int32), roles.to("cpu", torch.uint8)
        digest = hashlib.sha256(group.encode() if group else tokens.numpy().tobytes()).digest()
        origin = [known.name for known in self._manifest.parts].index(part)
        self._pending.append((tokens, roles, origin, int.from_bytes(digest[:8], "big") >> 1))
        counts = self._counts[part]
        counts["documents"] += 1
        counts["tokens"] += len(tokens)
        counts["scored_tokens"] += int((roles >= Role.GREEDY).sum())

    def leave_out(self, part: str) -> None:
        """Count a document that was left out because a suite holds it."""
        self._counts[part]["contaminated"] += 1

    def finish_unit(self, part: str) -> None:
        """Say that all documents of a unit were added; stores them once they fill a shard.

        Raises:
            DataError: The disk is full or the folder cannot be written; what was stored stays.
        """
        self._counts[part]["units_done"] += 1
        if sum(len(tokens) for tokens, *_ in self._pending) >= SHARD_TOKENS:
            self.flush()

    def flush(self) -> None:
        """Store what was added; called at the end of a part.

        Raises:
            DataError: As :meth:`finish_unit`.
        """
        shards = dict(self._manifest.shards)
        if self._pending:
            path = self._folder / f"{len(shards):04d}.safetensors"
            _write_shard(path, self._pending)
            shards[path.name] = sha256_of(path)
            if self._on_shard is not None:
                self._on_shard(shards[path.name])
        parts = tuple(PartCounts(name=name, **counts) for name, counts in self._counts.items())
        updated = self._manifest.model_copy(update={"parts": parts, "shards": shards})
        self._manifest = updated.write(self._folder)
        self._pending = []


def _write_shard(path: Path, documents: Sequence[tuple[Tensor, Tensor, int, int]]) -> None:
    tokens, roles, origins, groups = zip(*documents, strict=True)
    lengths = torch.tensor([0, *(len(one) for one in tokens)])
    tensors = {
        "tokens": torch.cat(tokens),
        "roles": torch.cat(roles),
        "starts": lengths.cumsum(0)[:-1].clone(),
        "origins": torch.tensor(origins, dtype=torch.uint8),
        "groups": torch.tensor(groups, dtype=torch.int64),
    }
    with replacing(path) as temporary:
        temporary.write_bytes(save(tensors))


def _read_shard(path: Path, digest: str) -> dict[str, Tensor]:
    remedy = "Restore it, or remove the folder and build the corpus anew."
    try:
        if sha256_of(path) != digest:
            raise DataError(f"{path} is damaged: its hash is not the one in {MANIFEST_FILE}. {remedy}")
        tensors = load_file(path)
    except FileNotFoundError:
        raise DataError(f"{path} is missing, but {MANIFEST_FILE} names it. {remedy}") from None
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path} cannot be read: {error}. {remedy}") from None
    return tensors


def _joined(shards: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """All shards as one: the starts count on from one to the next."""
    joined = {name: torch.cat([shard[name] for shard in shards]) for name in _TENSORS if name != "starts"}
    starts, offset = [], 0
    for shard in shards:
        starts.append(shard["starts"] + offset)
        offset += len(shard["tokens"])
    return joined | {"starts": torch.cat(starts)}


def _continued(stored: Manifest, wanted: Manifest, folder: Path) -> Manifest:
    """The stored manifest, if what is wanted is more of the same."""
    differs = ""
    if stored.target.model_dump(exclude=_NAMES) != wanted.target.model_dump(exclude=_NAMES):
        differs = "for another target"
    elif _without_sizes(stored.recipe) != _without_sizes(wanted.recipe):
        differs = "from another recipe"
    elif stored.suites != wanted.suites:
        differs = "when the shipped suites held other texts, so it may hold some of theirs"
    if differs:
        raise DataError(
            f"{folder} already holds a corpus that was built {differs}. "
            "Choose another --output-path, or remove the folder to start over."
        )
    return stored.model_copy(update={"recipe": wanted.recipe})


def _without_sizes(recipe: Any) -> Any:
    """A recipe without how much of each part is wanted: a corpus may grow."""
    if isinstance(recipe, Mapping):
        return {key: _without_sizes(value) for key, value in recipe.items() if key not in _SIZES}
    return recipe
