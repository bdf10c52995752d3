"""What a corpus folder says about itself: ``manifest.json``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import Field

from hyflash_bench.atomic import write_text
from hyflash_bench.errors import DataError, SchemaTooNew, SpecError
from hyflash_bench.spec.base import Spec
from hyflash_bench.targets.info import TargetInfo

__all__ = ["MANIFEST_FILE", "Manifest", "PartCounts", "TargetStamp"]

MANIFEST_FILE = "manifest.json"
FORMAT: Final = "hyflash-bench-corpus"
VERSION = 1


class TargetStamp(Spec):
    """The target whose tokens and words these are."""

    name: str
    model: str = Field(description="As it was asked for.")
    vocab_size: int = Field(ge=1)
    weights: str = Field(description="Fingerprint of the weights that wrote the replies.")
    tokenizer: str
    chat_template: str | None = None

    @classmethod
    def of(cls, info: TargetInfo) -> Self:
        """The stamp of a loaded target."""
        made_by = info.fingerprint
        return cls(
            name=info.name,
            model=info.model,
            vocab_size=info.vocab_size,
            weights=made_by.weights,
            tokenizer=made_by.tokenizer,
            chat_template=made_by.chat_template,
        )


class PartCounts(Spec):
    """How much a part of the recipe gave; ``origins`` in the shards count these from 0."""

    name: str
    documents: int = Field(0, ge=0)
    tokens: int = Field(0, ge=0)
    scored_tokens: int = Field(0, ge=0, description="Tokens of replies and of natural text.")
    contaminated: int = Field(0, ge=0, description="Documents left out: they share 13-grams with a suite.")
    units_done: int = Field(0, ge=0, description="Units of work (waves, batches, files) that are stored.")


class Manifest(Spec):
    """The whole of ``manifest.json``."""

    format: Literal["hyflash-bench-corpus"] = FORMAT
    version: int = VERSION
    target: TargetStamp
    recipe: dict[str, Any] = Field(description="The recipe as resolved.")
    licences: tuple[str, ...] = ()
    suites: dict[str, str] = Field(
        default_factory=dict, description="Suites that it was compared with, and their hashes."
    )
    parts: tuple[PartCounts, ...]
    shards: dict[str, str] = Field(default_factory=dict, description="SHA-256 of each shard file.")
    corpus_hash: str = ""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read and check the manifest of a corpus folder.

        Raises:
            DataError: There is none, or it is not what this package writes.
            SchemaTooNew: A newer version wrote it.
        """
        path = folder / MANIFEST_FILE
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise DataError(
                f"{folder} holds no {MANIFEST_FILE}, so it is no corpus. "
                "Build one with: hyflash-bench corpus build"
            ) from None
        except (OSError, ValueError) as error:
            raise DataError(f"{path} cannot be read: {error}. Restore it or build the corpus anew.") from None
        if not isinstance(values, Mapping) or values.get("format") != FORMAT:
            raise DataError(f"{path} is not the manifest of a corpus built by this package.")
        if isinstance(values.get("version"), int) and values["version"] > VERSION:
            raise SchemaTooNew(
                f"{path} is of version {values['version']}; this package reads {VERSION}. Update it."
            )
        try:
            return cls.parse(values, where=str(path))
        except SpecError as error:
            raise DataError(f"{error}. Restore the file or build the corpus anew.") from None

    def write(self, folder: Path) -> Self:
        """Write it into a corpus folder, atomically; gives it back with the hash of its shards."""
        whole = self.model_copy(update={"corpus_hash": _hash_of(self.shards.values())})
        write_text(folder / MANIFEST_FILE, json.dumps(whole.model_dump(mode="json"), indent=2) + "\n")
        return whole

    def require_target(self, info: TargetInfo, folder: Path) -> None:
        """Refuse a corpus that another target wrote.

        Raises:
            DataError: Which property differs.
        """
        given = TargetStamp.of(info)
        for field in ("vocab_size", "weights", "tokenizer", "chat_template"):
            mine, theirs = getattr(self.target, field), getattr(given, field)
            if mine != theirs:
                raise DataError(
                    f"The corpus {folder} was made for target {self.target.name}, not for {given.name}: its "
                    f"{field} is {mine}, the target's is {theirs}. Use that target, or build a corpus for "
                    "this one with: hyflash-bench corpus build"
                )


def _hash_of(shard_hashes: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(shard_hashes)).encode()).hexdigest()
