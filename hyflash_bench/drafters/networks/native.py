"""The compiled kernels of drafting, and when they stand in for torch."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_double, c_float, c_int, c_int64, c_void_p
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from hyflash_bench.native.build import open_library
from hyflash_bench.native.library import Library

__all__ = [
    "LEAST_COPIED",
    "MOST_COPIED",
    "CLayer",
    "CMatrix",
    "CModel",
    "CPass",
    "Kernels",
    "kernels_for",
    "load_kernels",
]

MOST_COPIED, LEAST_COPIED = 1 - 1e-6, 1e-12
"""Largest sum of the chances to be copied, and least chance of a token."""


class CMatrix(Structure):
    """As in lanes.h."""

    _fields_ = (("weight", c_void_p), ("bias", c_void_p))


class CLayer(Structure):
    """As in drafting.c, like the next two."""

    _fields_ = (
        *((name, c_void_p) for name in ("input_norm", "mlp_norm")),
        *((name, CMatrix) for name in ("qkv", "out", "gate_up", "down", "ask", "mix")),
        *((name, c_void_p) for name in ("codes", "found_norm")),
    )


class CModel(Structure):
    """Sizes of a block network, and what lies before and behind its layers."""

    _fields_ = (
        *((name, c_int64) for name in ("layers", "slots", "width", "heads", "kv_heads", "head_dim", "inner")),
        *((name, c_int64) for name in ("rank", "vocab_size", "memory_heads", "key_dim", "value_dim")),
        ("follow", c_int64),
        *((name, c_float) for name in ("eps", "found_eps")),
        ("theta", c_double),
        *((name, CMatrix) for name in ("shared", "narrow", "widen", "head")),
        *((name, c_void_p) for name in ("codes", "head_norm")),
    )


class CPass(Structure):
    """One draft."""

    _fields_ = (
        *((name, c_int64) for name in ("first", "last", "slots", "position", "length")),
        ("cache", c_void_p),
        ("states", POINTER(c_void_p)),
        *((name, c_void_p) for name in ("known", "logits", "scratch")),
    )


class Kernels(Library):
    """The compiled functions; tensors are float32 on a CPU."""

    def __init__(self, path: Path, digest: str) -> None:
        super().__init__(path, digest)
        model = POINTER(CModel)
        self.draft_block = self.function("draft_block", [model, POINTER(CLayer), POINTER(CPass), c_int])
        self.draft_floats = self.function("draft_floats", [model, c_int64], result=c_int64)
        self._vote = self.function("vote", [*[c_void_p] * 3, c_int64, *[c_void_p] * 7, *[c_int64] * 5, c_int])
        self._walk = self.function(
            "walk", [*[c_void_p] * 4, c_int64, *[c_void_p] * 2, *[c_int64] * 3, *[c_float] * 2, c_int]
        )
        self._mixture = self.function("mixture", [*[c_void_p] * 3, *[c_int64] * 2, *[c_float] * 2, c_int])

    def walk(
        self, logits: Tensor, votes: Tensor | None, correction: tuple[Tensor, Tensor] | None, place: int
    ) -> tuple[Tensor, Tensor]:
        """The likeliest places of M slots, each given the one before, and their chances: two ``[M]``.

        Args:
            logits: ``[M, V_d]``; what is in there is lost.
            votes: ``[M, V_d]`` to mix in, or None.
            correction: By the place before, ``[V_d + 1, r]`` and ``[V_d, r]``, r a multiple of
                :data:`LANES`, or None.
            place: The one before the first slot.
        """
        places, chances = torch.empty(len(logits), dtype=torch.int64), torch.empty(len(logits))
        table, weight = correction or (None, None)
        self._walk(
            *(_address(tensor) for tensor in (logits, votes, table, weight)),
            *(place, places.data_ptr(), chances.data_ptr(), *logits.shape),
            *(0 if table is None else table.shape[1], MOST_COPIED, LEAST_COPIED, torch.get_num_threads()),
        )
        return places, chances

    def vote(
        self,
        query: Tensor,
        keys: Tensor,
        places: Tensor,
        last: int,
        recalled: tuple[Tensor, Tensor] | None,
        parameters: tuple[Tensor, Tensor, Tensor],
        size: int,
    ) -> Tensor:
        """Chances of tokens to be copied to the slots of one block: ``[B, size]``.

        Args:
            query: ``[K]`` of any length, K a multiple of :data:`LANES`.
            keys: ``[R, K]`` of unit length.
            places: ``[R]`` int32, of the rows' tokens in the draft vocabulary.
            last: Place of the anchor's.
            recalled: ``[P, K]`` and ``[P, B]`` int32, keys of earlier rows and what followed them.
            parameters: Of the copying head: trust ``[B]``, logarithm of the sharpness, threshold.
            size: Of the draft vocabulary, which stands for a token outside it.
        """
        old_keys, named = recalled or (None, None)
        slots, num_recalled = len(parameters[0]), 0 if old_keys is None else len(old_keys)
        scores, out = torch.empty(len(keys) + num_recalled + 3), torch.empty(slots, size)
        self._vote(
            *(query.data_ptr(), keys.data_ptr(), places.data_ptr(), last),
            *(_address(tensor) for tensor in (old_keys, named, *parameters, scores, out)),
            *(slots, len(keys), num_recalled, keys.shape[1], size, torch.get_num_threads()),
        )
        return out

    def mixture(self, logits: Tensor, votes: Tensor) -> Tensor:
        """Logits ``[M, V_d]`` mixed with votes ``[M, V_d]``, see ``with_votes``."""
        logits, votes = logits.contiguous(), votes.contiguous()
        out, threads = torch.empty_like(logits), torch.get_num_threads()
        pointers = (logits.data_ptr(), votes.data_ptr(), out.data_ptr())
        self._mixture(*pointers, *logits.shape, MOST_COPIED, LEAST_COPIED, threads)
        return out


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


@cache
def load_kernels() -> Kernels | None:
    """The kernels, compiled on first use (about a second); None where that is not possible."""
    return open_library(Kernels, "hyflash_bench.drafters.networks", "drafting.c")


def kernels_for(*tensors: Tensor) -> Kernels | None:
    """The kernels, if they can serve these tensors.

    Only torch follows gradients, autocast and compilation, and runs on other devices.
    """
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
        return None
    for tensor in tensors:
        if tensor.dtype != torch.float32 or tensor.device.type != "cpu":
            return None
    return load_kernels()
