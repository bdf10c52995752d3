"""One pass of a decoder-only model over few or many rows, writing into the cache.

Plain torch serves any device, dtype and length. Passes of a few rows in float32 on a CPU go
through the compiled kernels where those could be built and are no slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from hyflash_bench.targets.architecture import UNROTATED, Activation, Architecture, Layer, Norm
from hyflash_bench.targets.attention import Visibility, grouped_attention, sdpa_attention
from hyflash_bench.targets.cache import KVCache
from hyflash_bench.targets.linear import LinearForms
from hyflash_bench.targets.native import NativeDecoder

__all__ = ["Attention", "Decoder"]

Attention = Literal["auto", "grouped", "sdpa"]
Rotary = dict[str, tuple[Tensor, Tensor]]

_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": lambda x: gelu(x, approximate="tanh"),
}
_FEW_ROWS = 16
"""Rows up to which two batched products beat torch's fused attention kernel on a CPU."""


class Decoder:
    """Runs an architecture.

    Attributes:
        arch: What is run.
        native_rows: Longest pass that goes through the compiled kernels; 0 where none does.

    Args:
        arch: See above.
        rotary: The model's own rotary module.
        forms: Forms of its matrix products.
        native: The compiled kernels for this architecture, or None.
        attention: Kernel asked for; any other than ``auto`` keeps passes in plain torch.
    """

    def __init__(
        self,
        arch: Architecture,
        rotary: Any,
        forms: LinearForms,
        native: NativeDecoder | None = None,
        attention: Attention = "auto",
    ) -> None:
        self.arch = arch
        self._rotary = rotary
        self._kinds = sorted({layer.kind for layer in arch.layers})
        self._linear = forms
        self._attention = attention
        self._activation = _ACTIVATIONS[arch.activation]
        self._native = native if attention == "auto" else None
        self.native_rows = forms.native_rows if self._native is not None else 0

    @property
    def attention(self) -> str:
        """The kernel that serves a pass of one row."""
        if self.native_rows:
            return "native"
        return "grouped" if self._wants_grouped(1) else "sdpa"

    def run(
        self, x: Tensor, cache: KVCache, view: Visibility, taps: Iterable[int]
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Pass ``x [T, d]`` through all layers; fills the cache's slots, not its length.

        Returns:
            The residual stream that leaves the last layer, before the final norm, and that which
            leaves each layer in ``taps``.
        """
        rotary = self.rotary(x, view.positions, cache.capacity)
        if self._native is not None and view.num_rows <= self.native_rows:
            return self._native.run(x, cache, view, rotary, taps)
        wanted, kept = frozenset(taps), {}
        for index, layer in enumerate(self.arch.layers):
            attend = partial(self._attend, index, cache, rotary[layer.kind], view)
            x = self.layer(x, layer, attend)
            if index in wanted:
                kept[index] = x
        return x, kept

    def finish(self, x: Tensor) -> Tensor:
        """The final norm of ``[T, d]``."""
        if self._native is not None and x.shape[0] <= self.native_rows:
            norm = self.arch.final_norm
            return self._native.library.norm(x.contiguous(), norm.weight, norm.eps)
        return rms_norm(x, self.arch.final_norm)

    def logits(self, normed: Tensor) -> Tensor:
        """``[T, d]`` after the final norm to ``[T, vocab]`` float32."""
        if self._native is not None and normed.shape[0] <= self.native_rows:
            logits = self._native.library.linear(normed, self.arch.head)
        else:
            logits = self._linear(normed, self.arch.head).float()
        cap = self.arch.logit_softcap
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def layer(self, x: Tensor, layer: Layer, attend: Callable[[Tensor], Tensor]) -> Tensor:
        """Pass ``x [T, d]`` through one layer.

        Args:
            x: The residual stream.
            layer: One of the architecture's.
            attend: From queries, keys and values ``[T, (heads + 2 kv_heads) * head_dim]`` to mixed
                values ``[T, heads * head_dim]``; keeps the keys and values.
        """
        qkv = self._linear(rms_norm(x, layer.input_norm), layer.qkv)
        mixed = self._linear(attend(qkv), layer.output)
        if layer.attention_norm is not None:
            mixed = rms_norm(mixed, layer.attention_norm)
        x = x + mixed
        gate_up = self._linear(rms_norm(x, layer.mlp_norm), layer.gate_up)
        gate, up = gate_up.chunk(2, dim=-1)
        inner = self._linear(self._activation(gate) * up, layer.down)
        if layer.down_norm is not None:
            inner = rms_norm(inner, layer.down_norm)
        return x + inner

    def heads(
        self, qkv: Tensor, layer: Layer, rotary: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each ``[T, its heads, head_dim]``; normed and rotated."""
        arch = self.arch
        heads = qkv.view(qkv.shape[0], -1, arch.head_dim)
        q, k, v = torch.split(heads, [arch.num_heads, arch.num_kv_heads, arch.num_kv_heads], dim=1)
        if layer.query_norm is not None:
            q = rms_norm(q, layer.query_norm)
        if layer.key_norm is not None:
            k = rms_norm(k, layer.key_norm)
        return _rotate(q, rotary), _rotate(k, rotary), v

    def look(self, q: Tensor, keys: Tensor, values: Tensor, layer: Layer, view: Visibility) -> Tensor:
        """What queries ``[T, heads, head_dim]`` mix of the values that their layer lets them see.

        Args:
            q: Of T rows.
            keys: ``[kv_heads, N, head_dim]`` of the slots ``view.seen``; its dtype is that of the sums.
            values: Likewise.
            layer: One of the architecture's.
            view: Of the pass.

        Returns:
            ``[T, heads * head_dim]`` in the dtype of the queries.
        """
        scale, softcap = self.arch.attention_scale, self.arch.attention_softcap
        queries = q.to(keys.dtype)
        if softcap is not None or self._wants_grouped(view.num_rows):
            mask = view.mask(layer.window, q.device)
            mixed = grouped_attention(queries, keys, values, mask, scale, softcap=softcap)
        else:
            size = queries.shape[1] // keys.shape[0]
            bias = view.bias(layer.window, size, queries.dtype, q.device)
            mixed = sdpa_attention(queries, keys, values, bias, scale)
        return mixed.to(q.dtype)

    def rotary(self, x: Tensor, positions: Tensor, capacity: int) -> Rotary:
        """Cosines and sines ``[T, rotary_dim]`` of some positions, for each kind of layer.

        Args:
            x: Gives the dtype and device.
            positions: ``[T]`` int64 on the CPU.
            capacity: Of the cache.
        """
        # LongRoPE has two sets of frequencies and picks by the largest position it is shown.
        # The cache's capacity stands for it, so that all keys of a cache agree; room for drafts past
        # the model's last position does not count, there dynamic scaling would set in.
        last = min(capacity, self._rotary.config.max_position_embeddings) - 1
        shown = torch.cat([positions, torch.tensor([last])]).to(x.device)[None]
        has_kinds = isinstance(getattr(self._rotary, "rope_type", None), dict)
        kinds = [kind for kind in self._kinds if kind != UNROTATED]
        tables: Rotary = {}
        for kind in kinds if has_kinds else kinds[:1]:
            cosine, sine = self._rotary(x, shown, *((kind,) if has_kinds else ()))
            tables[kind] = (cosine[0, :-1].contiguous(), sine[0, :-1].contiguous())
        if not has_kinds:
            tables = dict.fromkeys(kinds, tables[kinds[0]])
        if UNROTATED in self._kinds:
            cosine, sine = tables[kinds[0]]
            tables[UNROTATED] = (torch.ones_like(cosine), torch.zeros_like(sine))
        return tables

    def _attend(
        self, index: int, cache: KVCache, rotary: tuple[Tensor, Tensor], view: Visibility, qkv: Tensor
    ) -> Tensor:
        layer = self.arch.layers[index]
        q, k, v = self.heads(qkv, layer, rotary)
        cache.write(index, view.start, k, v)
        keys, values = cache.read(index, view.seen(layer.window))
        return self.look(q, keys, values, layer, view)

    def _wants_grouped(self, num_rows: int) -> bool:
        if self._attention == "auto":
            return num_rows <= _FEW_ROWS
        return self._attention == "grouped"


def rms_norm(x: Tensor, norm: Norm) -> Tensor:
    """``x / rms(x) * weight`` over the last dimension, rounded where the family rounds."""
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + norm.eps)
    if norm.weight.dtype == x.dtype:
        return norm.weight * scaled.to(x.dtype)
    return (scaled * norm.weight).to(x.dtype)


def _rotate(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate the first ``rotary_dim`` numbers of every head of ``[T, heads, head_dim]``."""
    cosine, sine = rotary[0].unsqueeze(1), rotary[1].unsqueeze(1)
    width = cosine.shape[-1]
    turned, rest = x[..., :width], x[..., width:]
    low, high = turned.chunk(2, dim=-1)
    turned = turned * cosine + torch.cat([-high, low], dim=-1) * sine
    return turned if rest.shape[-1] == 0 else torch.cat([turned, rest], dim=-1)
