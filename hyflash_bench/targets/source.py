"""Finds out what a ``--target`` string means."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hyflash_bench.data import expanded
from hyflash_bench.errors import UnknownName, UsageError
from hyflash_bench.targets.info import SourceKind
from hyflash_bench.targets.presets import PRESETS

__all__ = ["Source", "parse", "require_pinned"]

_HUB_ID = re.compile(r"(?P<id>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>[\w./-]+))?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a target comes from.

    Attributes:
        kind: Preset, folder, GGUF file or hub.
        location: Preset name, path or hub id.
        revision: Branch, tag or commit of the hub; None for its default branch.
        name: Short, fit for tables and file names.
    """

    kind: SourceKind
    location: str
    revision: str | None
    name: str


def parse(model: str) -> Source:
    """Understand a target string.

    A preset's name wins, then what exists on disk, then the form of a hub id.

    Raises:
        UnknownName: None of them; the nearest preset is offered.
        UsageError: A path that is not there, or holds no model.
    """
    if model in PRESETS:
        return Source("preset", model, None, model)
    path = expanded(model)
    if path.is_file() and path.suffix == ".gguf":
        return Source("gguf", str(path), None, path.stem)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise UsageError(
                f"The folder {model!r} holds no model: config.json is missing. Give a folder "
                "written by save_pretrained, a .gguf file, a preset or a hub id."
            )
        return Source("folder", str(path), None, path.resolve().name)
    if path.exists():
        raise UsageError(f"The file {model!r} is not a model. Only .gguf files can be given alone.")
    if model.startswith((".", "/", "~")) or path.suffix == ".gguf":
        raise UsageError(f"There is no model folder or .gguf file {model!r}. Check the path.")
    match = _HUB_ID.fullmatch(model)
    if match is None:
        hint = "A hub id (org/name[@revision]), a model folder or a .gguf file will do as well."
        raise UnknownName("target", model, PRESETS, hint)
    return Source("hub", match["id"], match["revision"], match["id"].rsplit("/", 1)[1])


def require_pinned(source: Source) -> None:
    """Refuse to run code that comes with a model unless its version is fixed.

    Raises:
        UsageError: A hub id without a 40-digit commit.
    """
    if source.kind == "hub" and not _COMMIT.fullmatch(source.revision or ""):
        raise UsageError(
            f"Code shipped with {source.location!r} is only run from a pinned commit. Write "
            f"{source.location}@<40-digit commit>, or leave trust_remote_code off."
        )
