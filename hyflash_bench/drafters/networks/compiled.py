"""``torch.compile`` for drafting, where a network was trained here.

Compiled are the passes whose inputs keep their shapes from draft to draft; attention stays as it is,
since the rows that it reads grow or move. CUDA graphs are left out for the same reason: they replay
fixed addresses and sizes, while a growing cache is moved to a larger one and a window is read at
another length after every step. Padding every cache to its end and masking it would make them
possible, and cost what a window saves.
"""

from __future__ import annotations

import torch

from hyflash_bench.drafters.networks.network import DraftNetwork
from hyflash_bench.errors import DrafterError

__all__ = ["compile_passes"]

BACKEND = "inductor"


def compile_passes(network: object) -> None:
    """Compile a network's passes in place; the compiler itself runs at their first use.

    Args:
        network: Loaded, on its device and in its precision.

    Raises:
        DrafterError: It was trained elsewhere.
    """
    if not isinstance(network, DraftNetwork):
        raise DrafterError("compile=true is for drafters that were trained here. Leave it out.")
    for owner, name in network.drafting_passes():
        setattr(owner, name, torch.compile(getattr(owner, name), backend=BACKEND))
