"""What torch itself counts in a piece of work: operations, and numbers of some tensors that are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")


def flops_of(work: Callable[[], object]) -> int:
    """Operations of matrix products; attention is made of such here, since fused kernels are not counted."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        work()
    counts = counter.get_flop_counts().get("Global", {})
    return sum(flops for name, flops in counts.items() if _short(name) in _PRODUCTS)


def bytes_read(work: Callable[[], object], tensors: Iterable[Tensor]) -> int:
    """Bytes of these tensors that operators take in, each once; rows of a table that is looked up are not."""
    with _Reading(tensors) as reading:
        work()
    return reading.num_bytes


class _Reading(TorchDispatchMode):
    def __init__(self, tensors: Iterable[Tensor]) -> None:
        super().__init__()
        self._kept = list(tensors)
        self._marks: dict[int, tuple[Tensor, int]] = {}
        for tensor in self._kept:
            size = tensor.untyped_storage().nbytes() // tensor.element_size()
            self._marks[tensor.untyped_storage().data_ptr()] = (
                torch.zeros(size, dtype=torch.bool),
                tensor.element_size(),
            )

    @property
    def num_bytes(self) -> int:
        return sum(int(marks.sum()) * size for marks, size in self._marks.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        views = {"view", "t", "transpose", "slice", "select", "expand", "detach", "split", "chunk", "alias"}
        is_view = _short(func) in views | {
            "unsqueeze",
            "permute",
            "as_strided",
            "split_with_sizes",
            "_unsafe_view",
        }
        if not is_view and _short(func) != "embedding":
            for given in args:
                for tensor in given if isinstance(given, list | tuple) else [given]:
                    if isinstance(tensor, Tensor):
                        self._mark(tensor)
        return func(*args, **(kwargs or {}))

    def _mark(self, tensor: Tensor) -> None:
        marks = self._marks.get(tensor.untyped_storage().data_ptr())
        if marks is not None:
            marks[0].as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).fill_(True)


def _short(name: Any) -> str:
    return str(name).removeprefix("aten.").split(".")[0]
