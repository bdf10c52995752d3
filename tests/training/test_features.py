"""Features on disk are the target's own; filling stops and goes on."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch

from hyflash_bench.drafters.base import Requires
from hyflash_bench.errors import DataError, UsageError
from hyflash_bench.targets.target import Target
from hyflash_bench.training import feature_file
from hyflash_bench.training.corpus import store as corpus_store
from hyflash_bench.training.corpus.manifest import Manifest, PartCounts, TargetStamp
from hyflash_bench.training.corpus.store import Corpus, CorpusWriter
from hyflash_bench.training.features import (
    FeatureStore,
    are_kept,
    shard_folder,
    spread_taps,
    wanted_features,
)
from tests.training.toys import toy_documents

REQUIRES = Requires(taps=(0, 1))


@pytest.fixture
def corpus(toy_corpus: Path) -> Corpus:
    return Corpus.open(toy_corpus)


def _store(corpus: Corpus, target: Target, folder: Path) -> FeatureStore:
    return FeatureStore(corpus, target, REQUIRES, folder)


def grown_corpus(folder: Path, target: Target, count: int) -> Path:
    """A corpus of so many documents, a unit each; one that is there grows."""
    manifest = Manifest(
        target=TargetStamp.of(target.info), recipe={"name": "toy"}, parts=(PartCounts(name="toy"),)
    )
    with CorpusWriter(folder, manifest) as writer:
        for tokens, roles in toy_documents(count)[writer.units_done("toy") :]:
            writer.add("toy", tokens, roles)
            writer.finish_unit("toy")
        writer.flush()
    return folder


class _Counting:
    """A target that counts its passes."""

    def __init__(self, target: Target) -> None:
        self.target, self.passes = target, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.target, name)

    def prefill(self, *args: object, **kwargs: object) -> object:
        self.passes += 1
        return self.target.prefill(*args, **kwargs)


def test_rows_are_what_the_target_computes(toy: Target, corpus: Corpus, tmp_path: Path) -> None:
    store = _store(corpus, toy, tmp_path)
    for index in (3, 0, 3):
        tokens, _ = corpus.document(index)
        expected = toy.prefill(tokens, toy.new_cache(len(tokens)), store.requires).features
        found = store.rows(index)
        for tap in REQUIRES.taps:
            assert torch.equal(found.taps[tap], expected.taps[tap].to(torch.bfloat16))
        assert torch.equal(found.last_hidden, expected.last_hidden.to(torch.bfloat16))


def test_a_beginning_is_the_beginning(toy: Target, corpus: Corpus, tmp_path: Path) -> None:
    store = _store(corpus, toy, tmp_path)
    whole, part = store.rows(1), store.rows(1, 5)
    assert torch.equal(part.taps[1], whole.taps[1][:5])
    assert len(part.last_hidden) == 5


def test_what_is_there_is_not_computed_again(toy: Target, corpus: Corpus, tmp_path: Path) -> None:
    counting = _Counting(toy)
    _store(corpus, counting, tmp_path).fill([0, 1, 1, 2])
    assert counting.passes == 3
    store = _store(corpus, counting, tmp_path)
    assert 0 < store.done_share < 1
    before = store.rows(2).last_hidden
    said: list[str] = []
    store.fill_all(said.append)
    assert counting.passes == corpus.num_documents
    assert store.done_share == 1
    assert (
        said[-1]
        == f"Features: {corpus.num_documents - 3} of {corpus.num_documents - 3} documents that had none"
    )
    assert torch.equal(store.rows(2).last_hidden, before)


def test_a_corpus_that_grows_keeps_its_features(
    toy: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_store, "SHARD_TOKENS", 100)
    counting, root = _Counting(toy), tmp_path / "features"
    small = Corpus.open(grown_corpus(tmp_path / "corpus", toy, 20), toy.info)
    _store(small, counting, root).fill_all(print)
    assert counting.passes == small.num_documents
    grown = Corpus.open(grown_corpus(tmp_path / "corpus", toy, 30), toy.info)
    assert len(grown.shards) > len(small.shards) > 1
    store = _store(grown, counting, root)
    store.fill_all(print)
    assert counting.passes == grown.num_documents
    for index in (0, 19, 29):
        tokens, _ = grown.document(index)
        expected = toy.prefill(tokens, toy.new_cache(len(tokens)), store.requires).features
        assert torch.equal(store.rows(index).last_hidden, expected.last_hidden.to(torch.bfloat16))


def test_a_file_with_more_taps_is_read(toy: Target, corpus: Corpus, tmp_path: Path) -> None:
    whole = _store(corpus, toy, tmp_path)
    whole.fill([4])
    counting = _Counting(toy)
    narrow = FeatureStore(corpus, counting, Requires(taps=(1,)), tmp_path)
    found, expected = narrow.rows(4), whole.rows(4)
    assert list(found.taps) == [1]
    assert torch.equal(found.taps[1], expected.taps[1])
    assert torch.equal(found.last_hidden, expected.last_hidden)
    assert counting.passes == 0


def test_a_full_disk_is_said_and_keeps_what_was_done(
    toy: Target, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _store(corpus, toy, tmp_path)
    store.fill([0])
    write = os.pwrite

    def full(file: int, raw: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(feature_file.os, "pwrite", full)
    with pytest.raises(DataError, match="Disk full"):
        store.fill([0, 1])
    monkeypatch.setattr(feature_file.os, "pwrite", write)
    counting = _Counting(toy)
    _store(corpus, counting, tmp_path).fill([0, 1])
    assert counting.passes == 1


def test_need_and_room_are_told(toy: Target, corpus: Corpus, tmp_path: Path) -> None:
    store = _store(corpus, toy, tmp_path)
    assert store.num_bytes == corpus.num_tokens * 3 * toy.info.hidden_size * 2
    assert "are free in" in store.describe()


def test_the_folder_names_shard_target_taps_and_precision(toy: Target, corpus: Corpus, cache: Path) -> None:
    ((digest, _),) = corpus.shards
    made_by = toy.info.fingerprint.weights
    store, folder = (
        FeatureStore(corpus, toy, REQUIRES),
        shard_folder(cache / "features", digest, toy.info, REQUIRES),
    )
    assert not folder.exists(), "nothing was computed yet"
    store.fill([0])
    assert folder.is_dir()
    assert folder.name == f"{digest[:16]}-{made_by[:16]}-0-1-float32"
    assert are_kept(digest, made_by, "float32")
    assert not are_kept(digest, made_by, "float32", whole=True)
    assert not are_kept(digest, made_by, "bfloat16")
    assert not are_kept("0" * 64, made_by, "float32")


def test_the_taps_are_spread_or_those_asked_for(toy: Target) -> None:
    assert spread_taps(30) == (9, 19, 28)
    assert wanted_features(toy.info).taps == spread_taps(toy.info.num_layers)
    assert wanted_features(toy.info, (1, 0, 1)).taps == (0, 1)
    with pytest.raises(UsageError, match="layers 0 to 1"):
        wanted_features(toy.info, (2,))


def test_a_folder_that_holds_other_features_is_refused(toy: Target, corpus: Corpus, tmp_path: Path) -> None:
    begun = _store(corpus, toy, tmp_path)
    begun.fill([0])
    about = next(tmp_path.iterdir()) / "features.json"
    kept = about.read_text()
    for other in (kept.replace(f'"num_documents": {corpus.num_documents}', '"num_documents": 7'), "{"):
        about.write_text(other)
        with pytest.raises(DataError, match="Remove the folder"):
            _store(corpus, toy, tmp_path)
    about.write_text(kept)
    assert _store(corpus, toy, tmp_path).done_share == begun.done_share > 0


def test_rows_reach_the_disk_before_their_flag(
    toy: Target, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    write, sync = os.pwrite, os.fsync

    def written(file: int, raw: bytes, at: int) -> int:
        calls.append("flag" if bytes(raw) == b"\x01" else "rows")
        return write(file, raw, at)

    def synced(file: int) -> None:
        calls.append("flushed")
        sync(file)

    store = _store(corpus, toy, tmp_path)
    monkeypatch.setattr(feature_file.os, "pwrite", written)
    monkeypatch.setattr(feature_file.os, "fsync", synced)
    store.fill([0])
    assert calls[calls.index("rows") :][:3] == ["rows", "flushed", "flag"]


def test_what_another_process_has_computed_is_found(toy: Target, corpus: Corpus, tmp_path: Path) -> None:
    counting = _Counting(toy)
    mine, other = _store(corpus, counting, tmp_path), _store(corpus, toy, tmp_path)
    other.fill([0, 1])
    expected = other.rows(1).last_hidden
    mine.fill([0, 1])
    assert torch.equal(mine.rows(1).last_hidden, expected)
    assert counting.passes == 0
