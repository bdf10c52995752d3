"""Places of tokens in a draft vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["draft_places"]


def draft_places(tokens: Tensor, draft_ids: Tensor) -> Tensor:
    """Where tokens stand in the draft vocabulary; its size for those that do not.

    Args:
        tokens: ``[...]`` ids of the target.
        draft_ids: ``[V_d]``, ascending.
    """
    places = torch.searchsorted(draft_ids, tokens)
    size = len(draft_ids)
    is_known = draft_ids[places.clamp(max=size - 1)] == tokens
    return torch.where(is_known, places, size)
