"""Texts of data sets: every row with one is asked about and cut like a file."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hyflash_bench.errors import DataError, HyFlashError, SpecError
from hyflash_bench.spec.corpus import CorpusRecipe
from hyflash_bench.targets.target import Target
from hyflash_bench.training.corpus.build import build_corpus
from hyflash_bench.training.corpus.store import Corpus
from tests.training.corpus.conftest import ASKED, recipe_values

TEXTS = [
    "\n\n".join(
        f"Letter {number}, page {page}. The weather on day {page * number} was fine." for page in range(9)
    )
    for number in range(12)
]


def _recipe(**source: Any) -> CorpusRecipe:
    rows = {"type": "rows", "licence": "MIT", "text": "body", **source}
    texts = [{"source": "letters"}]
    answers = recipe_values()["answers"] | {"texts": texts, "contexts": [128]}
    documents = {"texts": texts, "piece_tokens": 512, "max_tokens": 10_000}
    values = recipe_values(sources={"letters": rows}, answers=answers, documents=documents, self_talk=None)
    return CorpusRecipe.parse(values, "test")


def _build(recipe: CorpusRecipe, folder: Path, target: Target, said: list[str] | None = None) -> Corpus:
    progress = None if said is None else said.append
    build_corpus(recipe, folder / "corpus", target, texts_folder=folder, progress=progress)
    return Corpus.open(folder / "corpus", target.info)


def _text(corpus: Corpus, target: Target, index: int) -> str:
    return target.tokenizer.decode(corpus.document(index)[0].tolist())


def test_every_row_is_a_text_and_what_suites_ask_is_left_out(folder: Path, target: Target) -> None:
    rows = [{"body": text} for text in TEXTS]
    rows[3:3] = [{"title": "no body"}, {"body": "  "}, {"body": f"{TEXTS[0]} {ASKED} {TEXTS[1]}"}]
    packed = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (folder / "letters.jsonl.gz").write_bytes(gzip.compress(packed))
    said: list[str] = []

    corpus = _build(_recipe(files=["letters.jsonl.gz"]), folder, target, said)

    documents = [index for index in range(corpus.num_documents) if corpus.origin(index) == "documents"]
    assert sorted(_text(corpus, target, index) for index in documents) == sorted(TEXTS)
    assert corpus.manifest.parts[0].contaminated == 2  # both pieces of the row that holds the question
    assert any("13 texts" in line for line in said)
    assert any("2 of 15 rows are wrong" in line and "line 4: key 'body' is missing" in line for line in said)
    asked = [index for index in range(corpus.num_documents) if corpus.origin(index) == "answers"]
    assert asked
    assert all("Letter" in _text(corpus, target, index) for index in asked)


def test_rows_come_from_the_hub(folder: Path, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setenv("HYFLASH_BENCH_CACHE", str(folder / "cache"))
    library = ModuleType("datasets")
    library.load_dataset = lambda *args, **kwargs: (
        asked.append((args, kwargs)) or [{"body": t} for t in TEXTS]
    )
    monkeypatch.setitem(sys.modules, "datasets", library)

    corpus = _build(_recipe(hub="owner/letters", split="train[:12]", config="en"), folder, target)

    ((args, kwargs),) = asked
    assert args == ("owner/letters", "en")
    assert kwargs["split"] == "train[:12]"
    assert sum(corpus.origin(index) == "documents" for index in range(corpus.num_documents)) == len(TEXTS)


def test_mistakes_are_told(folder: Path, target: Target) -> None:
    with pytest.raises(SpecError, match="either files or hub"):
        _recipe()
    with pytest.raises(SpecError, match="either files or hub"):
        _recipe(files=["a"], hub="b")
    (folder / "none.jsonl").write_text('{"title": 1}\n')
    with pytest.raises(DataError, match=r"no row can be used.*key 'body' is missing; it has title"):
        _build(_recipe(files=["none.jsonl"]), folder, target)
    with pytest.raises(HyFlashError, match="cannot be read: No such file"):
        _build(_recipe(files=["nowhere.jsonl"]), folder, target)
    with pytest.raises(DataError, match="leads out of"):
        _build(_recipe(files=["../letters.jsonl"]), folder, target)
