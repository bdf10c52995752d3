"""The draft vocabulary in checkpoints: ``d2t``, how far each id lies above its place, and ``t2d``."""

from __future__ import annotations

import torch
from torch import Tensor

from hyflash_bench.drafters.formats.files import MEND, Tensors
from hyflash_bench.errors import DrafterError

__all__ = ["read_draft_ids", "vocabulary_tensors"]

_IDS = (torch.int64, torch.int32)


def vocabulary_tensors(ids: Tensor, vocab_size: int) -> dict[str, Tensor]:
    """``d2t [V_d]`` int64 and ``t2d [V]`` bool of the target's ids ``[V_d]``."""
    chosen = torch.zeros(vocab_size, dtype=torch.bool)
    chosen[ids.cpu()] = True
    return {"d2t": ids.cpu() - torch.arange(len(ids)), "t2d": chosen}


def read_draft_ids(tensors: Tensors, size: int, vocab_size: int) -> Tensor:
    """``[size]`` ids of the target; ``d2t`` may be left out where the draft vocabulary is whole.

    Args:
        tensors: Of the checkpoint; both are taken out.
        size: Of the draft vocabulary.
        vocab_size: Of the target's.

    Raises:
        DrafterError: Missing, or leading anywhere but to different ids of the target.
    """
    places = torch.arange(size)
    if "d2t" not in tensors:
        if size != vocab_size:
            tensors.require(["d2t"])
        tensors.drop("t2d")
        return places
    ids = places + tensors.take_whole("d2t", size, dtypes=_IDS).long()
    if size == vocab_size and bool((ids == places).logical_not().any()):
        raise DrafterError(f"{tensors.where}: d2t moves ids though the draft vocabulary is whole. {MEND}")
    num_different = len(set(ids.tolist()))
    if int(ids.min()) < 0 or int(ids.max()) >= vocab_size or num_different != size:
        raise DrafterError(
            f"{tensors.where}: d2t must lead to {size} different ids from 0 to {vocab_size - 1}; "
            f"it leads to {num_different}, from {int(ids.min())} to {int(ids.max())}. {MEND}"
        )
    if "t2d" in tensors:
        chosen = tensors.take_whole("t2d", vocab_size, dtypes=(torch.bool,))
        if size != vocab_size and not torch.equal(chosen.nonzero()[:, 0], ids.sort().values):
            raise DrafterError(f"{tensors.where}: t2d names other tokens than d2t. {MEND}")
    return ids
