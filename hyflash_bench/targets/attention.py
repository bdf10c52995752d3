"""What each row of a pass may look at, and attention over the cache in plain torch."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

__all__ = ["Visibility", "grouped_attention", "sdpa_attention"]

_SCORE_BYTES = 64 * 2**20
"""Most bytes of attention scores that exist at a time."""


class Visibility:
    """Which slots of the cache the T rows of one pass see.

    Every row sees itself, its ancestors within the pass and the cached context, minus what a
    sliding window has left behind.

    Attributes:
        start: Tokens cached before the pass; row t is written to slot ``start + t``.
        num_rows: T.
        positions: ``[T]`` int64 on the CPU.
    """

    def __init__(self, start: int, num_rows: int, parents: Tensor | None = None) -> None:
        self.start = start
        self.num_rows = num_rows
        self._is_chain = parents is None
        if parents is None:
            self.positions = torch.arange(start, start + num_rows)
        else:
            self._ancestors = _ancestors(parents, num_rows)
            self.positions = start + self._ancestors.sum(1) - 1
        self._masks: dict[int | None, Tensor | None] = {}
        self._inner: dict[int | None, tuple[Tensor, Tensor]] = {}
        self._biases: dict[tuple[int | None, int, torch.dtype], Tensor | None] = {}

    @cached_property
    def _ancestors(self) -> Tensor:
        return torch.ones(self.num_rows, self.num_rows, dtype=torch.bool).tril()

    @property
    def stop(self) -> int:
        """One past the last slot written."""
        return self.start + self.num_rows

    def lowest(self, window: int | None) -> int:
        """The first slot that any row sees."""
        return 0 if window is None else max(0, int(self.positions.min()) - window + 1)

    def seen(self, window: int | None) -> slice:
        """The slots that any row sees."""
        return slice(self.lowest(window), self.stop)

    def inner(self, window: int | None) -> tuple[Tensor, Tensor]:
        """The same as :meth:`mask` in two small parts.

        Returns:
            ``[T]`` int64, the first slot of the context that a row sees, and ``[T, T]`` bool,
            whether row t sees row s of the pass.
        """
        if window not in self._inner:
            if window is None:
                parts = torch.zeros(self.num_rows, dtype=torch.int64), self._ancestors
            else:
                gap = self.positions[:, None] - self.positions[None, :]
                parts = (
                    (self.positions - window + 1).clamp_(min=0),
                    self._ancestors & (gap < window),
                )
            self._inner[window] = parts
        return self._inner[window]

    def mask(self, window: int | None, device: torch.device) -> Tensor | None:
        """``[T, stop - lowest]`` bool, True where visible; None when all is visible."""
        if window not in self._masks:
            low = self.lowest(window)
            first, within = self.inner(window)
            if self.num_rows == 1 and int(first[0]) == low:
                self._masks[window] = None
            else:
                context = torch.arange(low, self.start)[None, :] >= first[:, None]
                self._masks[window] = torch.cat([context, within], dim=1).to(device)
        return self._masks[window]

    def bias(self, window: int | None, size: int, dtype: torch.dtype, device: torch.device) -> Tensor | None:
        """The same as :meth:`mask` for :func:`sdpa_attention`, made once for all layers of a pass.

        Args:
            window: Of the layer.
            size: Heads of a group, which stand as extra rows.
            dtype: Of the queries.
            device: Of the queries.

        Returns:
            ``[size * T, stop - lowest]``, 0 where visible, else minus infinity; None when all is visible.
        """
        key = window, size, dtype
        if key not in self._biases:
            mask = self.mask(window, device)
            self._biases[key] = None if mask is None else _bias(mask.repeat(size, 1), dtype)
        return self._biases[key]


def _bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, -torch.inf)


def _ancestors(parents: Tensor, num_rows: int) -> Tensor:
    chosen = parents.tolist()
    if len(chosen) != num_rows or any(not -1 <= p < row for row, p in enumerate(chosen)):
        raise ValueError(
            f"parents {chosen} do not describe a tree of {num_rows} tokens: each must be -1 or "
            "the index of an earlier token"
        )
    seen = torch.eye(num_rows, dtype=torch.bool)
    for row, parent in enumerate(chosen):
        if parent >= 0:
            seen[row] |= seen[parent]
    return seen


def sdpa_attention(
    queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, scale: float
) -> Tensor:
    """Attention by torch's fused kernel; the heads of a group stand as extra rows of it.

    Args:
        queries: ``[T, heads, head_dim]``.
        keys: ``[kv_heads, N, head_dim]``, a view into the cache.
        values: Like keys.
        bias: ``[group * T, N]`` what is added to the scores of a group's heads, one head after the other;
            bool works too, and is made into that on every call. None to see all.
        scale: Factor of the scores.

    Returns:
        ``[T, heads * head_dim]``.
    """
    num_rows = queries.shape[0]
    folded = _fold(queries, keys.shape[0])
    mixed = scaled_dot_product_attention(folded[None], keys[None], values[None], attn_mask=bias, scale=scale)
    return _unfold(mixed[0], num_rows)


def grouped_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    scale: float,
    *,
    softcap: float | None = None,
) -> Tensor:
    """Attention by two batched matrix products, in blocks of rows; knows score soft-capping.

    Arguments and result as for :func:`sdpa_attention`, but a mask ``[T, N]`` bool; softmax runs in float32.
    """
    num_rows, num_heads, _ = queries.shape
    num_groups, num_keys, _ = keys.shape
    block = max(1, _SCORE_BYTES // (4 * num_heads * num_keys))
    if num_rows > block:
        parts = []
        for at in range(0, num_rows, block):
            rows = slice(at, at + block)
            seen = None if mask is None else mask[rows]
            parts.append(grouped_attention(queries[rows], keys, values, seen, scale, softcap=softcap))
        return torch.cat(parts)
    scores = torch.bmm(_fold(queries, num_groups) * scale, keys.transpose(1, 2))
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if mask is not None:
        scores.view(num_groups, -1, num_rows, num_keys).masked_fill_(~mask, float("-inf"))
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(values.dtype)
    return _unfold(torch.bmm(weights, values), num_rows)


def _fold(queries: Tensor, num_groups: int) -> Tensor:
    """``[T, heads, head_dim]`` to ``[kv_heads, group * T, head_dim]``."""
    num_rows, num_heads, head_dim = queries.shape
    return queries.permute(1, 0, 2).reshape(num_groups, num_heads // num_groups * num_rows, head_dim)


def _unfold(mixed: Tensor, num_rows: int) -> Tensor:
    """``[kv_heads, group * T, head_dim]`` to ``[T, heads * head_dim]``."""
    num_groups, folded, head_dim = mixed.shape
    num_heads = num_groups * folded // num_rows
    return mixed.reshape(num_heads, num_rows, head_dim).transpose(0, 1).reshape(num_rows, -1)
