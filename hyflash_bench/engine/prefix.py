"""The target's cache of one context, of which the next one takes over what both begin with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hyflash_bench.drafters.base import Features, Requires
from hyflash_bench.engine.clock import Clock

if TYPE_CHECKING:
    from hyflash_bench.targets.cache import KVCache
    from hyflash_bench.targets.target import Target

__all__ = ["Prefix"]


@dataclass(frozen=True, slots=True)
class _Chunk:
    tokens: tuple[int, ...]
    logits: Tensor
    seconds: float


class Prefix:
    """Contexts one after the other in one KV cache.

    A context is passed in chunks of fixed size from its first token on, and only whole passes are taken
    over. So every pass has the same rows behind the same rows in any order of contexts, and what the target
    says of a context has the same bits as if it came alone.

    Attributes:
        features: Of all the context's tokens, as required.

    Args:
        target: The model.
        chunk_size: Most tokens of a chunk: small ones are taken over more often, large ones are passed a
            little faster.
    """

    def __init__(self, target: Target, chunk_size: int = 512) -> None:
        self._target = target
        self._chunk_size = chunk_size
        self._cache: KVCache | None = None
        self._chunks: list[_Chunk] = []
        self._requires = Requires()
        self.features = Features()

    @property
    def cache(self) -> KVCache:
        """The target's. What is written behind the context is lost with the next one."""
        assert self._cache is not None, "reserve first"
        return self._cache

    @property
    def length(self) -> int:
        """Tokens in the cache now."""
        return 0 if self._cache is None else self._cache.length

    @property
    def seconds(self) -> float:
        """What the passes over the context took; those that were taken over count as they took then."""
        return sum(chunk.seconds for chunk in self._chunks)

    @property
    def logits(self) -> Tensor:
        """``[vocab]`` float32 after the context's last token."""
        return self._chunks[-1].logits

    def reserve(self, capacity: int) -> None:
        """Have room for contexts of ``capacity`` tokens with what comes behind them."""
        if self._cache is None or self._cache.capacity < capacity:
            self._chunks.clear()
            self._cache, self.features = None, Features()  # let go of the old ones before the new one is made
            self._cache = self._target.new_cache(capacity)

    def read(self, tokens: Sequence[int], requires: Requires = Requires()) -> None:
        """Have exactly these tokens in the cache.

        Args:
            tokens: The context; may be empty.
            requires: Features wanted of its tokens.

        Raises:
            ContextTooLong: Past the target's last position, unless told to extrapolate.
            ValueError: Past the capacity.
        """
        if requires != self._requires:
            self._chunks.clear()
            self._requires = requires
        size = self._chunk_size
        wanted = [tuple(tokens[at : at + size]) for at in range(0, len(tokens), size)]
        self._keep(wanted)
        clock = Clock(self._target.device)
        chunks, parts = list(self._chunks), [self.features] if self._chunks else []
        for chunk in wanted[len(chunks) :]:
            before = clock.now()
            passed = self._target.prefill(torch.tensor(chunk), self.cache, requires, chunk_size=size)
            chunks.append(_Chunk(chunk, passed.logits.reshape(-1), clock.now() - before))
            parts.append(passed.features)
        self._chunks, self.features = chunks, Features.concatenate(parts)

    def _keep(self, wanted: Sequence[tuple[int, ...]]) -> None:
        """Cut back to the chunks that both contexts begin with."""
        pairs = zip(self._chunks, wanted, strict=False)
        self._chunks = [held for held, _ in takewhile(lambda pair: pair[0].tokens == pair[1], pairs)]
        length = sum(len(chunk.tokens) for chunk in self._chunks)
        # A slice would keep the whole of what it is cut from while the next context is read.
        self.features = self.features.rows(slice(length)) if length else Features()
        self.cache.truncate(length)
