"""Scored continuations: together as one by one, in any order to the last bit, and never twice."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest
import torch

from hyflash_bench.integrations.likelihood import MAX_ROWS, Likelihood, Scored
from hyflash_bench.integrations.prompts import CHUNK_SIZE
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.load import load_target
from hyflash_bench.targets.target import Target
from tests.tiny import save_tiny_target

Pair = tuple[list[int], list[int]]


def _text(seed: int, length: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(3, 250) for _ in range(length)]


HEAD = _text(0, CHUNK_SIZE + 40)
CONTEXTS = [_text(1, 30), [*_text(1, 30), 9], HEAD, [*HEAD, *_text(2, 20)], [*HEAD[:-1], 8], [5]]
ENDS = [[7], [8], _text(3, 6), [*_text(3, 4), 11, 12], _text(3, 3), _text(4, MAX_ROWS + 30)]
PAIRS: list[Pair] = [(context, end) for context in CONTEXTS for end in ENDS]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Target:
    """Random weights."""
    return load_target(TargetSpec(target=str(save_tiny_target(tmp_path_factory.mktemp("likelihood")))))


def _all(likelihood: Likelihood, pairs: Sequence[Pair]) -> list[Scored]:
    found = dict(likelihood.score(pairs))
    return [found[index] for index in range(len(pairs))]


@pytest.fixture(scope="module")
def one_by_one(target: Target) -> list[Scored]:
    """Each pair by itself, from an empty cache."""
    return [_all(Likelihood(target, batch_size=1), [pair])[0] for pair in PAIRS]


@pytest.mark.parametrize("batch_size", [1, 2, None])
def test_continuations_scored_together_are_scored_as_one_by_one(
    target: Target, one_by_one: list[Scored], batch_size: int | None
) -> None:
    """Up to the rounding of passes of another size; to the last bit where the passes are the same."""
    found = _all(Likelihood(target, batch_size=batch_size), PAIRS)
    for scored, alone in zip(found, one_by_one, strict=True):
        assert scored.logprob == pytest.approx(alone.logprob, rel=1e-5)
        assert scored.is_greedy == alone.is_greedy
    if batch_size == 1:
        assert found == one_by_one


@pytest.mark.parametrize("batch_size", [2, None])
def test_neither_order_nor_other_contexts_change_a_bit(target: Target, batch_size: int | None) -> None:
    whole = dict(zip(range(len(PAIRS)), _all(Likelihood(target, batch_size=batch_size), PAIRS), strict=True))
    for seed in range(3):
        order = list(whole)
        random.Random(seed).shuffle(order)
        shuffled = _all(Likelihood(target, batch_size=batch_size), [PAIRS[index] for index in order])
        assert dict(zip(order, shuffled, strict=True)) == whole
    for context in CONTEXTS:
        places = [index for index in whole if PAIRS[index][0] == context]
        alone = _all(Likelihood(target, batch_size=batch_size), [PAIRS[index] for index in places])
        assert alone == [whole[index] for index in places]


def test_the_answers_of_a_question_cost_one_prefill_and_one_pass(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[tuple[str, int]] = []
    for name in ("prefill", "forward"):
        method = getattr(target, name)

        def counted(tokens: torch.Tensor, *rest: object, _of=(name, method), **more: object) -> object:  # type: ignore[no-untyped-def]
            rows.append((_of[0], len(tokens)))
            return _of[1](tokens, *rest, **more)

        monkeypatch.setattr(target, name, counted)
    question = [*HEAD, 1, 2, 3]
    answers = [[20, 21, 22], [20, 21, 23], [20, 30, 31], [40]]
    # The root, 20, 21 and 30: last tokens need no row.
    list(Likelihood(target).score([(question, answer) for answer in answers]))
    assert rows == [("prefill", CHUNK_SIZE), ("prefill", 42), ("forward", 4)]

    rows.clear()
    list(
        Likelihood(target).score([([*HEAD, number], [letter]) for number in range(3) for letter in range(4)])
    )
    assert rows == [("prefill", CHUNK_SIZE), ("prefill", 40), *[("forward", 1)] * 3]

    rows.clear()
    list(Likelihood(target, batch_size=1).score([(question, answer) for answer in answers]))
    assert rows == [("prefill", CHUNK_SIZE), ("prefill", 42), *(("forward", n) for n in (3, 3, 3, 1))]


def test_no_pass_has_more_rows_than_are_held_at_once(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of many continuations that share nothing, and of one that is longer."""
    rows: list[int] = []
    forward = target.forward

    def counted(tokens: torch.Tensor, *rest: object, **more: object) -> object:
        rows.append(len(tokens))
        return forward(tokens, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(target, "forward", counted)
    pairs = [([5], _text(seed, 60)) for seed in range(9)] + [([5], _text(99, MAX_ROWS * 2 + 1))]
    list(Likelihood(target).score(pairs))
    assert max(rows) <= MAX_ROWS
    assert len(rows) == 3 + 3


def test_what_an_earlier_process_scored_is_not_scored_again(target: Target) -> None:
    """Half of a pass is: its rows would be rounded otherwise by themselves."""
    kept: list[Mapping[str, Scored]] = []
    first = _all(Likelihood(target, on_scored=kept.append), PAIRS)
    assert sum(map(len, kept)) == len(PAIRS)
    lost = next(each for each in kept if len(each) > 1)
    known = {key: scored for each in kept if each is not lost for key, scored in each.items()}
    known[next(iter(lost))] = Scored(0.0, is_greedy=False)
    again: list[Mapping[str, Scored]] = []

    assert _all(Likelihood(target, known=known, on_scored=again.append), PAIRS) == first
    assert again == [lost]


def test_an_empty_continuation_is_certain(target: Target) -> None:
    assert dict(Likelihood(target).score([([5], []), ([5], [6])]))[0] == Scored(0.0, is_greedy=True)
