"""What search structures say they hold is what the interpreter allocated for them."""

from __future__ import annotations

import random
import tracemalloc

import pytest
import torch

from hyflash_bench.drafters import Drafter, Features
from hyflash_bench.drafters.base import bytes_by_kind
from hyflash_bench.registry import build_drafter
from hyflash_bench.spec.drafter import DrafterSpec


def skewed_text(length: int, vocab_size: int = 20_000) -> torch.Tensor:
    """Tokens with the frequencies of words: a few are everywhere, most are rare."""
    dice = random.Random(0)
    return torch.tensor([min(int(dice.paretovariate(0.9)), vocab_size) + 300 for _ in range(length)])


def allocated_by(drafter: Drafter, tokens: torch.Tensor) -> int:
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for part in tokens.split(512):
        drafter.observe(part, Features())
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return after - before


@pytest.mark.parametrize("text", ["prompt-lookup", "prompt-lookup:match=first", "suffix"])
def test_counted_bytes_are_the_allocated_ones(text: str) -> None:
    drafter = build_drafter(DrafterSpec.from_text(text))
    allocated = allocated_by(drafter, skewed_text(20_000))
    # Every entry counts with integers of its own, some of which are one object in truth.
    assert 0.95 * allocated <= bytes_by_kind(drafter.memory())["buffer"] <= 1.15 * allocated


@pytest.mark.parametrize("text", ["prompt-lookup", "suffix"])
def test_forgetting_frees_them(text: str) -> None:
    drafter = build_drafter(DrafterSpec.from_text(text))
    empty = bytes_by_kind(drafter.memory())
    drafter.observe(skewed_text(2_000), Features())
    drafter.reset()
    assert bytes_by_kind(drafter.memory()) == empty
