"""``torch.compile`` for drafting, where a network was trained here.

Compiled are the passes whose inputs keep their shapes from draft to draft; attention stays as it is,
since the rows that it reads grow or move. The same passes can be replayed as CUDA graphs, one a pass. A
whole draft cannot: a graph has fixed addresses and sizes, while a growing cache is moved to a larger one
and a window is read at another length after every step. Padding every cache to its end and masking it
would make that possible, and cost what a window saves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hyflash_bench.drafters.networks.network import DraftNetwork
from hyflash_bench.errors import DrafterError

__all__ = ["compile_passes"]

BACKEND = "inductor"


def compile_passes(network: object, *, cuda_graphs: bool = False) -> None:
    """Compile a network's passes in place; the compiler itself runs at their first use.

    Args:
        network: Loaded, on its device and in its precision.
        cuda_graphs: Record each pass once and replay it, which starts all of its kernels at once; does
            nothing on other devices.

    Raises:
        DrafterError: It was trained elsewhere.
    """
    if not isinstance(network, DraftNetwork):
        raise DrafterError("compile=true is for drafters that were trained here. Leave it out.")
    for owner, name in network.drafting_passes():
        plain = getattr(owner, name)
        setattr(owner, name, _recorded(plain) if cuda_graphs else torch.compile(plain, backend=BACKEND))


def _recorded(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled for replay, with outputs of its own: a graph writes over those of its last replay."""
    compiled = torch.compile(plain, backend=BACKEND, mode="reduce-overhead")

    def replayed(*inputs: Any, **more: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        outputs = compiled(*inputs, **more)
        if isinstance(outputs, Tensor):
            return outputs.clone()
        return tuple(output.clone() for output in outputs)

    return replayed
