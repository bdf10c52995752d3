"""A session reads features in the precision in which they are there already."""

from __future__ import annotations

from pathlib import Path

import pytest

from hyflash_bench.drafters.base import Requires
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.load import load_target
from hyflash_bench.targets.target import Target
from hyflash_bench.training import session
from hyflash_bench.training.corpus.store import Corpus
from hyflash_bench.training.features import FeatureStore
from hyflash_bench.training.session import open_target
from tests.training.toys import toy_plan


@pytest.mark.usefixtures("cache")
def test_precision_is_what_is_fast_unless_all_is_there_in_another(
    toy: Target, toy_corpus: Path, tiny_target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def precision(asked: str = "auto") -> str:
        return open_target(toy_plan(toy_corpus, tiny_target, feature_dtype=asked)).info.dtype

    monkeypatch.setattr(session, "has_fast_bfloat16", lambda backend: True)
    assert precision() == "bfloat16"
    corpus = Corpus.open(toy_corpus, toy.info)
    store = FeatureStore(corpus, toy, Requires())  # in float32
    store.fill([0, 1])
    assert precision() == "bfloat16"
    store.fill_all(print)
    assert precision() == "float32"
    assert precision("bfloat16") == "bfloat16"
    narrow = load_target(TargetSpec(target=str(tiny_target), dtype="bfloat16"))
    begun = FeatureStore(corpus, narrow, Requires())
    assert precision() == "float32", "nothing is kept of what was only looked at"
    begun.fill([0])
    assert precision() == "bfloat16"
