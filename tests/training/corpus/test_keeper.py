"""Features kept while a corpus is written: the target's own, nothing lost or doubled, room seen to."""

from __future__ import annotations

import errno
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hyflash_bench.drafters.base import Features, Requires
from hyflash_bench.errors import DataError
from hyflash_bench.spec.corpus import CorpusRecipe
from hyflash_bench.spec.units import format_bytes
from hyflash_bench.targets.target import Target
from hyflash_bench.training import feature_file, features
from hyflash_bench.training.corpus import store
from hyflash_bench.training.corpus.build import BuildStatus, build_corpus
from hyflash_bench.training.corpus.manifest import Manifest
from hyflash_bench.training.corpus.store import Corpus
from hyflash_bench.training.features import FeatureStore, bytes_per_token, wanted_features

Build = Callable[..., Corpus]


class _Counting:
    """A target that counts its passes over finished texts."""

    def __init__(self, target: Target) -> None:
        self.target, self.passes = target, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)

    def prefill(self, *args: Any, **kwargs: Any) -> Any:
        self.passes += 1
        return self.target.prefill(*args, **kwargs)


@pytest.fixture
def build(recipe: CorpusRecipe, folder: Path, target: Target, monkeypatch: pytest.MonkeyPatch) -> Build:
    """Build a corpus with its features in a cache of this test, several shards a part."""
    monkeypatch.setenv("HYFLASH_BENCH_CACHE", str(folder / "cache"))
    monkeypatch.setattr(store, "SHARD_TOKENS", 300)

    def call(name: str = "corpus", by: Any = target, **options: Any) -> Corpus:
        options = {"requires": wanted_features(target.info), **options}
        build_corpus(recipe, folder / name, by, texts_folder=folder, **options)
        return Corpus.open(folder / name, target.info)

    return call


def _use_cache(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYFLASH_BENCH_CACHE", str(folder / name))


def _kept(corpus: Corpus, target: Any) -> list[Features]:
    opened = FeatureStore(corpus, target, wanted_features(target.info))
    assert opened.done_share == 1
    return [opened.rows(index) for index in range(corpus.num_documents)]


def _same(first: Features, second: Features) -> bool:
    return all(torch.equal(*pair) for pair in zip(first.tensors(), second.tensors(), strict=True))


def test_they_are_there_when_the_text_is_and_are_the_target_s(
    build: Build, folder: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = _Counting(target)
    corpus = build(by=counting)
    natural = sum(corpus.origin(index) == "documents" for index in range(corpus.num_documents))
    assert counting.passes == natural  # the target wrote all else, and was not made to read it
    kept = _kept(corpus, counting)
    assert counting.passes == natural
    _use_cache(folder, "other", monkeypatch)
    later = FeatureStore(corpus, target, wanted_features(target.info))
    later.fill_all(print)
    for index, mine in enumerate(kept):
        for one, other in zip(mine.tensors(), later.rows(index).tensors(), strict=True):
            torch.testing.assert_close(one.float(), other.float(), rtol=2**-7, atol=1e-3)


def test_the_corpus_is_the_one_without_them(build: Build) -> None:
    assert build("with").hash == build("without", requires=None).hash


@pytest.mark.parametrize("part", ["documents", "answers", "self-talk"])
def test_a_build_that_was_killed_ends_with_the_same_features(
    build: Build, folder: Path, target: Target, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    whole = build("whole")
    expected = _kept(whole, target)
    _use_cache(folder, "torn", monkeypatch)

    def stop(status: BuildStatus) -> None:
        if status.part == part and status.units_done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build("torn", on_status=stop)
    counting = _Counting(target)
    torn = build("torn", by=counting)
    assert torn.hash == whole.hash
    found = _kept(torn, counting)
    assert all(_same(*pair) for pair in zip(found, expected, strict=True))
    assert {path.name for path in (folder / "torn" / "features").iterdir()} == {
        path.name for path in (folder / "cache" / "features").iterdir()
    }


def test_a_kill_between_shard_and_manifest_loses_and_doubles_nothing(
    build: Build, folder: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = build("whole")
    expected = _kept(whole, target)
    _use_cache(folder, "torn", monkeypatch)
    write, calls = Manifest.write, iter(range(100))

    def killed(self: Manifest, where: Path) -> Manifest:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return write(self, where)

    monkeypatch.setattr(Manifest, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        build("torn")
    torn = build("torn")
    assert torn.hash == whole.hash
    assert all(_same(*pair) for pair in zip(_kept(torn, target), expected, strict=True))


def test_a_corpus_built_without_them_gets_them(build: Build, target: Target) -> None:
    bare = build(requires=None, parts=["self-talk"])
    counting = _Counting(target)
    whole = build(by=counting)
    others = sum(whole.origin(index) == "documents" for index in range(whole.num_documents))
    assert counting.passes == bare.num_documents + others
    assert len(_kept(whole, counting)) == whole.num_documents


def test_disk_is_told_and_seen_to_beforehand(
    build: Build, folder: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    build(parts=["self-talk"], progress=said.append)
    of_token = bytes_per_token(wanted_features(target.info), target.info.hidden_size)
    assert of_token == 2 * 64 * (1 + len(wanted_features(target.info).taps))
    assert any(
        f"960 tokens take {format_bytes(960 * of_token)} of disk, {of_token} bytes a token" in line
        for line in said
    )
    usage = namedtuple("usage", "total used free")(0, 0, 1000)
    monkeypatch.setattr(features.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(DataError, match="That is not enough: set HYFLASH_BENCH_CACHE"):
        build("full", parts=["self-talk"])
    assert not (folder / "full" / "manifest.json").exists()


def test_a_disk_that_fills_up_is_said_and_what_was_finished_stays(
    build: Build, folder: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, left = feature_file.os.pwrite, iter(range(5))

    def full(file: int, raw: Any, at: int) -> int:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, raw, at)

    monkeypatch.setattr(feature_file.os, "pwrite", full)
    with pytest.raises(DataError, match="Disk full"):
        build(parts=["self-talk"])
    monkeypatch.setattr(feature_file.os, "pwrite", write)
    torn = Corpus.open(folder / "corpus", target.info)
    assert 0 < torn.num_documents < 6
    assert FeatureStore(torn, target, wanted_features(target.info)).done_share == 1
    assert len(_kept(build(parts=["self-talk"]), target)) == 6


def test_pieces_longer_than_the_target_keep_what_it_can_read(build: Build, target: Target) -> None:
    short = Target(replace(target.info, max_positions=400), target.tokenizer, target.model, target._decoder)
    corpus = build(by=short)
    opened = FeatureStore(corpus, short, Requires(wanted_features(target.info).taps))
    assert max(map(corpus.length, range(corpus.num_documents))) > 400
    assert max(opened.lengths) == 400
    assert opened.done_share == 1
