"""The drafter contract as checks that can be run on any drafter.

``hyflash-bench check`` and the package's own tests run the same functions::

    for result in run_checks(ground):
        print(result.name, "ok" if result.ok else result.message)

A check takes a :class:`Ground` and returns what is wrong, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import get_args

import torch
from torch import Tensor

from hyflash_bench.drafters.base import (
    CellFacts,
    Draft,
    Drafter,
    Features,
    MemoryKind,
    Requires,
    bytes_by_kind,
)
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.spec.sampling import GREEDY, Sampling

__all__ = [
    "CHECKS",
    "MIN_TOKENS",
    "CheckResult",
    "Ground",
    "run_checks",
    "synthetic_ground",
]

SAMPLED = Sampling(temperature=0.8, top_k=20, top_p=0.95)
BUDGETS = (1, 2, 5, 16)
PROBABILITY_TOLERANCE = 1e-4
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


@dataclass(frozen=True, slots=True)
class CheckResult:
    """How one check went; the message is empty when it holds."""

    name: str
    ok: bool
    message: str


Check = Callable[[Ground], str | None]


def run_checks(ground: Ground) -> Iterator[CheckResult]:
    """Run all checks, in the order of :data:`CHECKS`; an exception fails only its own check."""
    for name, check in CHECKS.items():
        try:
            problem = check(ground)
        except Exception as error:  # noqa: BLE001 - a drafter may be anybody's code
            problem = f"raised {type(error).__name__}: {error}"
        yield CheckResult(name, problem is None, problem or "")


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


# The checks


def _names_itself(ground: Ground) -> str | None:
    name = getattr(ground.make(), "name", None)
    return None if isinstance(name, str) and name else f"name is {name!r}; give a text"


def _describes_its_options(ground: Ground) -> str | None:
    for name, field in type(ground.make()).Options.model_fields.items():
        if field.is_required():
            return f"option {name!r} has no default; give it one"
        if not field.description:
            return f"option {name!r} has no description; write Field(..., description=...)"
    return None


def _says_whether_it_can_run(ground: Ground) -> str | None:
    for mode in ("replay", "live"):
        for is_greedy in (True, False):
            reason = ground.make().skip(CellFacts(is_greedy, None, None, mode))
            if reason is not None and not (isinstance(reason, str) and reason):
                return f"skip() returned {reason!r}; return a reason as text, or None"
    return None


def _keeps_to_the_budget(ground: Ground) -> str | None:
    for budget in BUDGETS:
        for draft in _drafts(ground, GREEDY, budget=budget):
            if len(draft) > budget:
                return f"proposed {len(draft)} tokens with a budget of {budget}; cut the draft"
    return None


def _proposes_known_tokens(ground: Ground) -> str | None:
    for draft in _greedy_and_sampled(ground):
        tokens = draft.tokens
        if tokens.dtype != torch.int64 or tokens.device.type != "cpu" or tokens.ndim != 1:
            return (
                f"tokens are {tokens.dtype} of shape {list(tokens.shape)} on {tokens.device}; "
                "return int64 of shape [N] on the CPU"
            )
        outside = tokens[(tokens < 0) | (tokens >= ground.vocab_size)]
        if len(outside):
            return f"token id {int(outside[0])} is outside 0..{ground.vocab_size - 1}"
    return None


def _puts_parents_first(ground: Ground) -> str | None:
    for draft in _greedy_and_sampled(ground):
        parents = draft.parents
        if parents is None:
            continue
        if parents.dtype != torch.int64 or parents.shape != draft.tokens.shape:
            return (
                f"parents are {parents.dtype} of shape {list(parents.shape)} for {len(draft)} "
                "tokens; return int64, one a token"
            )
        for index, parent in enumerate(parents.tolist()):
            if not -1 <= parent < index:
                return f"token {index} has parent {parent}; allowed are -1..{index - 1}"
    return None


def _gives_true_probabilities(ground: Ground) -> str | None:
    for draft in _greedy_and_sampled(ground):
        rows = draft.probabilities
        if rows is None or len(draft) == 0:
            continue
        if rows.shape != (len(draft), ground.vocab_size):
            return f"probabilities have shape {list(rows.shape)}; return [{len(draft)}, {ground.vocab_size}]"
        if float(rows.min()) < 0.0:
            return f"a probability is {float(rows.min())}; none may be negative"
        furthest = float((rows.double().sum(-1) - 1.0).abs().max())
        if furthest > PROBABILITY_TOLERANCE:
            return f"a row of probabilities sums to 1 only within {furthest:.2g}; normalise it"
        mass = rows.gather(1, draft.tokens[:, None].to(rows.device))
        if float(mass.min()) <= 0.0:
            return "a proposed token has probability 0 in its own row; draw it from that row"
    return None


def _repeats_itself(ground: Ground) -> str | None:
    for sampling in (GREEDY, SAMPLED):
        if not _same(_drafts(ground, sampling), _drafts(ground, sampling)):
            return (
                "two runs with one seed differ; draw through the sampler only, and depend on "
                "nothing outside the conversation"
            )
    return None


def _forgets_on_reset(ground: Ground) -> str | None:
    fresh, used = ground.make(), ground.make()
    _walk(ground, used, GREEDY)
    if not _same(_walk(ground, used, GREEDY), _walk(ground, fresh, GREEDY)):
        return "drafts after reset() differ from a fresh drafter's; forget the conversation"
    return None


def _does_not_see_chunks(ground: Ground) -> str | None:
    whole = _drafts(ground, GREEDY, chunk=len(ground.tokens))
    for chunk in (1, 7):
        if not _same(_drafts(ground, GREEDY, chunk=chunk), whole):
            return f"drafts differ when the prompt is observed in chunks of {chunk}"
    return None


def _drafts_without_a_trace(ground: Ground) -> str | None:
    for sampling in (GREEDY, SAMPLED):
        if not _same(_drafts(ground, sampling, asks=2), _drafts(ground, sampling)):
            return "a second draft() of one step differs; only observe() may change what is known"
    return None


def _scores_along_the_text(ground: Ground) -> str | None:
    """Replay accepts by q_j at the trace's tokens, so q_j may not hang on own samples."""
    sampled_replay = CellFacts(is_greedy=False, context_length=None, memory_cap_bytes=None, mode="replay")
    if ground.make().skip(sampled_replay) is not None:
        return None
    along, other_seed = (_drafts(ground, SAMPLED, is_along=True, seed=seed) for seed in (0, 1))
    if not _same(along, other_seed):
        return (
            "drafts along a given text depend on the seed; "
            "return tokens = along[:N] with probabilities computed along them"
        )
    return None


def _starts_from_one_token(ground: Ground) -> str | None:
    drafter = ground.make()
    drafter.reset()
    drafter.observe(ground.tokens[:1], ground.features(drafter.requires).rows(slice(0, 1)))
    draft = drafter.draft(int(ground.tokens[1]), 4, Sampler(GREEDY, 0))
    return None if len(draft) <= 4 else f"proposed {len(draft)} tokens with a budget of 4"


def _counts_its_bytes(ground: Ground) -> str | None:
    drafter = ground.make()
    features = ground.features(drafter.requires)
    drafter.reset()
    kinds = get_args(MemoryKind)
    for position in range(len(ground.tokens)):
        here = slice(position, position + 1)
        drafter.observe(ground.tokens[here], features.rows(here))
        for held in drafter.memory():
            if held.kind not in kinds:
                return f"memory() has kind {held.kind!r}; allowed are {', '.join(kinds)}"
            if held.num_bytes < 0:
                return f"memory() has {held.num_bytes} bytes; count what is held"
        formula = drafter.memory_formula(position + 1)
        counted = bytes_by_kind(drafter.memory())
        if formula is not None and _without_zeros(formula) != _without_zeros(counted):
            return (
                f"after {position + 1} tokens memory() holds {counted} bytes "
                f"but memory_formula() says {formula}"
            )
    return None


CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "names itself": _names_itself,
        "describes its options": _describes_its_options,
        "says whether it can run": _says_whether_it_can_run,
        "starts from one token": _starts_from_one_token,
        "keeps to the budget": _keeps_to_the_budget,
        "proposes known tokens": _proposes_known_tokens,
        "puts parents first": _puts_parents_first,
        "gives true probabilities": _gives_true_probabilities,
        "repeats itself with one seed": _repeats_itself,
        "forgets on reset": _forgets_on_reset,
        "does not see chunks": _does_not_see_chunks,
        "drafts without a trace": _drafts_without_a_trace,
        "scores along the text": _scores_along_the_text,
        "counts its bytes": _counts_its_bytes,
    }
)
"""Every check by the name it is shown with."""


# Walking along the text


def _greedy_and_sampled(ground: Ground) -> list[Draft]:
    return [*_drafts(ground, GREEDY), *_drafts(ground, SAMPLED)]


def _drafts(
    ground: Ground,
    sampling: Sampling,
    *,
    budget: int = 8,
    chunk: int = 16,
    asks: int = 1,
    is_along: bool = False,
    seed: int = 0,
) -> list[Draft]:
    return _walk(
        ground,
        ground.make(),
        sampling,
        budget=budget,
        chunk=chunk,
        asks=asks,
        is_along=is_along,
        seed=seed,
    )


def _walk(
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
    features = ground.features(drafter.requires)
    drafter.reset()
    num_prompt = len(tokens) // 2
    for start in range(0, num_prompt, chunk):
        span = slice(start, min(start + chunk, num_prompt))
        drafter.observe(tokens[span], features.rows(span))
    drafts: list[Draft] = []
    position = num_prompt
    while position < len(tokens) - 1:
        last_token, rest = int(tokens[position]), tokens[position + 1 :]
        for _ in range(asks):
            sampler = Sampler(sampling, seed * len(tokens) + position)
            draft = drafter.draft(last_token, budget, sampler, rest if is_along else None)
        drafts.append(draft)
        span = slice(position, position + 1 + _num_accepted(draft, rest))
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


def _same(some: list[Draft], others: list[Draft]) -> bool:
    return len(some) == len(others) and all(map(_equal, some, others))


def _equal(one: Draft, other: Draft) -> bool:
    def agree(left: Tensor | None, right: Tensor | None) -> bool:
        if left is None or right is None:
            return left is right
        if left.is_floating_point():
            # Chunks change the order of sums, so probabilities may differ in the last digits.
            return left.shape == right.shape and torch.allclose(left, right, atol=PROBABILITY_TOLERANCE)
        return torch.equal(left, right)

    return (
        agree(one.tokens, other.tokens)
        and agree(one.parents, other.parents)
        and agree(one.probabilities, other.probabilities)
    )


def _without_zeros(num_bytes: Mapping[MemoryKind, int]) -> dict[MemoryKind, int]:
    return {kind: count for kind, count in num_bytes.items() if count}
