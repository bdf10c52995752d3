"""A tiny target with its corpus, and a cache of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hyflash_bench.targets.target import Target
from hyflash_bench.training import trainer
from tests.training.toys import toy_documents, toy_target, write_corpus


@pytest.fixture(scope="session")
def toy(tiny_target: Path) -> Target:
    """The tiny target, loaded once."""
    return toy_target(tiny_target)


@pytest.fixture(scope="session")
def toy_corpus(toy: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a corpus for it."""
    return write_corpus(tmp_path_factory.mktemp("toy") / "corpus", toy, toy_documents(40))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("HYFLASH_BENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def loaded(toy: Target, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    """Trainings in this test use the target that is loaded already."""
    monkeypatch.setattr(trainer, "open_target", lambda plan: toy)
    return toy


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
