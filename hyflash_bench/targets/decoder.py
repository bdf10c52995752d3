"""One pass of a decoder-only model over a few or many rows, writing into the cache.

Two sets of kernels do the work: plain torch, for any device, dtype and length; and the compiled
ones, for float32 passes of a few rows on a CPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hyflash_bench.targets.architecture import Architecture, Layer, Linear, Norm
from hyflash_bench.targets.attention import Visibility, grouped_attention, sdpa_attention
from hyflash_bench.targets.cache import KVCache
from hyflash_bench.targets.linear import LinearForms
from hyflash_bench.targets.native import MAX_ROWS, Native

__all__ = ["Attention", "Decoder", "Hidden"]

Attention = Literal["auto", "grouped", "sdpa"]
Rotary = dict[str, tuple[Tensor, Tensor]]

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


@dataclass(frozen=True, slots=True)
class Hidden:
    """The residual stream of T rows.

    Attributes:
        last: ``[T, d]``, leaving the last layer, before the final norm.
        taps: Layer id -> ``[T, d]``.
    """

    last: Tensor
    taps: dict[int, Tensor]


class Kernels(ABC):
    """The four operations that a layer is made of; T rows each."""

    @abstractmethod
    def norm(self, x: Tensor, norm: Norm) -> Tensor:
        """RMS norm of ``[T, d]``."""

    @abstractmethod
    def linear(self, x: Tensor, linear: Linear) -> Tensor:
        """``[T, in]`` to ``[T, out]``."""

    @abstractmethod
    def attend(
        self,
        qkv: Tensor,
        layer: Layer,
        keys: Tensor,
        values: Tensor,
        rotary: tuple[Tensor, Tensor],
        view: Visibility,
    ) -> Tensor:
        """Write keys and values into the cache and mix what each row sees.

        Args:
            qkv: ``[T, (heads + 2 kv_heads) * head_dim]``; may be overwritten.
            layer: Its norms and window.
            keys: ``[kv_heads, capacity, head_dim]`` of the cache.
            values: Like keys.
            rotary: Cosine and sine, ``[T, rotary_dim]`` each.
            view: Which slots each row sees.

        Returns:
            ``[T, heads * head_dim]``.
        """

    @abstractmethod
    def gate(self, gate_up: Tensor) -> Tensor:
        """``[T, 2 f]`` to ``[T, f]``."""


class TorchKernels(Kernels):
    """Any device, dtype and number of rows."""

    def __init__(self, arch: Architecture, linear: LinearForms, attention: Attention) -> None:
        self._arch = arch
        self._linear = linear
        self._attention = attention
        self._activation = _ACTIVATIONS[arch.activation]

    def norm(self, x: Tensor, norm: Norm) -> Tensor:
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + norm.eps)
        if norm.weight.dtype == x.dtype:
            return norm.weight * scaled.to(x.dtype)
        return (scaled * norm.weight).to(x.dtype)

    def linear(self, x: Tensor, linear: Linear) -> Tensor:
        return self._linear(x, linear)

    def attend(
        self,
        qkv: Tensor,
        layer: Layer,
        keys: Tensor,
        values: Tensor,
        rotary: tuple[Tensor, Tensor],
        view: Visibility,
    ) -> Tensor:
        arch = self._arch
        heads = qkv.view(view.num_rows, -1, arch.head_dim)
        q, k, v = heads.split([arch.num_heads, arch.num_kv_heads, arch.num_kv_heads], dim=1)
        if layer.query_norm is not None:
            q = self.norm(q, layer.query_norm)
        if layer.key_norm is not None:
            k = self.norm(k, layer.key_norm)
        q, k = _rotate(q, rotary), _rotate(k, rotary)
        keys[:, view.start : view.stop] = k.transpose(0, 1)
        values[:, view.start : view.stop] = v.transpose(0, 1)
        seen = slice(view.lowest(layer.window), view.stop)
        mask = view.mask(layer.window, qkv.device)
        scale, softcap = arch.attention_scale, arch.attention_softcap
        if softcap is not None or self._wants_grouped(view.num_rows):
            return grouped_attention(q, keys[:, seen], values[:, seen], mask, scale, softcap)
        return sdpa_attention(q, keys[:, seen], values[:, seen], mask, scale)

    def _wants_grouped(self, num_rows: int) -> bool:
        if self._attention == "auto":
            return num_rows <= MAX_ROWS
        return self._attention == "grouped"

    def gate(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return self._activation(gate) * up


class NativeKernels(Kernels):
    """float32 passes of a few rows on a CPU, contiguous tensors."""

    def __init__(self, arch: Architecture, linear: LinearForms, native: Native) -> None:
        self._arch = arch
        self._native = native
        self._linear = linear

    def norm(self, x: Tensor, norm: Norm) -> Tensor:
        return self._native.norm(x, norm)

    def linear(self, x: Tensor, linear: Linear) -> Tensor:
        return self._linear(x, linear)

    def attend(
        self,
        qkv: Tensor,
        layer: Layer,
        keys: Tensor,
        values: Tensor,
        rotary: tuple[Tensor, Tensor],
        view: Visibility,
    ) -> Tensor:
        arch, native = self._arch, self._native
        native.append(
            qkv,
            layer.query_norm,
            layer.key_norm,
            *rotary,
            keys,
            values,
            view.start,
            arch.num_heads,
        )
        return native.attend(
            qkv,
            keys,
            values,
            *view.inner(layer.window),
            view.start,
            arch.num_heads,
            arch.attention_scale,
            arch.attention_softcap,
        )

    def gate(self, gate_up: Tensor) -> Tensor:
        return self._native.gate(gate_up, self._arch.activation)


class Decoder:
    """Runs the layers of an architecture.

    Args:
        arch: What to run.
        rotary: The model's own rotary module.
        linear: Forms of its matrix products.
        native: Compiled kernels, or None.
        attention: Kernel asked for; anything but ``auto`` turns the compiled attention off.
    """

    def __init__(
        self,
        arch: Architecture,
        rotary: Any,
        linear: LinearForms,
        native: Native | None,
        attention: Attention = "auto",
    ) -> None:
        self.arch = arch
        self._rotary = rotary
        self._kinds = sorted({layer.kind for layer in arch.layers})
        self._torch = TorchKernels(arch, linear, attention)
        is_native = (
            native is not None
            and attention == "auto"
            and native.has_gate(arch.activation)
            and all(Native.fits(item) for item in arch.linears)
        )
        self._native = NativeKernels(arch, linear, native) if native and is_native else None

    def kernels(self, num_rows: int) -> Kernels:
        """The kernels for a pass of so many rows."""
        return self._native if self._native and num_rows <= MAX_ROWS else self._torch

    def run(self, x: Tensor, cache: KVCache, view: Visibility, taps: Iterable[int]) -> Hidden:
        """Pass ``x [T, d]`` through all layers; the cache's slots are filled, its length not."""
        do = self.kernels(view.num_rows)
        rotary = self._positions(x, view, cache.capacity)
        wanted, kept = frozenset(taps), {}
        for index, layer in enumerate(self.arch.layers):
            keys, values = cache.layers[index]
            qkv = do.linear(do.norm(x, layer.input_norm), layer.qkv)
            mixed = do.attend(qkv, layer, keys, values, rotary[layer.kind], view)
            mixed = do.linear(mixed, layer.output)
            if layer.attention_norm is not None:
                mixed = do.norm(mixed, layer.attention_norm)
            x = x + mixed
            inner = do.gate(do.linear(do.norm(x, layer.mlp_norm), layer.gate_up))
            inner = do.linear(inner, layer.down)
            if layer.down_norm is not None:
                inner = do.norm(inner, layer.down_norm)
            x = x + inner
            if index in wanted:
                kept[index] = x
        return Hidden(x, kept)

    def finish(self, x: Tensor) -> Tensor:
        """The final norm of ``[T, d]``."""
        return self.kernels(x.shape[0]).norm(x, self.arch.final_norm)

    def logits(self, normed: Tensor) -> Tensor:
        """``[T, d]`` after the final norm to ``[T, vocab]`` float32."""
        logits = self.kernels(normed.shape[0]).linear(normed, self.arch.head).float()
        cap = self.arch.logit_softcap
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def _positions(self, x: Tensor, view: Visibility, capacity: int) -> Rotary:
        # LongRoPE has two sets of frequencies and picks by the largest position it is shown.
        # The cache's capacity stands for it, so that all keys of a cache agree.
        shown = torch.cat([view.positions, torch.tensor([capacity - 1])]).to(x.device)[None]
        has_kinds = isinstance(getattr(self._rotary, "rope_type", None), dict)
        tables: Rotary = {}
        for kind in self._kinds if has_kinds else self._kinds[:1]:
            cosine, sine = self._rotary(x, shown, *((kind,) if has_kinds else ()))
            tables[kind] = (cosine[0, :-1].contiguous(), sine[0, :-1].contiguous())
        if not has_kinds:
            tables = dict.fromkeys(self._kinds, tables[self._kinds[0]])
        return tables


def _rotate(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate the first ``rotary_dim`` numbers of every head of ``[T, heads, head_dim]``."""
    cosine, sine = rotary[0].unsqueeze(1), rotary[1].unsqueeze(1)
    width = cosine.shape[-1]
    turned, rest = x[..., :width], x[..., width:]
    low, high = turned.chunk(2, dim=-1)
    turned = turned * cosine + torch.cat([-high, low], dim=-1) * sine
    return turned if rest.shape[-1] == 0 else torch.cat([turned, rest], dim=-1)
