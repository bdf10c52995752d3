"""Fixtures that several parts share. Tests need no network once the set-up has fetched the target."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
if side_by_side := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):  # the cores are shared out among them
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // int(side_by_side))))

import pytest


@pytest.fixture(scope="session")
def smollm2() -> object:
    """The default target, loaded in fp32."""
    from hyflash_bench.spec.target import TargetSpec
    from hyflash_bench.targets.load import load_target

    return load_target(TargetSpec())


@pytest.fixture(scope="session")
def smollm2_tokenizer() -> object:
    """The default target's tokenizer with its chat template, without the model."""
    from transformers import AutoTokenizer

    from hyflash_bench.suites.chat import ChatTokenizer
    from hyflash_bench.targets.presets import preset_folder

    return ChatTokenizer(AutoTokenizer.from_pretrained(preset_folder("smollm2-135m")))


@pytest.fixture(autouse=True)
def _no_results_in_the_work_tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Commands without --output-path write to ``results/`` below the working folder."""
    with contextlib.chdir(tmp_path_factory.mktemp("cwd")):
        yield


@pytest.fixture(scope="session")
def tiny_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny random chat model."""
    from tests.tiny import save_tiny_target

    return save_tiny_target(tmp_path_factory.mktemp("tiny-target"))
