"""Hashes that say whether two targets are the same one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hyflash_bench.targets.cachedir import cache_dir, read_json, write_json

__all__ = ["chat_template_hash", "files_hash", "tokenizer_hash", "weight_files"]


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model folder, in order of name."""
    return sorted(folder.glob("*.safetensors"))


def files_hash(paths: Iterable[Path]) -> str:
    """SHA-256 over the contents of files, names left out.

    A file's own hash is kept in the user's cache under its path, size and time of change, since
    reading gigabytes takes longer than loading them.
    """
    digests = [_file_hash(path) for path in paths]
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def tokenizer_hash(tokenizer: Any) -> str:
    """SHA-256 of everything that decides which ids a text becomes."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        text = backend.to_str()
    else:
        text = json.dumps([tokenizer.get_vocab(), tokenizer.get_added_vocab()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def chat_template_hash(tokenizer: Any) -> str | None:
    """SHA-256 of the chat template; None when the tokenizer has none."""
    template = getattr(tokenizer, "chat_template", None)
    if template is None:
        return None
    text = template if isinstance(template, str) else json.dumps(template, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _file_hash(path: Path) -> str:
    stat = path.stat()
    where = str(path.resolve())
    state = {"path": where, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    key = hashlib.sha256(where.encode()).hexdigest()[:32]
    kept = cache_dir("hashes") / f"{key}.json"
    known = read_json(kept)
    if {name: known.get(name) for name in state} == state and isinstance(known.get("sha256"), str):
        return str(known["sha256"])
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    write_json(kept, state | {"sha256": digest})
    return digest
