"""Conversations that grow in step keep to the template, and replies are the target's own."""

from __future__ import annotations

import random

import pytest
import torch

from hyflash_bench.drafters.base import Requires
from hyflash_bench.errors import TargetError
from hyflash_bench.spec.corpus import TalkSpec
from hyflash_bench.suites import ChatTokenizer
from hyflash_bench.targets.target import Target
from hyflash_bench.training.corpus.store import Role
from hyflash_bench.training.corpus.talk import Talk, grow
from hyflash_bench.training.corpus.template import TurnTokens
from hyflash_bench.training.features import rows_of

SPEC = TalkSpec(reply_limits=(6,), user_limit=5, top_k=8, greedy_share=0.5)
STOP = 2
LENGTH = 140


@pytest.fixture(scope="module")
def turns(target: Target) -> TurnTokens:
    return TurnTokens.of(ChatTokenizer(target.tokenizer), target.info.eos_token_ids)


def talk(turns: TurnTokens, seed: int = 0, **changes: object) -> Talk:
    spec = SPEC.model_copy(update=changes)
    return Talk(
        turns.opening,
        begins_with_reply=False,
        spec=spec,
        turns=turns,
        follow_ups=[[9]],
        rng=random.Random(seed),
    )


def test_the_template_s_pieces_make_up_a_conversation(target: Target, turns: TurnTokens) -> None:
    chat = ChatTokenizer(target.tokenizer)
    hello, hi, bye = (chat.encode(text) for text in ("Hello", "Hi!", "Bye"))

    whole = [*turns.opening, *hello, *turns.to_reply, *hi, STOP, *turns.to_user, *bye, *turns.to_reply]
    cut = [*turns.opening, *hello, *turns.to_reply, *hi, *turns.to_user_cut, *bye, *turns.to_reply]

    assert whole == cut == chat.whole(["Hello", "Bye"], ["Hi!"], None)


def test_a_tokenizer_without_a_template_is_refused(target: Target) -> None:
    chat = ChatTokenizer(target.tokenizer)
    chat.has_template = False

    with pytest.raises(TargetError, match="no chat template"):
        TurnTokens.of(chat, [STOP])


def test_turns_that_end_by_themselves(turns: TurnTokens) -> None:
    one = talk(turns, greedy_share=1.0, follow_up_share=1.0)

    opening = [one.say(0, 0) for _ in turns.opening]
    user = [one.say(50, 60), one.say(50, STOP)]
    bridge = [one.say(0, 0) for _ in turns.to_reply[1:]]
    reply = [one.say(50, 60), one.say(STOP, 60)]
    after = [one.say(0, 0) for _ in turns.to_user]

    assert opening == [(token, Role.FORCED) for token in turns.opening]
    assert user == [(60, Role.USER), (turns.to_reply[0], Role.USER)]
    assert bridge == [(token, Role.FORCED) for token in turns.to_reply[1:]]
    assert reply == [(50, Role.GREEDY), (STOP, Role.GREEDY)]
    assert after == [(token, Role.FORCED) for token in turns.to_user]
    assert one.say(50, 60) == (9, Role.FORCED)
    assert one.say(50, 60) == (60, Role.USER)


def test_turns_that_are_cut_short(turns: TurnTokens) -> None:
    one = talk(turns, greedy_share=0.0, follow_up_share=0.0)
    expected = [
        *((token, Role.FORCED) for token in turns.opening),
        *[(60, Role.USER)] * 5,
        *((token, Role.FORCED) for token in turns.to_reply),
        *[(60, Role.SAMPLED)] * 6,
        *((token, Role.FORCED) for token in turns.to_user_cut),
        (60, Role.USER),
    ]

    assert [one.say(50, 60) for _ in expected] == expected


def test_greedy_replies_are_what_the_target_would_say_alone(target: Target, turns: TurnTokens) -> None:
    tokens, roles, _ = grow(target, [talk(turns, seed) for seed in range(4)], LENGTH, SPEC, seed=1)

    assert {int(role) for role in roles.unique()} == {0, 1, 2, 3}
    for row, by in zip(tokens, roles, strict=True):
        logits = target.forward(row, target.new_cache(LENGTH)).logits
        for position in (by == Role.GREEDY).nonzero().flatten().tolist():
            said, best = logits[position - 1, row[position]], logits[position - 1].max()
            assert said >= best - 1e-4
        drawn = ((by == Role.SAMPLED) | (by == Role.USER)).nonzero().flatten()
        likeliest = logits[drawn - 1].topk(SPEC.top_k).indices
        is_stop = torch.isin(row[drawn], torch.tensor(sorted(turns.stops)))
        assert ((likeliest == row[drawn][:, None]).any(1) | is_stop).all()


def test_the_same_seed_says_the_same(target: Target, turns: TurnTokens) -> None:
    def said(seed: int) -> torch.Tensor:
        return grow(target, [talk(turns, 5), talk(turns, 6)], 90, SPEC, seed)[0]

    assert torch.equal(said(1), said(1))
    assert not torch.equal(said(1), said(2))


def test_features_kept_on_the_way_are_those_of_a_pass_of_its_own(target: Target, turns: TurnTokens) -> None:
    asked = Requires(taps=(0, 1), last_hidden=True)

    plain, kept = (
        grow(target, [talk(turns, seed) for seed in range(3)], 90, SPEC, 1, requires=requires)
        for requires in (None, asked)
    )

    assert plain.features is None
    assert torch.equal(plain.tokens, kept.tokens)
    for row, features in zip(kept.tokens, kept.features, strict=True):
        expected = rows_of(target.prefill(row, target.new_cache(90), asked).features, asked)
        torch.testing.assert_close(features.float(), expected, rtol=2**-8, atol=1e-4)
