"""A target and a drafting model small enough to reason about."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from hyflash_bench.drafters import LoadContext, Sampler
from hyflash_bench.spec.sampling import GREEDY, Sampling
from hyflash_bench.targets.cache import KVCache

VOCAB_SIZE = 64


def sampler(seed: int = 0, temperature: float = 0.0) -> Sampler:
    return Sampler(Sampling(temperature=temperature) if temperature else GREEDY, seed)


class WordList:
    """A tokenizer as far as drafters look at one."""

    def __init__(self, words: list[str]) -> None:
        self._words = words

    def get_vocab(self) -> dict[str, int]:
        return {word: index for index, word in enumerate(self._words)}


def words(count: int) -> list[str]:
    return [f"word{index}" for index in range(count)]


def load_context(vocab_size: int = VOCAB_SIZE) -> LoadContext:
    return LoadContext(
        info=SimpleNamespace(vocab_size=vocab_size),
        model=None,
        tokenizer=WordList(words(vocab_size)),
        device=torch.device("cpu"),
        dtype=torch.float32,
    )


@dataclass(frozen=True)
class FakePass:
    logits: Tensor


class FakeModel:
    """Reads the last two tokens back from its cache, so that a wrong row changes what it says."""

    def __init__(self, vocab_size: int = VOCAB_SIZE, max_positions: int = 2048) -> None:
        self.info = SimpleNamespace(
            max_positions=max_positions,
            vocab_size=vocab_size,
            kv_bytes_per_token=8,
            weight_bytes=4 * vocab_size,
        )
        self.model = torch.nn.Embedding(vocab_size, 1)
        self.tokenizer = WordList(words(vocab_size))
        self.rows_computed = 0

    def new_cache(self, capacity: int) -> KVCache:
        return KVCache(
            num_layers=1,
            num_kv_heads=1,
            head_dim=1,
            capacity=capacity,
            dtype=torch.float32,
            device=torch.device("cpu"),
        )

    def prefill(self, tokens: Tensor, cache: KVCache) -> FakePass:
        return FakePass(self.forward(tokens, cache).logits[-1:])

    def forward(self, tokens: Tensor, cache: KVCache) -> FakePass:
        start = cache.reserve(len(tokens))
        keys = cache.numbers[0, 0, 0, :, 0]
        keys[start : start + len(tokens)] = tokens.float()
        cache.length += len(tokens)
        self.rows_computed += len(tokens)
        ends = range(start + 1, cache.length + 1)
        return FakePass(torch.stack([self._after(keys[:end].long().tolist()) for end in ends]))

    def _after(self, text: list[int]) -> Tensor:
        seed = hash(tuple(text[-2:])) & 0xFFFF
        random = torch.Generator().manual_seed(seed)
        return 3.0 * torch.randn(self.info.vocab_size, generator=random)


def serve_models(monkeypatch: pytest.MonkeyPatch, **models: Any) -> None:
    """Let ``load_target`` find these models by name, and a fresh fake under any other."""

    def load_target(spec: Any) -> Any:
        return models.get(spec.target) or FakeModel()

    module = SimpleNamespace(load_target=load_target)
    monkeypatch.setitem(sys.modules, "hyflash_bench.targets.load", module)
