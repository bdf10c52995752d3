"""The cache of one context after the other: what is taken over has the bits of a fresh one."""

from __future__ import annotations

import random

import pytest
import torch

from hyflash_bench.drafters.base import Requires
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.engine.prefix import Prefix
from hyflash_bench.engine.trace import Trace, trace_conversation
from hyflash_bench.spec.sampling import Sampling
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.load import load_target
from hyflash_bench.targets.target import Target
from tests.tiny import save_tiny_target

SIZE = 32
REQUIRES = Requires(taps=(0, 1), last_hidden=True)
HEAD = [3 + at % 200 for at in range(100)]
CONTEXTS = (
    HEAD,
    HEAD[:96],
    HEAD[:64],
    HEAD[:40],
    [*HEAD[:50], 7, 8, 9],
    [*HEAD, 5, 6],
    [*HEAD[:70], *HEAD],
    [9, *HEAD],
    [4],
)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Target:
    """Random weights."""
    return load_target(TargetSpec(target=str(save_tiny_target(tmp_path_factory.mktemp("prefix")))))


def _said(target: Target, prefix: Prefix, context: list[int]) -> tuple[torch.Tensor, ...]:
    """Features, logits and what comes behind, after passes over something else behind it."""
    prefix.read(context, REQUIRES)
    behind = target.forward(torch.tensor([5, 6, 7]), prefix.cache).logits
    return (*prefix.features.tensors(), prefix.logits, behind)


def _alone(target: Target, context: list[int]) -> tuple[torch.Tensor, ...]:
    prefix = Prefix(target, SIZE)
    prefix.reserve(len(context) + 8)
    return _said(target, prefix, context)


@pytest.mark.parametrize("seed", range(4))
def test_a_context_has_the_same_bits_after_any_other(target: Target, seed: int) -> None:
    order = [*CONTEXTS, *CONTEXTS]
    random.Random(seed).shuffle(order)
    prefix = Prefix(target, SIZE)
    prefix.reserve(200)
    for context in order:
        for here, alone in zip(_said(target, prefix, context), _alone(target, context), strict=True):
            assert torch.equal(here, alone)
        assert prefix.cache.length == len(context) + 3


def test_whole_chunks_that_both_begin_with_are_not_passed_again(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[int] = []
    prefill = target.prefill

    def counted(tokens: torch.Tensor, *rest: object, **more: object) -> object:
        passed.append(len(tokens))
        return prefill(tokens, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(target, "prefill", counted)
    prefix = Prefix(target, SIZE)
    prefix.reserve(200)
    for context, expected in (
        (HEAD, [32, 32, 32, 4]),
        (HEAD, []),
        ([*HEAD, 5, 6], [6]),
        ([*HEAD[:70], 1, 2], [8]),
        (HEAD[:64], []),
        ([9, *HEAD], [32, 32, 32, 5]),
    ):
        passed.clear()
        prefix.read(context)
        assert passed == expected
        assert prefix.seconds > 0


def test_other_features_are_read_anew(target: Target) -> None:
    prefix = Prefix(target, SIZE)
    prefix.reserve(200)
    prefix.read(HEAD)
    prefix.read(HEAD, REQUIRES)

    assert [len(tensor) for tensor in prefix.features.tensors()] == [len(HEAD)] * 3


def test_a_conversation_that_begins_as_the_one_before_is_not_read_again(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with the same prompt at another temperature; replies and features are those of one alone."""
    prompts = [CONTEXTS[0], CONTEXTS[4]]

    def traced(prefix: Prefix, temperature: float) -> Trace:
        sampler = Sampler(Sampling(temperature=temperature), seed=3)
        return trace_conversation(
            target, prefix, lambda turn, ended: prompts[turn], len(prompts), sampler,
            max_new_tokens=20, stop_tokens=(), requires=REQUIRES,
        )  # fmt: skip

    shared, alone = Prefix(target, SIZE), Prefix(target, SIZE)
    for prefix in (shared, alone):
        prefix.reserve(300)
    traced(shared, 0.0)
    expected = traced(alone, 0.7)
    rows: list[int] = []
    prefill = target.prefill
    monkeypatch.setattr(target, "prefill", lambda tokens, *more, **options: (
        rows.append(len(tokens)), prefill(tokens, *more, **options))[1])  # fmt: skip
    got = traced(shared, 0.7)

    assert rows == [len(prompts[1]) + 1], "the second turn, behind its own reply to the first"
    for here, there in zip(got.turns, expected.turns, strict=True):
        assert here.tokens.tolist() == there.tokens.tolist()
        assert torch.equal(here.first_logits, there.first_logits)
        for mine, theirs in zip(
            here.ingested_features.tensors(), there.ingested_features.tensors(), strict=True
        ):
            assert torch.equal(mine, theirs)
    assert got.turns[0].prefill_s == shared.seconds > 0
