"""With a cache in any precision the live loop says what the trace said, however drafts are accepted."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hyflash_bench.drafters.base import Requires
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.drafters.scripted import Scripted
from hyflash_bench.engine.live import live_turn
from hyflash_bench.engine.lossless import judge
from hyflash_bench.engine.prefix import Prefix
from hyflash_bench.engine.replay import replay_turn
from hyflash_bench.engine.trace import Trace, trace_conversation
from hyflash_bench.footprint import KVDtype
from hyflash_bench.spec.sampling import GREEDY
from hyflash_bench.targets.cache import KVCache
from hyflash_bench.targets.target import Target
from tests.targets.families import VOCAB, make_model, make_target, random_tokens

KV_DTYPES: tuple[KVDtype, ...] = get_args(KVDtype)
PROMPTS = (random_tokens(9, seed=1).tolist(), random_tokens(4, seed=2).tolist())
CAPACITY, NUM_NEW, BUDGET = 110, 20, 12
_MODEL = make_model("llama")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def traced(target: Target) -> tuple[Target, KVCache, Trace]:
    """Two turns of plain decoding, and the cache that they leave."""
    prefix = Prefix(target)
    prefix.reserve(CAPACITY)
    trace = trace_conversation(
        target, prefix, lambda turn, ended: PROMPTS[turn], len(PROMPTS), Sampler(GREEDY, 0),
        max_new_tokens=NUM_NEW, stop_tokens=(), requires=Requires(),
    )  # fmt: skip
    return target, prefix.cache, trace


@cache
def told(kv_dtype: KVDtype, attention: str = "auto") -> tuple[Target, KVCache, Trace]:
    """The same, of one target for all examples: what drafters do is put back."""
    return traced(make_target(_MODEL, kv_dtype=kv_dtype, attention=attention))


def check(scene: tuple[Target, KVCache, Trace], drafter: Scripted, *, is_exact: bool) -> None:
    """Every step accepts what the replay says, and the reply is the trace's."""
    target, kept, trace = scene
    greedy = Sampler(GREEDY, 0)
    tokens, _ = trace.history(len(PROMPTS))
    drafter.load(target.load_context())
    drafter.follow(torch.cat([tokens, trace.turns[-1].tokens[-1:]]))
    drafter.reset()
    replays = [
        replay_turn(drafter, turn, greedy, budget=BUDGET, capacity=CAPACITY, vocab_size=VOCAB, stop_tokens=())
        for turn in trace.turns
    ]
    drafter.reset()
    for turn, replayed in zip(trace.turns, replays, strict=True):
        saved = kept.save(turn.start, turn.start + NUM_NEW + BUDGET + 1)
        kept.length = turn.start
        live = live_turn(
            target, kept, drafter, greedy,
            ingested=turn.ingested, ingested_features=turn.ingested_features,
            first_logits=turn.first_logits, budget=BUDGET, max_new_tokens=NUM_NEW, stop_tokens=(),
        )  # fmt: skip
        kept.restore(saved)
        judged = judge(live.tokens, turn.tokens.tolist(), turn.gaps.tolist(), target.tolerance_dtype)
        assert judged.verdict in (("identical",) if is_exact else ("identical", "near_tie"))
        if judged.verdict == "near_tie":
            return  # the next turn would follow another text
        assert live.steps.accepted == replayed.steps.accepted
        assert sum(live.steps.accepted) > 0


patterns = st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any)


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
@settings(max_examples=6, deadline=None)
@given(pattern=patterns)
def test_chains_are_lossless(kv_dtype: KVDtype, pattern: list[int]) -> None:
    """Through the compiled kernels a row is the same bits in a draft as alone, so nothing is near."""
    scene = told(kv_dtype)
    drafter = Scripted(Scripted.Options(pattern=" ".join(map(str, pattern))))
    check(scene, drafter, is_exact=scene[0].info.attention == "native")


@pytest.mark.parametrize("attention", ["auto", "grouped"])
@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
@settings(max_examples=4, deadline=None)
@given(pattern=patterns, siblings=st.integers(1, 2))
def test_trees_are_lossless(kv_dtype: KVDtype, attention: str, pattern: list[int], siblings: int) -> None:
    options = Scripted.Options(pattern=" ".join(map(str, pattern)), num_wrong_siblings=siblings)
    check(told(kv_dtype, attention), Scripted(options), is_exact=False)


def test_a_target_in_half_precision_may_keep_its_cache_in_int8() -> None:
    target = make_target(make_model("llama").bfloat16(), kv_dtype="int8")
    check(traced(target), Scripted(Scripted.Options(pattern="3 0 5")), is_exact=False)
