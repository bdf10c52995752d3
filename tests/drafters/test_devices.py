"""Drafters on a GPU: none mixes devices, and what they draft is what they draft on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from hyflash_bench.drafters import Drafter
from hyflash_bench.drafters.eagle import Eagle
from hyflash_bench.drafters.full_context import FullContext
from hyflash_bench.drafters.hyflash import HyFlash
from hyflash_bench.drafters.medusa import Medusa
from hyflash_bench.drafters.memory_only import MemoryOnly
from hyflash_bench.drafters.prompt_lookup import PromptLookup
from hyflash_bench.drafters.suffix import Suffix
from hyflash_bench.drafters.window import Window
from tests.drafters.networks.blocks import block
from tests.drafters.networks.small import context, eagle, medusa, saved, taught
from tests.drafters.walks import check_lossless, opened, own_answers
from tests.emulated import DEVICES, emulated

COPYING: dict[str, Any] = {"copy_window": 9, "copy_size": 8, "recall_rows": 16, "draft_vocab_size": 97}
CASES: dict[str, tuple[type[Drafter], Callable[[], Any], dict[str, Any]]] = {
    "hyflash": (HyFlash, lambda: block("hyflash, shifts", markov_rank=8, **COPYING), {}),
    "hyflash, int8": (
        HyFlash, lambda: block("hyflash, 2 layers", **COPYING), {"kv_dtype": "int8", "min_confidence": 1e-6},
    ),
    "full-context": (FullContext, lambda: block("full-context", **COPYING), {}),
    "full-context, cut": (FullContext, lambda: block("full-context", **COPYING), {"window": 8}),
    "window": (Window, lambda: block("window", **COPYING), {}),
    "memory-only": (MemoryOnly, lambda: block("memory-only", **COPYING), {}),
    "eagle": (Eagle, lambda: eagle(**COPYING), {}),
    "eagle, tree": (Eagle, lambda: eagle(**COPYING), {"tree": True, "depth": 3, "top_k": 3}),
    "medusa": (Medusa, lambda: medusa(**COPYING), {}),
    "medusa, tree": (Medusa, lambda: medusa(**COPYING), {"tree": True}),
}  # fmt: skip


@cache
def knowing(name: str) -> Any:
    """A network that knows the target's answers by heart."""
    network = CASES[name][1]()
    return taught(network, own_answers(network.requires))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CASES)
def test_trained_ones_are_lossless_there(name: str, device: str, tmp_path: Path) -> None:
    kind, _, options = CASES[name]
    folder = saved(knowing(name), tmp_path)
    with emulated(device):
        drafter = opened(kind, folder, on=device, **options)
        for temperature in (0.0, 0.3):
            check_lossless(drafter, temperature, device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", [PromptLookup, Suffix])
def test_those_that_look_tokens_up_need_nothing_of_it(kind: type[Drafter], device: str) -> None:
    drafter = kind(kind.Options())
    with emulated(device):
        drafter.load(context(on=device))
        check_lossless(drafter, 0.0, device)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("options", [{"compile": True}, {"cuda_graphs": True}], ids=str)
@pytest.mark.parametrize("name", ["hyflash", "eagle", "medusa"])
def test_compiled_ones_are_lossless_there(name: str, options: dict[str, bool], tmp_path: Path) -> None:
    folder = saved(knowing(name), tmp_path)
    check_lossless(opened(CASES[name][0], folder, on="cuda", **options), 0.0, "cuda")
