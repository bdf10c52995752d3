"""Many contexts of one length that grow in step: a batch without padding or masks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from hyflash_bench.drafters.base import Features, Requires
from hyflash_bench.targets.architecture import Layer
from hyflash_bench.targets.attention import Visibility
from hyflash_bench.targets.decoder import Decoder
from hyflash_bench.targets.native import RowAttention, load_row_attention

__all__ = ["Rows"]


class Rows:
    """Contexts of the same length with their KV cache. Made by ``Target.new_rows``.

    Weights are read once for all rows of a pass, which is what generating text is bound by.

    Args:
        decoder: The target's.
        embedding: From token ids to ``[..., d]``.
        num_rows: N, contexts.
        capacity: Most tokens of each.
    """

    def __init__(
        self, decoder: Decoder, embedding: Callable[[Tensor], Tensor], num_rows: int, capacity: int
    ) -> None:
        arch = decoder.arch
        weight = arch.head.weight
        shape = (num_rows, arch.num_kv_heads, capacity, arch.head_dim)
        self._native = load_row_attention() if RowAttention.fits(arch) else None
        # Without a kernel of our own, a batched product of half-precision slices on a CPU copies
        # all of them first.
        is_slow = weight.device.type == "cpu" and self._native is None
        dtype = torch.float32 if is_slow else weight.dtype
        self._decoder = decoder
        self._embedding = embedding
        self._capacity = capacity
        self._caches = [
            (weight.new_zeros(shape, dtype=dtype), weight.new_zeros(shape, dtype=dtype)) for _ in arch.layers
        ]
        self.num_rows = num_rows
        self.length = 0

    @torch.inference_mode()
    def append(
        self, tokens: Tensor, requires: Requires = Requires(), *, chunk_size: int = 256
    ) -> tuple[Tensor, Features]:
        """Append tokens to every context.

        Args:
            tokens: ``[N, T]`` int64, T at least 1.
            requires: Features wanted of all positions; logits are not among them.
            chunk_size: Most tokens of a context in one pass.

        Returns:
            Logits ``[N, vocab]`` float32 of the last token of each; features, whose tensors are
            ``[N, T, hidden]``.

        Raises:
            ValueError: Past the capacity, or tokens of another shape.
        """
        if tokens.ndim != 2 or tokens.shape[0] != self.num_rows or tokens.shape[1] == 0:
            raise ValueError(f"tokens must be [{self.num_rows}, T] with T >= 1, not {list(tokens.shape)}")
        if self.length + tokens.shape[1] > self._capacity:
            raise ValueError(f"{self.length} + {tokens.shape[1]} tokens exceed the capacity {self._capacity}")
        x, parts = tokens, []
        for chunk in torch.split(tokens, chunk_size, dim=1):
            x, taps = self._pass(chunk, requires.taps)
            normed = self._decoder.finish(x.flatten(0, 1)).view_as(x) if requires.last_hidden else None
            parts.append(Features(taps=taps, last_hidden=normed))
        logits = self._decoder.logits(self._decoder.finish(x[:, -1].contiguous()))
        return logits, Features.concatenate(parts, dim=1)

    def _pass(self, tokens: Tensor, taps: tuple[int, ...]) -> tuple[Tensor, dict[int, Tensor]]:
        """The residual stream ``[N, T, d]`` that leaves the last layer, and that which leaves each tap."""
        num_rows, num_new = tokens.shape
        decoder = self._decoder
        view = Visibility(self.length, num_new)
        x = self._embedding(tokens.reshape(-1).to(decoder.arch.head.weight.device))
        tables = {
            kind: (cosine.repeat(num_rows, 1), sine.repeat(num_rows, 1))
            for kind, (cosine, sine) in decoder.rotary(x, view.positions, self._capacity).items()
        }
        kept = {}
        for index, (layer, cache) in enumerate(zip(decoder.arch.layers, self._caches, strict=True)):
            x = decoder.layer(x, layer, partial(self._attend, layer, cache, tables[layer.kind], view))
            if index in taps:
                kept[index] = x.view(num_rows, num_new, -1)
        self.length += num_new
        return x.view(num_rows, num_new, -1), kept

    def _attend(
        self,
        layer: Layer,
        cache: tuple[Tensor, Tensor],
        rotary: tuple[Tensor, Tensor],
        view: Visibility,
        qkv: Tensor,
    ) -> Tensor:
        """Attention within each row: to the kernels, rows are nothing but more heads."""
        num_rows, num_new, size = self.num_rows, view.num_rows, self._decoder.arch.head_dim
        q, *fresh = self._decoder.heads(qkv, layer, rotary)
        for kept, new in zip(cache, fresh, strict=True):
            by_row = new.reshape(num_rows, num_new, -1, size)
            kept[:, :, view.start : view.stop] = by_row.transpose(1, 2)
        if self._native is not None and num_new == 1:
            scale = self._decoder.arch.attention_scale
            return self._native(q.float(), *cache, seen=view.stop, scale=scale).to(qkv.dtype)
        seen = view.seen(layer.window)
        keys, values = (kept.flatten(0, 1)[:, seen] for kept in cache)
        if self._native is not None:
            # The kernel is for single tokens; longer passes pay for wide copies of one layer.
            keys, values = keys.float(), values.float()
        as_heads = q.reshape(num_rows, num_new, -1, size).transpose(0, 1).reshape(num_new, -1, size)
        mixed = self._decoder.look(as_heads, keys, values, layer, view)
        return mixed.reshape(num_new, num_rows, -1).transpose(0, 1).reshape(num_rows * num_new, -1)
