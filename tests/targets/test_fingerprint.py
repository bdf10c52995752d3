"""Hashes follow contents, not names or times."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from hyflash_bench.targets.fingerprint import (
    chat_template_hash,
    files_hash,
    tokenizer_hash,
    weight_files,
)

pytestmark = pytest.mark.usefixtures("user_cache")


def test_one_file_has_its_own_hash(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"weights")

    assert files_hash([path]) == hashlib.sha256(b"weights").hexdigest()


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"before")
    first = files_hash([path])
    path.write_bytes(b"after!")
    os.utime(path, ns=(1, 1))

    assert files_hash([path]) == hashlib.sha256(b"after!").hexdigest() != first


def test_an_unchanged_file_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"before")
    os.utime(path, ns=(5, 5))
    first = files_hash([path])
    path.write_bytes(b"after!")
    os.utime(path, ns=(5, 5))

    assert files_hash([path]) == first


def test_shards_count_in_order_of_name(tmp_path: Path) -> None:
    for name in ("b.safetensors", "a.safetensors", "config.json"):
        (tmp_path / name).write_text(name)

    shards = weight_files(tmp_path)

    assert [path.name for path in shards] == ["a.safetensors", "b.safetensors"]
    assert files_hash(shards) != files_hash(reversed(shards))


def test_tokenizers_differ_by_what_they_do() -> None:
    def tokenizer(text: str) -> SimpleNamespace:
        return SimpleNamespace(backend_tokenizer=SimpleNamespace(to_str=lambda: text))

    assert tokenizer_hash(tokenizer("a")) == tokenizer_hash(tokenizer("a"))
    assert tokenizer_hash(tokenizer("a")) != tokenizer_hash(tokenizer("b"))


def test_a_tokenizer_without_template_has_none() -> None:
    assert chat_template_hash(SimpleNamespace(chat_template=None)) is None
    assert chat_template_hash(SimpleNamespace(chat_template="x")) == hashlib.sha256(b"x").hexdigest()
