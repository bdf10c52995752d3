"""What drafters are checked on: a text with features, and the walk of a conversation along it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hyflash_bench.drafters.base import Draft, Drafter, Features, Requires
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.spec.sampling import Sampling

__all__ = ["MIN_TOKENS", "Ground", "are_same", "drafts_along", "own_copy", "synthetic_ground", "walk"]

SAME_PROBABILITY = 1e-4
MIN_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Ground:
    """What a drafter is checked on.

    Attributes:
        make: Gives a fresh, loaded drafter each time.
        tokens: ``[T]`` int64, a text to walk along, T at least :data:`MIN_TOKENS`. A text that
            repeats itself finds more faults, since lookup drafters propose something there.
        features: What a target would compute at those T positions, for given requirements; asked
            for in every check, so a slow one should remember its answers.
        vocab_size: Token ids are below this.
    """

    make: Callable[[], Drafter]
    tokens: Tensor
    features: Callable[[Requires], Features]
    vocab_size: int

    def __post_init__(self) -> None:
        if len(self.tokens) < MIN_TOKENS:
            raise ValueError(f"checks need at least {MIN_TOKENS} tokens, not {len(self.tokens)}")


def synthetic_ground(
    make: Callable[[], Drafter],
    vocab_size: int = 64,
    hidden_size: int = 16,
    num_tokens: int = 96,
    seed: int = 0,
) -> Ground:
    """A ground without a target: a text full of repetitions, and random features."""
    random = torch.Generator().manual_seed(seed)
    phrases = torch.randint(vocab_size, (4, 8), generator=random)
    order = torch.randint(len(phrases), (num_tokens // 8 + 1,), generator=random)
    tokens = phrases[order].flatten()[:num_tokens]
    noise = torch.rand(num_tokens, generator=random) < 0.1
    tokens[noise] = torch.randint(vocab_size, (int(noise.sum()),), generator=random)

    def features(requires: Requires) -> Features:
        own = torch.Generator().manual_seed(seed + 1)
        hidden = {layer: torch.randn(num_tokens, hidden_size, generator=own) for layer in requires.taps}
        last = torch.randn(num_tokens, hidden_size, generator=own)
        logits = torch.randn(num_tokens, vocab_size, generator=own)
        return Features(
            taps=hidden,
            last_hidden=last if requires.last_hidden else None,
            logits=logits if requires.logits else None,
        )

    return Ground(make, tokens, features, vocab_size)


def own_copy(ground: Ground, drafter: Drafter) -> Ground:
    """The same ground in tensors of its own, which a drafter may spoil without harm to other checks."""
    features = ground.features(drafter.requires)
    last_hidden, logits = features.last_hidden, features.logits
    own = Features(
        taps={layer: rows.clone() for layer, rows in features.taps.items()},
        last_hidden=None if last_hidden is None else last_hidden.clone(),
        logits=None if logits is None else logits.clone(),
    )
    return Ground(ground.make, ground.tokens.clone(), lambda _: own, ground.vocab_size)


def drafts_along(ground: Ground, sampling: Sampling, **how: Any) -> list[Draft]:
    """The drafts of a fresh drafter, walked as :func:`walk` says, that can spoil nothing but its own copy."""
    drafter = ground.make()
    return walk(own_copy(ground, drafter), drafter, sampling, **how)


def walk(
    ground: Ground,
    drafter: Drafter,
    sampling: Sampling,
    *,
    budget: int = 8,
    chunk: int = 16,
    asks: int = 1,
    is_along: bool = False,
    seed: int = 0,
) -> list[Draft]:
    """The drafts of one conversation: the first half is the prompt, the rest the reply.

    Args:
        ground: Text and features.
        drafter: Any drafter, fresh or used.
        sampling: Sampling in force.
        budget: Most tokens of a draft.
        chunk: Tokens of the prompt observed at once.
        asks: How often each draft is asked for; the last answer counts.
        is_along: Whether drafts are asked for along the text, as replay does when sampling.
        seed: Seed of the sampler; every draft starts from it anew, so that asking twice shows.
    """
    tokens = ground.tokens
    text = tokens.clone()  # what the drafter does to its tokens does not change where the walk leads
    features = ground.features(drafter.requires)
    drafter.reset()
    num_prompt = len(tokens) // 2
    for start in range(0, num_prompt, chunk):
        span = slice(start, min(start + chunk, num_prompt))
        drafter.observe(tokens[span], features.rows(span))
    drafts: list[Draft] = []
    position = num_prompt
    while position < len(tokens) - 1:
        last_token, rest = int(text[position]), tokens[position + 1 :]
        for _ in range(asks):
            sampler = Sampler(sampling, seed * len(tokens) + position)
            draft = drafter.draft(last_token, budget, sampler, rest if is_along else None)
        drafts.append(draft)
        span = slice(position, position + 1 + _num_accepted(draft, text[position + 1 :]))
        drafter.observe(tokens[span], features.rows(span))
        position = span.stop
    return drafts


def _num_accepted(draft: Draft, rest: Tensor) -> int:
    """Length of the path through the draft that the text takes."""
    chain = torch.arange(-1, len(draft) - 1)
    parents = chain if draft.parents is None else draft.parents
    at, depth = -1, 0
    pairs = zip(draft.tokens.tolist(), parents.tolist(), strict=True)
    for index, (token, parent) in enumerate(pairs):
        if parent == at and depth < len(rest) - 1 and token == int(rest[depth]):
            at, depth = index, depth + 1
    return depth


def are_same(some: list[Draft], others: list[Draft]) -> bool:
    """Whether two walks gave the same drafts; probabilities may differ by rounding."""
    return len(some) == len(others) and all(map(_equal, some, others))


def _equal(one: Draft, other: Draft) -> bool:
    def agree(left: Tensor | None, right: Tensor | None) -> bool:
        if left is None or right is None:
            return left is right
        if left.is_floating_point():
            # Chunks change the order of sums, so probabilities may differ in the last digits.
            return left.shape == right.shape and torch.allclose(left, right, atol=SAME_PROBABILITY)
        return torch.equal(left, right)

    return (
        agree(one.tokens, other.tokens)
        and agree(one.parents, other.parents)
        and agree(one.probabilities, other.probabilities)
    )
