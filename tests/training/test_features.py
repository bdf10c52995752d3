"""Features on disk are the target's own; filling stops and goes on."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch

from hyflash_bench.drafters.base import Requires
from hyflash_bench.errors import DataError
from hyflash_bench.targets.target import Target
from hyflash_bench.training import features
from hyflash_bench.training.corpus.store import Corpus
from hyflash_bench.training.features import FeatureStore, features_folder

REQUIRES = Requires(taps=(0, 1))


@pytest.fixture
def corpus(toy_corpus: Path) -> Corpus:
    return Corpus.open(toy_corpus)


def _store(corpus: Corpus, target: Target, folder: Path) -> FeatureStore:
    return FeatureStore(corpus, target, REQUIRES, folder)


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
    with _store(corpus, toy, tmp_path) as store:
        for index in (3, 0, 3):
            tokens, _ = corpus.document(index)
            expected = toy.prefill(tokens, toy.new_cache(len(tokens)), store.requires).features
            found = store.rows(index)
            for tap in REQUIRES.taps:
                assert torch.equal(found.taps[tap], expected.taps[tap].to(torch.bfloat16))
            assert torch.equal(found.last_hidden, expected.last_hidden.to(torch.bfloat16))


def test_a_beginning_is_the_beginning(toy: Target, corpus: Corpus, tmp_path: Path) -> None:
    with _store(corpus, toy, tmp_path) as store:
        whole, part = store.rows(1), store.rows(1, 5)
        assert torch.equal(part.taps[1], whole.taps[1][:5])
        assert len(part.last_hidden) == 5


def test_what_is_there_is_not_computed_again(toy: Target, corpus: Corpus, tmp_path: Path) -> None:
    counting = _Counting(toy)
    with _store(corpus, counting, tmp_path) as store:
        store.fill([0, 1, 1, 2])
        assert counting.passes == 3
    with _store(corpus, counting, tmp_path) as store:
        assert 0 < store.done_share < 1
        before = store.rows(2).last_hidden
        store.fill(range(corpus.num_documents))
        assert counting.passes == corpus.num_documents
        assert store.done_share == 1
        assert torch.equal(store.rows(2).last_hidden, before)


def test_a_full_disk_is_said_and_keeps_what_was_done(
    toy: Target, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _store(corpus, toy, tmp_path) as store:
        store.fill([0])
        write = os.pwrite

        def full(file: int, raw: bytes, at: int) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(features.os, "pwrite", full)
        with pytest.raises(DataError, match="Disk full"):
            store.fill([0, 1])
        monkeypatch.setattr(features.os, "pwrite", write)
    counting = _Counting(toy)
    with _store(corpus, counting, tmp_path) as store:
        store.fill([0, 1])
        assert counting.passes == 1


def test_need_and_room_are_told(toy: Target, corpus: Corpus, tmp_path: Path) -> None:
    with _store(corpus, toy, tmp_path) as store:
        assert store.num_bytes == corpus.num_tokens * 3 * toy.info.hidden_size * 2
        assert "GiB are free" in store.describe()


def test_the_folder_names_text_target_taps_and_precision(toy: Target, corpus: Corpus, cache: Path) -> None:
    folder = features_folder(corpus, toy, REQUIRES)
    assert folder.parent == cache / "features"
    made_by = toy.info.fingerprint.weights
    assert folder.name == f"{corpus.hash[:16]}-{made_by[:16]}-0-1-float32"


def test_a_folder_that_holds_other_features_is_refused(toy: Target, corpus: Corpus, tmp_path: Path) -> None:
    with _store(corpus, toy, tmp_path):
        pass
    about = tmp_path / "features.json"
    kept = about.read_text()
    for other in (kept.replace(f'"num_documents": {corpus.num_documents}', '"num_documents": 7'), "{"):
        about.write_text(other)
        with pytest.raises(DataError, match="Remove the folder"):
            _store(corpus, toy, tmp_path)
    about.write_text(kept)
    with _store(corpus, toy, tmp_path) as store:
        assert store.done_share == 0


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

    with _store(corpus, toy, tmp_path) as store:
        monkeypatch.setattr(features.os, "pwrite", written)
        monkeypatch.setattr(features.os, "fsync", synced)
        store.fill([0])
    assert calls == ["rows", "flushed", "flag"]


def test_what_another_process_has_computed_is_found(toy: Target, corpus: Corpus, tmp_path: Path) -> None:
    counting = _Counting(toy)
    with _store(corpus, counting, tmp_path) as mine, _store(corpus, toy, tmp_path) as other:
        other.fill([0, 1])
        expected = other.rows(1).last_hidden
        mine.fill([0, 1])
        assert torch.equal(mine.rows(1).last_hidden, expected)
        assert counting.passes == 0
