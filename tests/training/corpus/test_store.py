"""What is written comes back, and what was torn or swapped is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from hyflash_bench.errors import DataError, RunLocked, SchemaTooNew
from hyflash_bench.targets.target import Target
from hyflash_bench.training.corpus import store
from hyflash_bench.training.corpus.manifest import Manifest, PartCounts, TargetStamp
from hyflash_bench.training.corpus.store import Corpus, CorpusWriter, Role

STAMP = TargetStamp(name="t", model="t", vocab_size=50, weights="w", tokenizer="k", chat_template=None)
UNITS = 7


def manifest(**changes: object) -> Manifest:
    values = {
        "target": STAMP,
        "recipe": {"seed": 0, "self_talk": {"waves": 1}},
        "parts": (PartCounts(name="documents"), PartCounts(name="self-talk")),
    }
    return Manifest(**(values | changes))


def documents(unit: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(unit)
    lengths = [3 + unit, 11]
    return [
        (torch.randint(50, (n,), generator=generator), torch.randint(5, (n,), generator=generator))
        for n in lengths
    ]


def write(folder: Path, units: int = UNITS, *, is_killed: bool = False, **changes: object) -> None:
    with CorpusWriter(folder, manifest(**changes)) as writer:
        for unit in range(writer.units_done("self-talk"), units):
            for tokens, roles in documents(unit):
                writer.add("self-talk", tokens, roles)
            writer.finish_unit("self-talk")
        if not is_killed:
            writer.flush()


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SHARD_TOKENS", 40)


def test_documents_come_back_as_they_were_added(tmp_path: Path) -> None:
    write(tmp_path)

    corpus = Corpus.open(tmp_path)

    expected = [document for unit in range(UNITS) for document in documents(unit)]
    assert corpus.num_documents == len(expected)
    assert corpus.num_tokens == sum(len(tokens) for tokens, _ in expected)
    assert len(corpus.manifest.shards) > 2
    for index, (tokens, roles) in enumerate(expected):
        found = corpus.document(index)
        assert found[0].dtype == torch.int64
        assert torch.equal(found[0], tokens)
        assert torch.equal(found[1], roles.to(torch.uint8))
        assert corpus.length(index) == len(tokens)
        assert corpus.origin(index) == "self-talk"


def test_counts_are_those_of_the_tokens(tmp_path: Path) -> None:
    write(tmp_path)

    corpus = Corpus.open(tmp_path)

    tokens, roles = (
        torch.cat([corpus.document(i)[which] for i in range(corpus.num_documents)]) for which in (0, 1)
    )
    counts = corpus.manifest.parts[1]
    assert (counts.tokens, counts.scored_tokens) == (len(tokens), int((roles >= 2).sum()))
    assert torch.equal(corpus.token_counts(), torch.bincount(tokens[roles >= 2], minlength=50))
    of_users = torch.bincount(tokens[roles == 1], minlength=50)
    assert torch.equal(corpus.token_counts([Role.USER]), of_users)


@pytest.mark.parametrize("killed_after", range(UNITS))
def test_a_killed_build_ends_with_the_same_shards(tmp_path: Path, killed_after: int) -> None:
    write(tmp_path / "whole")
    write(tmp_path / "torn", killed_after, is_killed=True)
    write(tmp_path / "torn")

    whole, torn = Corpus.open(tmp_path / "whole"), Corpus.open(tmp_path / "torn")

    assert torn.hash == whole.hash
    assert torn.manifest == whole.manifest


def test_a_corpus_grows_and_no_document_changes_sides(tmp_path: Path) -> None:
    write(tmp_path, 4)
    before = Corpus.open(tmp_path)
    write(tmp_path, recipe={"seed": 0, "self_talk": {"waves": 2}})
    after = Corpus.open(tmp_path)

    train, held_out = after.split(0.4, seed=3)

    assert before.hash != after.hash
    assert sorted(train + held_out) == list(range(after.num_documents))
    assert train
    assert held_out
    assert before.split(0.4, seed=3)[1] == [index for index in held_out if index < before.num_documents]
    assert after.split(0.4, seed=4)[1] != held_out
    assert after.split(0.0)[1] == []


def test_documents_of_one_text_stay_together(tmp_path: Path) -> None:
    with CorpusWriter(tmp_path, manifest()) as writer:
        for unit in range(20):
            for tokens, roles in documents(unit):
                writer.add("documents", tokens, roles, group=f"file {unit}")
        writer.flush()

    _, held_out = Corpus.open(tmp_path).split(0.5)

    assert held_out
    assert {index ^ 1 for index in held_out} == set(held_out)


def test_a_damaged_or_missing_shard_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    shard = tmp_path / "0001.safetensors"
    content = bytearray(shard.read_bytes())
    content[-3] ^= 1
    shard.write_bytes(content)
    with pytest.raises(DataError, match=r"0001\.safetensors is damaged"):
        Corpus.open(tmp_path)
    shard.unlink()
    with pytest.raises(DataError, match=r"0001\.safetensors is missing"):
        Corpus.open(tmp_path)


def test_a_corpus_of_another_target_is_refused(tmp_path: Path, target: Target) -> None:
    write(tmp_path)

    with pytest.raises(DataError, match=r"made for target t, not for .* its vocab_size is 50"):
        Corpus.open(tmp_path, target.info)
    with pytest.raises(DataError, match="built for another target"):
        write(tmp_path, target=STAMP.model_copy(update={"weights": "others"}))


def test_another_recipe_is_refused(tmp_path: Path) -> None:
    write(tmp_path)

    with pytest.raises(DataError, match=r"another recipe\. Choose another --output-path"):
        write(tmp_path, recipe={"seed": 1})


def test_no_corpus_and_an_empty_one_say_how_to_build_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no corpus\. Build one with: hyflash-bench corpus build"):
        Corpus.open(tmp_path)
    with CorpusWriter(tmp_path, manifest()) as writer:
        writer.flush()
    with pytest.raises(DataError, match="is empty"):
        Corpus.open(tmp_path)


def test_a_foreign_or_newer_manifest_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / "manifest.json"
    written = json.loads(path.read_text())
    path.write_text(json.dumps(written | {"version": 99}))
    with pytest.raises(SchemaTooNew, match="99"):
        Corpus.open(tmp_path)
    path.write_text("[]")
    with pytest.raises(DataError, match="not the manifest"):
        Corpus.open(tmp_path)


def test_two_writers_do_not_meet(tmp_path: Path) -> None:
    with (
        CorpusWriter(tmp_path, manifest()),
        pytest.raises(RunLocked, match="Another process"),
        CorpusWriter(tmp_path, manifest()),
    ):
        pass


def test_a_full_disk_keeps_what_was_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 4)
    before = Corpus.open(tmp_path).manifest

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(DataError, match="Disk full"):
        write(tmp_path, recipe={"seed": 0, "self_talk": {"waves": 2}})
    assert Corpus.open(tmp_path).manifest == before
