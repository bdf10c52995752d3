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
    MemoryKind,
    bytes_by_kind,
)
from hyflash_bench.drafters.ground import (
    MIN_TOKENS,
    Ground,
    are_same,
    drafts_along,
    own_copy,
    synthetic_ground,
    walk,
)
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.precision import in_float64
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


@dataclass(frozen=True, slots=True)
class CheckResult:
    """How one check went; the message is empty when it holds."""

    name: str
    ok: bool
    message: str


Check = Callable[[Ground], str | None]


def run_checks(ground: Ground) -> Iterator[CheckResult]:
    """Run all checks, in the order of :data:`CHECKS`.

    An exception fails its own check; a later check that it keeps from its end says so instead of
    blaming the drafter a second time.
    """
    raised: dict[str, str] = {}
    for name, check in CHECKS.items():
        try:
            problem = check(ground)
        except Exception as error:  # noqa: BLE001 - a drafter may be anybody's code
            cause = f"{type(error).__name__}: {error}"
            first = raised.setdefault(cause, name)
            problem = f"raised {cause}" if first == name else f"not run: {cause} (see {first!r})"
        yield CheckResult(name, problem is None, problem or "")


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
            reason = ground.make().skip(CellFacts(is_greedy, None, mode))
            if reason is not None and not (isinstance(reason, str) and reason):
                return f"skip() returned {reason!r}; return a reason as text, or None"
    return None


def _keeps_to_the_budget(ground: Ground) -> str | None:
    for budget in BUDGETS:
        for draft in drafts_along(ground, GREEDY, budget=budget):
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
        furthest = float((in_float64(rows).sum(-1) - 1.0).abs().max())
        if furthest > PROBABILITY_TOLERANCE:
            return f"a row of probabilities sums to 1 only within {furthest:.2g}; normalise it"
        mass = rows.gather(1, draft.tokens[:, None].to(rows.device))
        if float(mass.min()) <= 0.0:
            return "a proposed token has probability 0 in its own row; draw it from that row"
    return None


def _repeats_itself(ground: Ground) -> str | None:
    for sampling in (GREEDY, SAMPLED):
        if not are_same(drafts_along(ground, sampling), drafts_along(ground, sampling)):
            return (
                "two runs with one seed differ; draw through the sampler only, and depend on "
                "nothing outside the conversation"
            )
    return None


def _forgets_on_reset(ground: Ground) -> str | None:
    fresh, used = ground.make(), ground.make()
    walk(own_copy(ground, used), used, GREEDY)
    again = walk(own_copy(ground, used), used, GREEDY)
    if not are_same(again, walk(own_copy(ground, fresh), fresh, GREEDY)):
        return "drafts after reset() differ from a fresh drafter's; forget the conversation"
    return None


def _does_not_see_chunks(ground: Ground) -> str | None:
    whole = drafts_along(ground, GREEDY, chunk=len(ground.tokens))
    for chunk in (1, 7):
        if not are_same(drafts_along(ground, GREEDY, chunk=chunk), whole):
            return f"drafts differ when the prompt is observed in chunks of {chunk}"
    return None


def _drafts_without_a_trace(ground: Ground) -> str | None:
    for sampling in (GREEDY, SAMPLED):
        if not are_same(drafts_along(ground, sampling, asks=2), drafts_along(ground, sampling)):
            return "a second draft() of one step differs; only observe() may change what is known"
    return None


def _scores_along_the_text(ground: Ground) -> str | None:
    """Replay accepts by q_j at the trace's tokens, so q_j may not hang on own samples."""
    sampled_replay = CellFacts(is_greedy=False, context_length=None, mode="replay")
    if ground.make().skip(sampled_replay) is not None:
        return None
    along, other_seed = (drafts_along(ground, SAMPLED, is_along=True, seed=seed) for seed in (0, 1))
    if not are_same(along, other_seed):
        return (
            "drafts along a given text depend on the seed; "
            "return tokens = along[:N] with probabilities computed along them"
        )
    return None


def _leaves_its_inputs_alone(ground: Ground) -> str | None:
    """Features are shared by all drafters of a run, so one that writes spoils the others."""
    for is_along in (False, True):
        drafter = ground.make()
        given = own_copy(ground, drafter)
        walk(given, drafter, SAMPLED if is_along else GREEDY, is_along=is_along)
        if not torch.equal(given.tokens, ground.tokens):
            return "wrote into the tokens that it was given; clone what you change"
        held, true = given.features(drafter.requires), ground.features(drafter.requires)
        if not all(map(_same_rows, held.tensors(), true.tensors())):
            return "wrote into the features that it was given; clone what you change"
    return None


def _starts_from_one_token(ground: Ground) -> str | None:
    drafter = ground.make()
    given = own_copy(ground, drafter)
    drafter.reset()
    drafter.observe(given.tokens[:1], given.features(drafter.requires).rows(slice(0, 1)))
    draft = drafter.draft(int(ground.tokens[1]), 4, Sampler(GREEDY, 0))
    return None if len(draft) <= 4 else f"proposed {len(draft)} tokens with a budget of 4"


def _counts_its_bytes(ground: Ground) -> str | None:
    drafter = ground.make()
    ground = own_copy(ground, drafter)
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
        "leaves its inputs alone": _leaves_its_inputs_alone,
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


def _greedy_and_sampled(ground: Ground) -> list[Draft]:
    return [*drafts_along(ground, GREEDY), *drafts_along(ground, SAMPLED)]


def _same_rows(rows: Tensor, others: Tensor) -> bool:
    return torch.equal(rows.nan_to_num(), others.nan_to_num())


def _without_zeros(num_bytes: Mapping[MemoryKind, int]) -> dict[MemoryKind, int]:
    return {kind: count for kind, count in num_bytes.items() if count}
