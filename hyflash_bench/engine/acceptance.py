"""Which drafted tokens survive verification: pure rules on tensors.

Greedy verification follows the target's likeliest tokens. Sampled verification is speculative
sampling (Leviathan et al. 2023, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318), for siblings
of a tree tried one after the other against the shrinking residual (Miao et al. 2023, SpecInfer,
arXiv 2305.09781). Either way the committed tokens follow the target's own distribution exactly.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hyflash_bench.drafters.base import Draft
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.errors import DrafterError
from hyflash_bench.precision import in_float64

__all__ = ["Cut", "Verdict", "check_draft", "cut", "depths", "rejected_tokens", "replay_path", "verify"]

ROOT = -1
SUM_TOLERANCE = 1e-2
"""Distance from 1 of a row's sum that low-precision softmax can make."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one verification pass decided.

    Attributes:
        path: Indices into the draft of the accepted tokens, from the root down.
        tokens: The accepted tokens and the bonus token after them.
    """

    path: tuple[int, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """What of a step's tokens enters the text.

    Attributes:
        tokens: Committed tokens, at least one.
        ended: The last of them is an end-of-sequence token.
        limited: The token limit cut the step short: more tokens had been won.
    """

    tokens: tuple[int, ...]
    ended: bool
    limited: bool


def verify(draft: Draft, logits: Tensor, sampler: Sampler) -> Verdict:
    """Walk down the draft as far as the target goes along.

    Args:
        draft: N proposed tokens.
        logits: ``[N + 1, vocab]``: row 0 after the last committed token, row j + 1 after token j.
        sampler: The cell's sampling rule.

    Raises:
        DrafterError: A token that cannot have been drawn from its row of probabilities.
    """
    children = _children(draft)
    likeliest = logits.argmax(-1).tolist() if sampler.is_greedy else None
    path: list[int] = []
    node = ROOT
    while True:
        candidates = children.get(node, [])
        if likeliest is not None:
            token, chosen = likeliest[node + 1], _carrier(draft, candidates, likeliest[node + 1])
        else:
            token, chosen = _sample(draft, candidates, logits[node + 1], sampler)
        if chosen is None:
            tokens = [int(draft.tokens[index]) for index in path]
            return Verdict(tuple(path), (*tokens, token))
        path.append(chosen)
        node = chosen


def _sample(
    draft: Draft, candidates: Sequence[int], logits: Tensor, sampler: Sampler
) -> tuple[int, int | None]:
    """The token after a node, and the candidate that carries it (None: it is the bonus token)."""
    residual = sampler.probabilities(logits)
    if draft.probabilities is None:
        # A deterministic proposal is a q with all its mass on one token: drawing from p and looking
        # whether a candidate carries the token is the rejection rule, for any number of siblings.
        token = sampler.draw(residual)
        return token, _carrier(draft, candidates, token)
    for index in candidates:
        token = int(draft.tokens[index])
        q = in_float64(draft.probabilities[index]).to(residual.device)
        if not float(q[token]) > 0.0:
            raise DrafterError(
                f"A proposed token ({token}) has probability {float(q[token]):g} in its own row; draw it "
                "from that row."
            )
        if sampler.uniform() * float(q[token]) < float(residual[token]):
            return token, index
        rest = (residual - q).clamp_min(0.0)
        mass = float(rest.sum())
        if mass > 0.0:  # otherwise q covers p and rounding alone could reject
            residual = rest / mass
    return sampler.draw(residual), None


def _carrier(draft: Draft, candidates: Sequence[int], token: int) -> int | None:
    return next((index for index in candidates if int(draft.tokens[index]) == token), None)


def replay_path(
    draft: Draft, upcoming: Tensor, target_probabilities: Tensor | None, sampler: Sampler
) -> tuple[int, ...]:
    """Which drafted tokens a trace accepts: indices into the draft, from the root down.

    Greedy, or a deterministic proposal: the longest path that equals the trace. A chain sampled
    from q: slot j is accepted with probability min(1, q_j(x) / p_j(x)), x being the trace's token:
    speculative sampling conditioned on the target's output, so that acceptance is unbiased while
    the text stays the same for every drafter.

    Args:
        draft: The proposal. A sampled chain must have been drafted along ``upcoming``.
        upcoming: ``[M]`` the trace's next tokens.
        target_probabilities: ``[M]`` p_j(x) recorded with the trace; needed for sampled chains.
        sampler: Source of randomness of the replay.

    Raises:
        DrafterError: A sampled tree, which can be scored live only.
    """
    if sampler.is_greedy or draft.probabilities is None:
        return _matching_path(draft, upcoming)
    if draft.parents is not None:
        raise DrafterError("Sampled trees can be scored live only; use --mode live.")
    assert target_probabilities is not None
    accepted = 0
    for slot in range(min(len(draft), len(upcoming))):
        token = int(upcoming[slot])
        q = float(draft.probabilities[slot, token])
        if sampler.uniform() * float(target_probabilities[slot]) >= q:
            break
        accepted += 1
    return tuple(range(accepted))


def _matching_path(draft: Draft, upcoming: Tensor) -> tuple[int, ...]:
    children = _children(draft)
    node, path = ROOT, []
    for token in upcoming.tolist():
        child = _carrier(draft, children.get(node, []), token)
        if child is None:
            break
        node = child
        path.append(child)
    return tuple(path)


def rejected_tokens(draft: Draft, path: Sequence[int]) -> list[int]:
    """The drafted tokens behind the accepted ones.

    Of a chain they are all the rest. Of a tree they are one path, first children from the last accepted
    token down: siblings stand in the order in which they are tried. What else a tree held is left out.

    Args:
        draft: The proposal.
        path: Indices into it of the accepted tokens, from the root down.
    """
    if draft.parents is None:
        return draft.tokens[len(path) :].tolist()
    children = _children(draft)
    node, rejected = path[-1] if path else ROOT, []
    while node in children:
        node = children[node][0]
        rejected.append(int(draft.tokens[node]))
    return rejected


def cut(tokens: Sequence[int], stop_tokens: Collection[int], room: int) -> Cut:
    """Cut a step's tokens at end of sequence and at the token limit.

    Args:
        tokens: Accepted tokens and the bonus token.
        stop_tokens: Ids that end a reply; the stop token itself is committed.
        room: Tokens that the limit still allows, at least 1.
    """
    end = next((index for index, token in enumerate(tokens) if token in stop_tokens), None)
    won = tokens if end is None else tokens[: end + 1]
    kept = tuple(won[:room])
    return Cut(kept, ended=end is not None and end < room, limited=len(won) > room)


def depths(draft: Draft) -> list[int]:
    """Depth of each drafted token, 1 for children of the last committed token."""
    if draft.parents is None:
        return list(range(1, len(draft) + 1))
    result: list[int] = []
    for parent in draft.parents.tolist():
        result.append(1 if parent == ROOT else result[parent] + 1)
    return result


def check_draft(draft: Draft, budget: int, vocab_size: int, name: str) -> None:
    """Refuse a draft that breaks the contract.

    Raises:
        DrafterError: What is wrong with it.
    """
    if not isinstance(draft, Draft) or draft.tokens.ndim != 1:
        raise DrafterError(f"Drafter {name}: draft() must return a Draft whose tokens have the shape [N].")
    size = len(draft)
    if size > budget:
        raise DrafterError(f"Drafter {name} proposed {size} tokens; the budget is {budget}.")
    if size == 0:
        return
    if draft.tokens.dtype != torch.int64 or draft.tokens.device.type != "cpu":
        raise DrafterError(
            f"Drafter {name} returned tokens as {draft.tokens.dtype} on {draft.tokens.device}; "
            "the contract wants int64 on the CPU."
        )
    low, high = int(draft.tokens.min()), int(draft.tokens.max())
    if low < 0 or high >= vocab_size:
        raise DrafterError(
            f"Drafter {name} proposed token {low if low < 0 else high}; "
            f"the target's vocabulary has {vocab_size}."
        )
    if draft.parents is not None:
        parents = draft.parents.tolist()
        if len(parents) != size or any(not ROOT <= p < i for i, p in enumerate(parents)):
            raise DrafterError(
                f"Drafter {name}: each token's parent must come before it (or be -1); got {parents}."
            )
    if draft.probabilities is not None and tuple(draft.probabilities.shape) != (size, vocab_size):
        raise DrafterError(
            f"Drafter {name} returned probabilities of shape {tuple(draft.probabilities.shape)}; "
            f"expected ({size}, {vocab_size})."
        )
    if draft.probabilities is not None:
        _check_distributions(draft.probabilities, name)


def _check_distributions(rows: Tensor, name: str) -> None:
    """Refuse rows that are no distributions: the rejection rule would keep too much by them."""
    furthest = float((rows.sum(-1) - 1.0).abs().max())
    if not furthest <= SUM_TOLERANCE or float(rows.min()) < 0.0:  # a comparison with NaN is false
        raise DrafterError(
            f"Drafter {name} returned probabilities that are no distribution: "
            f"the least is {float(rows.min()):.3g}, and a row's sum differs from 1 by {furthest:.2g}. "
            "Each row must be the distribution that its token was drawn from."
        )


def _children(draft: Draft) -> dict[int, list[int]]:
    if draft.parents is None:
        return {index - 1: [index] for index in range(len(draft))}
    children: dict[int, list[int]] = {}
    for index, parent in enumerate(draft.parents.tolist()):
        children.setdefault(parent, []).append(index)
    return children
