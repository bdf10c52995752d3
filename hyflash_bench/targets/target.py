"""A loaded target: prefill a context, verify a draft, hand out features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hyflash_bench.drafters.base import Features, LoadContext, Requires
from hyflash_bench.errors import ContextTooLong
from hyflash_bench.kv import same_step
from hyflash_bench.targets.attention import Visibility
from hyflash_bench.targets.cache import KVCache
from hyflash_bench.targets.decoder import Decoder
from hyflash_bench.targets.info import TargetInfo
from hyflash_bench.targets.rows import Rows

__all__ = ["Pass", "Target"]


@dataclass(frozen=True, slots=True)
class Pass:
    """What the target says after T tokens.

    Attributes:
        logits: ``[T, vocab]`` float32; of the last token only after :meth:`Target.prefill`.
        features: What was required of the T positions.
    """

    logits: Tensor
    features: Features


class Target:
    """The model whose output is wanted. Made by :func:`hyflash_bench.targets.load.load_target`.

    Passes run under ``torch.inference_mode``: a caller that trains on features clones them first.

    Attributes:
        info: Facts that go into records.
        tokenizer: The transformers tokenizer.
        model: The transformers model, for drafters that share its embedding or head.
    """

    def __init__(self, info: TargetInfo, tokenizer: Any, model: Any, decoder: Decoder) -> None:
        self.info = info
        self.tokenizer = tokenizer
        self.model = model
        self._decoder = decoder
        self._embedding = model.get_input_embeddings()

    @property
    def device(self) -> torch.device:
        """Where weights and cache live."""
        return self._decoder.arch.head.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Precision of weights and features."""
        return self._decoder.arch.head.weight.dtype

    @property
    def tolerance_dtype(self) -> torch.dtype:
        """The dtype by whose rounding two passes over the same text may differ: the coarsest at work."""
        return max(self.dtype, same_step(self.info.kv_dtype), key=lambda dtype: torch.finfo(dtype).eps)

    def load_context(self) -> LoadContext:
        """What a drafter may look at while it loads."""
        return LoadContext(self.info, self.model, self.tokenizer, self.device, self.dtype)

    def new_cache(self, capacity: int) -> KVCache:
        """An empty cache for ``capacity`` tokens, allocated at once."""
        arch = self._decoder.arch
        return KVCache(
            num_layers=len(arch.layers),
            num_kv_heads=arch.num_kv_heads,
            head_dim=arch.head_dim,
            capacity=capacity,
            dtype=self.dtype,
            device=self.device,
            kv_dtype=self.info.kv_dtype,
        )

    def new_rows(self, num_rows: int, capacity: int) -> Rows:
        """Empty contexts that grow in step, for generating much text at once.

        Args:
            num_rows: Contexts.
            capacity: Most tokens of each.

        Raises:
            ContextTooLong: Past the target's last position, unless told to extrapolate.
        """
        self._check_positions(capacity)
        return Rows(self._decoder, self._embedding, num_rows, capacity)

    @torch.inference_mode()
    def prefill(
        self,
        tokens: Tensor,
        cache: KVCache,
        requires: Requires = Requires(),
        *,
        chunk_size: int = 512,
    ) -> Pass:
        """Append a context to the cache, a chunk at a time.

        Args:
            tokens: ``[T]`` int64, T at least 1.
            cache: Filled from its length on.
            requires: Features wanted of all T positions.
            chunk_size: Most tokens in one chunk.

        Returns:
            Logits ``[1, vocab]`` of the last token, and features of all T.

        Raises:
            ContextTooLong: Past the target's last position, unless told to extrapolate.
            ValueError: Past the cache's capacity.
        """
        num_rows = _count(tokens)
        cache.reserve(num_rows)
        self._check_positions(cache.length + num_rows)
        parts: list[Features] = []
        last = tokens[:0]
        for chunk in torch.split(tokens, chunk_size):
            x, taps = self._append(chunk, cache, requires, None)
            normed = self._decoder.finish(x) if _wants_all(requires) else None
            parts.append(
                Features(
                    taps=taps,
                    last_hidden=normed if requires.last_hidden else None,
                    logits=self._decoder.logits(normed) if requires.logits and normed is not None else None,
                )
            )
            last = x[-1:]
        logits = self._decoder.logits(self._decoder.finish(last))
        return Pass(logits, Features.concatenate(parts))

    @torch.inference_mode()
    def forward(
        self,
        tokens: Tensor,
        cache: KVCache,
        requires: Requires = Requires(),
        *,
        parents: Tensor | None = None,
    ) -> Pass:
        """Append a few tokens to the cache and say what follows each.

        Args:
            tokens: ``[T]`` int64, T at least 1.
            cache: Filled from its length on, a slot per token.
            requires: Features wanted of the T positions.
            parents: ``[T]`` int64 for a tree: the index within ``tokens`` of each token's parent,
                -1 for a child of the cached context. A token sees the context, its ancestors and
                itself, and stands at position ``length + depth``. After a tree pass
                :meth:`KVCache.keep` puts the accepted path in order. None for a chain.

        Returns:
            Logits ``[T, vocab]`` and features of every token.

        Raises:
            ContextTooLong: Past the target's last position, unless told to extrapolate.
            ValueError: Past the cache's capacity, or parents that are no tree.
        """
        cache.reserve(_count(tokens))
        x, taps = self._append(tokens, cache, requires, parents)
        normed = self._decoder.finish(x)
        logits = self._decoder.logits(normed)
        features = Features(
            taps=taps,
            last_hidden=normed if requires.last_hidden else None,
            logits=logits if requires.logits else None,
        )
        return Pass(logits, features)

    def _append(
        self, tokens: Tensor, cache: KVCache, requires: Requires, parents: Tensor | None
    ) -> tuple[Tensor, dict[int, Tensor]]:
        num_rows = _count(tokens)
        view = Visibility(cache.length, num_rows, parents)
        self._check_positions(int(view.positions.max()) + 1)
        x = self._embedding(tokens.to(self.device))
        passed = self._decoder.run(x, cache, view, requires.taps)
        cache.length += num_rows
        return passed

    def _check_positions(self, length: int) -> None:
        limit = self.info.max_positions
        if length > limit and not self.info.extrapolate:
            raise ContextTooLong(
                f"A context of {length} tokens exceeds the {limit} positions that "
                f"{self.info.name} was made for. Shorten it, or allow extrapolation, which "
                "labels the results."
            )


def _count(tokens: Tensor) -> int:
    if tokens.ndim != 1 or tokens.shape[0] == 0:
        raise ValueError(f"tokens must be [T] with T >= 1, not {list(tokens.shape)}")
    return int(tokens.shape[0])


def _wants_all(requires: Requires) -> bool:
    return requires.last_hidden or requires.logits
