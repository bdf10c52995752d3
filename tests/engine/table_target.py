"""A target whose next-token distribution is a pure function of the tokens before it.

It answers the engine's interface exactly, so that the engine's bookkeeping (caches, trees, cuts) can
be checked against arithmetic instead of against a model.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from hyflash_bench.drafters.base import Features, Requires


@dataclass(frozen=True)
class TableInfo:
    vocab_size: int
    hidden_size: int = 2
    max_positions: int = 10_000
    eos_token_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class TablePass:
    logits: Tensor
    features: Features


class TableCache:
    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.length = 0
        self.rows: list[int] = [-1] * capacity

    def truncate(self, length: int) -> None:
        assert length <= self.length
        self.length = length

    def keep(self, start: int, rows: Tensor) -> None:
        kept = [self.rows[start + int(row)] for row in rows]
        self.rows[start : start + len(kept)] = kept
        self.length = start + len(kept)

    def save(self, start: int, stop: int) -> tuple[int, list[int]]:
        return start, self.rows[start:stop]

    def restore(self, saved: tuple[int, list[int]]) -> None:
        start, rows = saved
        self.rows[start : start + len(rows)] = rows


class TableTarget:
    """Logits depend on the last ``order`` tokens and a seed; features name position and token."""

    def __init__(
        self,
        vocab_size: int,
        *,
        order: int = 2,
        seed: int = 0,
        sharpness: float = 2.0,
        eos: int | None = None,
    ) -> None:
        self.info = TableInfo(vocab_size, eos_token_ids=() if eos is None else (eos,))
        self.device = torch.device("cpu")
        self.dtype = torch.float32
        self._order, self._seed, self._sharpness = order, seed, sharpness
        self.num_passes = 0

    def new_cache(self, capacity: int) -> TableCache:
        return TableCache(capacity)

    def logits_after(self, path: list[int]) -> Tensor:
        text = repr((self._seed, path[-self._order :]))
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
        generator = torch.Generator().manual_seed(seed)
        return self._sharpness * torch.randn(self.info.vocab_size, generator=generator)

    def forward(
        self,
        tokens: Tensor,
        cache: TableCache,
        requires: Requires = Requires(),
        *,
        parents: Tensor | None = None,
    ) -> TablePass:
        self.num_passes += 1
        start = cache.length
        prefix = cache.rows[:start]
        assert start + len(tokens) <= cache.capacity
        paths: list[list[int]] = []
        for row, token in enumerate(tokens.tolist()):
            parent = row - 1 if parents is None else int(parents[row])
            paths.append([*(paths[parent] if parent >= 0 else prefix), token])
            cache.rows[start + row] = token
        cache.length = start + len(tokens)
        features = torch.tensor([[float(len(path) - 1), float(path[-1])] for path in paths])
        return TablePass(
            torch.stack([self.logits_after(path) for path in paths]),
            Features(taps=dict.fromkeys(requires.taps, features)),
        )

    def prefill(
        self, tokens: Tensor, cache: TableCache, requires: Requires = Requires(), *, chunk_size: int = 512
    ) -> TablePass:
        result = self.forward(tokens, cache, requires)
        return TablePass(result.logits[-1], result.features)
