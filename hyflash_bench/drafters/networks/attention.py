"""Attention of blocks over verified rows: every row of a block sees the context and its own block."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["attend_all", "attend_blocks", "shared_context"]

_BLOCKS_AT_ONCE = 32
"""Blocks that share one product with a long context. They stand in the order of their anchors, so a
small group does not score rows after its last anchor, and scores stay small in memory."""


def attend_blocks(
    queries: Tensor,
    own: tuple[Tensor, Tensor],
    context: tuple[Tensor, Tensor],
    visible: Tensor,
    follow: int = 0,
) -> Tensor:
    """Attention of P blocks over each of M contexts, grouped-query, with softmax in float32.

    Args:
        queries: ``[M * P, B, heads, hd]``.
        own: Keys and values of the blocks, ``[M * P, B, kv_heads, hd]``.
        context: Keys and values of the contexts, ``[M, R, kv_heads, hd]``.
        visible: ``[M, P, R]`` bool: which rows of its context a block sees.
        follow: See :func:`_following`.

    Returns:
        ``[M * P, B, heads * hd]``.
    """
    num_contexts, num_blocks, num_rows = visible.shape
    slots, kv_heads, head_dim = own[0].shape[1:]
    by_head = (num_contexts, num_blocks, slots, kv_heads, -1, head_dim)
    query = queries.reshape(by_head).permute(0, 3, 1, 2, 4, 5) * head_dim**-0.5
    inside = query.flatten(3, 4)  # [M, kv, P, B * G, hd]
    across = inside.flatten(2, 3)  # [M, kv, P * B * G, hd]
    own_keys, own_values = (side.reshape(by_head).squeeze(4).permute(0, 3, 1, 2, 4) for side in own)
    keys, values = (side.transpose(1, 2) for side in context)
    far = (across @ keys.mT).view(*inside.shape[:-1], num_rows)
    if follow:
        by_slot = far.view(*query.shape[:-1], num_rows)
        far = _following(by_slot, follow, dim=1).view(far.shape)
    far = far.float().masked_fill(~visible[:, None, :, None], -torch.inf)
    near = (inside @ own_keys.mT).float()
    weights = torch.cat([far, near], dim=-1).softmax(-1).to(values.dtype)
    mixed = (weights[..., :num_rows].flatten(2, 3) @ values).view(inside.shape)
    mixed = mixed + weights[..., num_rows:] @ own_values
    grouped = mixed.view(num_contexts, kv_heads, num_blocks, slots, -1, head_dim)
    return grouped.permute(0, 2, 3, 1, 4, 5).reshape(len(queries), slots, -1)


def shared_context(
    queries: Tensor,
    own: tuple[Tensor, Tensor],
    context: tuple[Tensor, Tensor],
    limits: Tensor,
    follow: int = 0,
) -> Tensor:
    """Blocks that all look at one document, each up to its own anchor.

    Args:
        queries: ``[N, B, heads, hd]``.
        own: Keys and values of the blocks, ``[N, B, kv_heads, hd]``.
        context: Keys and values of the document, ``[T, kv_heads, hd]``.
        limits: ``[N]`` ascending: rows before it are seen.
        follow: See :func:`_following`.

    Returns:
        ``[N, B, heads * hd]``.
    """
    mixed = []
    for start in range(0, len(queries), _BLOCKS_AT_ONCE):
        group = slice(start, start + _BLOCKS_AT_ONCE)
        last = int(limits[group][-1])
        visible = torch.arange(last, device=limits.device) < limits[group, None]
        seen = (context[0][None, :last], context[1][None, :last])
        inside = (own[0][group], own[1][group])
        mixed.append(attend_blocks(queries[group], inside, seen, visible[None], follow))
    return torch.cat(mixed)


def attend_all(queries: Tensor, keys: Tensor, values: Tensor, follow: int = 0) -> Tensor:
    """Attention of one block over rows that it all sees.

    Args:
        queries: ``[B, heads, hd]``.
        keys: ``[kv_heads, R, hd]``, the block's own rows behind all others.
        values: Likewise.
        follow: See :func:`_following`.

    Returns:
        ``[B, heads * hd]``.
    """
    slots, heads, head_dim = queries.shape
    kv_heads = keys.shape[0]
    query = queries.view(slots, kv_heads, -1, head_dim).transpose(0, 1).reshape(kv_heads, -1, head_dim)
    scores = torch.bmm(query, keys.mT).float() * head_dim**-0.5
    if follow:
        by_slot = scores.view(kv_heads, slots, -1, scores.shape[-1])
        by_slot[..., :-slots] = _following(by_slot[..., :-slots], follow, dim=0)
    mixed = torch.bmm(scores.softmax(-1).to(values.dtype), values)
    return mixed.view(kv_heads, slots, -1, head_dim).transpose(0, 1).reshape(slots, heads * head_dim)


def _following(scores: Tensor, follow: int, dim: int) -> Tensor:
    """Let the last key heads look for what came before: slot j weighs a row by the key j rows earlier.

    A row whose key is like the anchor's is where the text was once before; what stands j rows behind
    it is what slot j wants. So copying takes one look, not one layer to find and one to step ahead.

    Args:
        scores: ``[..., kv_heads, ..., B, G, R]`` of verified rows, as by their own keys.
        follow: How many key heads.
        dim: Of the key heads.

    Returns:
        The scores with those heads' moved on by 1 .. B rows; rows without such a key have none.
    """
    kept, moved = torch.split(scores, [scores.shape[dim] - follow, follow], dim=dim)
    num_rows = scores.shape[-1]
    slots = [
        functional.pad(slot[..., : max(0, num_rows - ahead)], (min(ahead, num_rows), 0), value=-torch.inf)
        for ahead, slot in enumerate(moved.unbind(-3), 1)
    ]
    return torch.cat([kept, torch.stack(slots, dim=-3)], dim=dim)
