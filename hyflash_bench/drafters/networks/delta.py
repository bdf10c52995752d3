"""Linear memories in plain torch: the gated delta rule and its two ablations, by chunk and by step.

A head holds a matrix ``S [dk, dv]``. Each row t decays it by ``e^g``, and writes value ``v`` at
key ``k`` with strength ``beta`` (Yang et al., 2412.06464)::

    gated-delta    S' = e^g S + k beta (v - (e^g S)^T k)^T
    delta          the same with g = 0: nothing is forgotten but what is overwritten
    gated-linear   S' = e^g S + k beta v^T: nothing is overwritten

Over a chunk of C rows the rule is affine in the state it starts from, so all chunks are prepared
at once with one triangular solve (the WY form of Yang et al., 2406.06484), and only a product per
chunk is left for the walk along the text. Everything is computed in float32, or in float64 when
given it: gates close to 1 do not survive less.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

__all__ = ["MemoryRule", "Writes", "chunk_states", "step"]

MemoryRule = Literal["gated-delta", "gated-linear", "delta"]


class Writes(NamedTuple):
    """What T rows write into H heads.

    Attributes:
        keys: ``[T, H, dk]``, of unit length.
        values: ``[T, H, dv]``.
        strengths: ``[T, H]``, beta, between 0 and 1.
        decays: ``[T, H]``, g, at most 0: logarithms of what is kept of the state.
    """

    keys: Tensor
    values: Tensor
    strengths: Tensor
    decays: Tensor

    def rows(self, index: slice) -> Writes:
        """The same of some rows."""
        return Writes(*(tensor[index] for tensor in self))


def step(state: Tensor, writes: Writes, rule: MemoryRule) -> Tensor:
    """Write rows one after the other.

    Args:
        state: ``[H, dk, dv]``.
        writes: T rows.
        rule: Which memory.

    Returns:
        ``[H, dk, dv]``, the state after them.
    """
    for key, value, strength, decay in zip(*writes, strict=True):
        if rule != "delta":
            state = state * decay.exp()[:, None, None]
        if rule != "gated-linear":
            value = value - torch.einsum("hkv,hk->hv", state, key)  # noqa: PLW2901
        state = state + torch.einsum("hk,hv->hkv", key * strength[:, None], value)
    return state


def chunk_states(writes: Writes, chunk: int, rule: MemoryRule, initial: Tensor | None = None) -> Tensor:
    """States at the boundaries of chunks, for all chunks side by side. Differentiable.

    Args:
        writes: T rows, T a multiple of ``chunk`` (0 is allowed).
        chunk: Rows in a chunk, C.
        rule: Which memory.
        initial: ``[H, dk, dv]`` before the first row; zeros if None.

    Returns:
        ``[T/C + 1, H, dk, dv]``: entry i is the state after ``i * C`` rows.

    Raises:
        ValueError: T is no multiple of ``chunk``.
    """
    length, heads, key_dim = writes.keys.shape
    if length % chunk:
        raise ValueError(f"{length} rows are no whole chunks of {chunk}")
    if initial is None:
        initial = writes.values.new_zeros(heads, key_dim, writes.values.shape[-1])
    if length == 0:
        return initial[None]
    chunked = Writes(*(_by_chunk(tensor, chunk) for tensor in writes))
    if rule == "delta":
        chunked = chunked._replace(decays=torch.zeros_like(chunked.decays))
    written, transitions, kept = _prepare(chunked, rule)
    states = [initial]
    if transitions is None:
        for addition, share in zip(written.unbind(), kept.unbind(), strict=True):
            states.append(torch.addcmul(addition, states[-1], share))
    else:
        for addition, transition in zip(written.unbind(), transitions.unbind(), strict=True):
            states.append(torch.baddbmm(addition, transition, states[-1]))
    return torch.stack(states)


def _by_chunk(tensor: Tensor, chunk: int) -> Tensor:
    """``[T, H, ...]`` to ``[T/C, H, C, ...]``."""
    return tensor.view(-1, chunk, *tensor.shape[1:]).transpose(1, 2)


def _prepare(writes: Writes, rule: MemoryRule) -> tuple[Tensor, Tensor | None, Tensor]:
    """What each chunk does to the state before it: ``S' = transition S + written``.

    Returns:
        ``[n, H, dk, dv]`` written; ``[n, H, dk, dk]`` transitions, None where they are only a
        decay; ``[n, H, 1, 1]`` the share of the state that the decay keeps.
    """
    keys, values = writes.keys, writes.values
    strengths = writes.strengths[..., None]
    elapsed = writes.decays.cumsum(-1)
    kept = elapsed[..., -1, None, None].exp()
    # From each row to the end of its chunk.
    late_keys = (keys * (elapsed[..., -1:] - elapsed).exp()[..., None]).mT
    if rule == "gated-linear":
        return late_keys @ (values * strengths), None, kept
    size = keys.shape[-2]
    is_earlier = torch.ones(size, size, dtype=torch.bool, device=keys.device).tril(-1)
    between = (elapsed[..., :, None] - elapsed[..., None, :]).masked_fill(~is_earlier, -torch.inf).exp()
    erased = strengths * between * (keys @ keys.mT)
    unit = torch.eye(size, dtype=keys.dtype, device=keys.device)
    sides = strengths * torch.cat([values, keys * elapsed.exp()[..., None]], dim=-1)
    solved = torch.linalg.solve_triangular(unit + erased, sides, upper=False, unitriangular=True)
    products = late_keys @ solved
    written, erasures = products.split([values.shape[-1], keys.shape[-1]], dim=-1)
    unit = torch.eye(keys.shape[-1], dtype=keys.dtype, device=keys.device)
    return written, kept * unit - erasures, kept
