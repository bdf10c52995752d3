"""Passes of a few rows through ``kernels.c``, where that can be built."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable
from ctypes import POINTER, Structure, byref, c_float, c_int, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hyflash_bench.footprint import KVDtype
from hyflash_bench.native.build import open_library
from hyflash_bench.native.library import LANES, Library, fits
from hyflash_bench.targets.architecture import Activation, Architecture, Layer, Linear, Norm
from hyflash_bench.targets.attention import Visibility
from hyflash_bench.targets.cache import KVCache

__all__ = ["NativeDecoder", "NativeLibrary", "RowAttention", "load_native", "load_row_attention"]

_ROW_LANES, _ROW_QUERIES = 16, 4  # as in rows.c
_GATES: dict[Activation, int] = {"silu": 0, "gelu_tanh": 1}
_KINDS: dict[KVDtype, int] = {"float32": 0, "bfloat16": 1, "float16": 2, "int8": 3}
_PACKAGE = "hyflash_bench.targets"


class _Matrix(Structure):
    _fields_ = (("weight", c_void_p), ("bias", c_void_p))


class _Layer(Structure):
    _fields_ = (
        ("input_norm", c_void_p),
        ("query_norm", c_void_p),
        ("key_norm", c_void_p),
        ("attention_norm", c_void_p),
        ("mlp_norm", c_void_p),
        ("down_norm", c_void_p),
        ("qkv", _Matrix),
        ("output", _Matrix),
        ("gate_up", _Matrix),
        ("down", _Matrix),
        ("table", c_int64),
        ("window", c_int64),
    )


class _Model(Structure):
    _fields_ = (
        ("layers", c_int64),
        ("width", c_int64),
        ("heads", c_int64),
        ("kv_heads", c_int64),
        ("head_dim", c_int64),
        ("inner", c_int64),
        ("is_gelu", c_int64),
        ("eps", c_float),
        ("scale", c_float),
        ("softcap", c_float),
    )


class _Pass(Structure):
    _fields_ = (
        ("rows", c_int64),
        ("rotary_dim", c_int64),
        ("slots", c_int64),
        ("start", c_int64),
        ("kind", c_int64),
        ("cache", c_void_p),
        ("scales", c_void_p),
        ("cosine", POINTER(c_void_p)),
        ("sine", POINTER(c_void_p)),
        ("first", POINTER(c_void_p)),
        ("within", POINTER(c_void_p)),
        ("taps", POINTER(c_void_p)),
        ("x", c_void_p),
        ("scratch", c_void_p),
    )


class NativeLibrary(Library):
    """The compiled functions."""

    def __init__(self, path: Path, digest: str) -> None:
        super().__init__(path, digest)
        model = POINTER(_Model)
        self.decode = self.function("decode", [model, POINTER(_Layer), POINTER(_Pass), c_int])
        self.scratch_floats = self.function(
            "scratch_floats", [model, c_int64, c_int64, c_int], result=c_int64
        )

    def linear(self, x: Tensor, linear: Linear) -> Tensor:
        """``x [T, in]`` times a weight that the kernels fit: ``[T, out]``."""
        return self.product(x, linear.weight, linear.bias)


class NativeDecoder:
    """Runs all layers of one architecture in a single call."""

    def __init__(self, arch: Architecture, library: NativeLibrary) -> None:
        self.library = library
        self._arch = arch
        self._kinds = sorted({layer.kind for layer in arch.layers})
        self._windows = list(dict.fromkeys(layer.window for layer in arch.layers))
        first = arch.layers[0]
        self._model = _Model(
            layers=len(arch.layers),
            width=first.qkv.weight.shape[1],
            heads=arch.num_heads,
            kv_heads=arch.num_kv_heads,
            head_dim=arch.head_dim,
            inner=first.down.weight.shape[1],
            is_gelu=_GATES[arch.activation],
            eps=first.input_norm.eps,
            scale=arch.attention_scale,
            softcap=arch.attention_softcap or 0.0,
        )
        self._layers = (_Layer * len(arch.layers))(*map(self._layer, arch.layers))
        self._room = threading.local()

    @staticmethod
    def fits(arch: Architecture) -> bool:
        """Whether the kernels can serve an architecture."""
        norms = [norm for layer in arch.layers for norm in _norms(layer)] + [arch.final_norm]
        return (
            arch.activation in _GATES
            and arch.head_dim % LANES == 0
            and all(fits(linear.weight) for linear in arch.linears)
            and len({norm.eps for norm in norms}) == 1
            and all(norm.weight.dtype == torch.float32 for norm in norms)
        )

    def run(
        self,
        x: Tensor,
        cache: KVCache,
        view: Visibility,
        rotary: dict[str, tuple[Tensor, Tensor]],
        taps: Iterable[int],
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Pass ``x [T, d]`` through all layers and fill the cache's slots.

        Returns:
            The residual stream after the last layer, and after each layer in ``taps``.
        """
        rows = x.shape[0]
        out = x.clone(memory_format=torch.contiguous_format)
        kept = {layer: torch.empty_like(out) for layer in taps}
        threads = torch.get_num_threads()
        needed = self.library.scratch_floats(byref(self._model), rows, view.start, threads)
        scratch = getattr(self._room, "scratch", None)
        if scratch is None or scratch.numel() < needed:
            scratch = self._room.scratch = torch.empty(needed + needed // 4)
        tables = [rotary[kind] for kind in self._kinds]
        views = [view.inner(window) for window in self._windows]
        self.library.decode(
            byref(self._model),
            self._layers,
            byref(
                _Pass(
                    rows=rows,
                    rotary_dim=tables[0][0].shape[1],
                    slots=cache.num_slots,
                    start=view.start,
                    kind=_KINDS[cache.kv_dtype],
                    cache=cache.numbers.data_ptr(),
                    scales=None if cache.scales is None else cache.scales.data_ptr(),
                    cosine=_pointers(cosine for cosine, _ in tables),
                    sine=_pointers(sine for _, sine in tables),
                    first=_pointers(first for first, _ in views),
                    within=_pointers(within for _, within in views),
                    taps=_pointers(map(kept.get, range(len(self._arch.layers)))),
                    x=out.data_ptr(),
                    scratch=scratch.data_ptr(),
                )
            ),
            threads,
        )
        return out, kept

    def _layer(self, layer: Layer) -> _Layer:
        return _Layer(
            input_norm=layer.input_norm.weight.data_ptr(),
            query_norm=_weight(layer.query_norm),
            key_norm=_weight(layer.key_norm),
            attention_norm=_weight(layer.attention_norm),
            mlp_norm=layer.mlp_norm.weight.data_ptr(),
            down_norm=_weight(layer.down_norm),
            qkv=_Matrix(*_matrix(layer.qkv)),
            output=_Matrix(*_matrix(layer.output)),
            gate_up=_Matrix(*_matrix(layer.gate_up)),
            down=_Matrix(*_matrix(layer.down)),
            table=self._kinds.index(layer.kind),
            window=self._windows.index(layer.window),
        )


def _norms(layer: Layer) -> list[Norm]:
    norms = (
        layer.input_norm,
        layer.query_norm,
        layer.key_norm,
        layer.attention_norm,
        layer.mlp_norm,
        layer.down_norm,
    )
    return [norm for norm in norms if norm is not None]


def _weight(norm: Norm | None) -> int | None:
    return None if norm is None else norm.weight.data_ptr()


def _matrix(linear: Linear) -> tuple[int, int | None]:
    return linear.weight.data_ptr(), None if linear.bias is None else linear.bias.data_ptr()


def _pointers(tensors: Iterable[Tensor | None]) -> Any:
    addresses = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
    return (c_void_p * len(addresses))(*addresses)


@cache
def load_native() -> NativeLibrary | None:
    """The kernels, compiled on first use (about a second); None where that is not possible."""
    return open_library(NativeLibrary, _PACKAGE, "kernels.c")


class RowAttention:
    """Attention of one new token in each of N contexts, through ``rows.c``."""

    def __init__(self, path: Path, _: str) -> None:
        self._attend: Any = ctypes.CDLL(str(path)).attend_rows
        self._attend.argtypes = [c_void_p] * 5 + [c_int64] * 6 + [c_float, c_int]
        self._attend.restype = None

    @staticmethod
    def fits(arch: Architecture) -> bool:
        """Whether it can serve all layers: half-precision caches on a CPU, all of the context seen."""
        weight = arch.head.weight
        return (
            weight.device.type == "cpu"
            and weight.dtype == torch.bfloat16
            and arch.head_dim % (2 * _ROW_LANES) == 0
            and arch.attention_softcap is None
            and all(layer.window is None for layer in arch.layers)
        )

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor, seen: int, scale: float) -> Tensor:
        """Mix values.

        Args:
            queries: ``[N, heads, head_dim]`` float32.
            keys: ``[N, kv_heads, capacity, head_dim]`` bfloat16, contiguous.
            values: Likewise.
            seen: Slots of the cache that hold something.
            scale: Factor of the scores.

        Returns:
            ``[N, heads * head_dim]`` float32.
        """
        num_rows, num_heads, _ = queries.shape
        queries, threads = queries.contiguous(), torch.get_num_threads()
        mixed = torch.empty_like(queries)
        scratch = torch.empty(threads, _ROW_QUERIES, -(-seen // _ROW_LANES) * _ROW_LANES)
        tensors = (queries, keys, values, mixed, scratch)
        sizes = (num_rows, num_heads, *keys.shape[1:], seen)
        self._attend(*(tensor.data_ptr() for tensor in tensors), *sizes, scale, threads)
        return mixed.view(num_rows, -1)


@cache
def load_row_attention() -> RowAttention | None:
    """Compiled on first use; None where that is not possible."""
    return open_library(RowAttention, _PACKAGE, "rows.c")
