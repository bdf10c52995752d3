"""Trace, replay and live agree with each other and with plain decoding."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hyflash_bench.drafters.base import Draft, Drafter, Features, Requires
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.engine.clock import Clock
from hyflash_bench.engine.live import live_turn
from hyflash_bench.engine.prefix import Prefix
from hyflash_bench.engine.replay import replay_turn
from hyflash_bench.engine.trace import Known, trace_conversation
from hyflash_bench.spec.sampling import GREEDY
from tests.engine.table_target import TableTarget

VOCAB = 12
CAPACITY = 400
PROMPTS = [[1, 2, 3], [4, 5], [6]]


class Oracle(Drafter):
    """Proposes the true continuation up to a wrong token; as a tree, wrong siblings stand first."""

    name = "oracle"

    def __init__(self, target: TableTarget, pattern: list[int], *, tree: bool) -> None:
        super().__init__()
        self.target, self.pattern, self.tree = target, pattern, tree
        self.reset()

    @property
    def requires(self) -> Requires:
        return Requires(taps=(0,))

    def reset(self) -> None:
        self.seen: list[int] = []
        self.calls = 0

    def observe(self, tokens, features: Features) -> None:
        rows = features.taps[0]
        wanted = [[float(len(self.seen) + i), float(t)] for i, t in enumerate(tokens.tolist())]
        assert rows.tolist() == wanted, "features belong to their tokens"
        self.seen += tokens.tolist()

    def memory(self):
        return []

    def draft(self, last_token, budget, sampler, along=None) -> Draft:
        right = self.pattern[self.calls % len(self.pattern)]
        self.calls += 1
        path = [*self.seen, last_token]
        tokens: list[int] = []
        parents: list[int] = []
        node = -1
        for depth in range(right + 1):
            token = int(self.target.logits_after(path).argmax())
            wrong = (token + 1) % VOCAB
            if self.tree or depth == right:
                tokens.append(wrong)
                parents.append(node)
            if depth == right:
                break
            tokens.append(token)
            parents.append(node)
            node = len(tokens) - 1
            path.append(token)
        size = min(budget, len(tokens))
        return Draft(torch.tensor(tokens)[:size], torch.tensor(parents)[:size] if self.tree else None)


def traced(target, requires=Requires(taps=(0,)), known=None, max_new_tokens=20, stops=()):
    prefix = Prefix(target)
    prefix.reserve(CAPACITY)
    trace = trace_conversation(
        target, prefix, lambda turn, ended: PROMPTS[turn], len(PROMPTS), Sampler(GREEDY, 0),
        max_new_tokens=max_new_tokens, stop_tokens=stops, requires=requires, known=known,
    )  # fmt: skip
    return prefix.cache, trace


def live_and_replay(target, drafter, max_new_tokens, stops, budget=8):
    cache, trace = traced(target, max_new_tokens=max_new_tokens, stops=stops)
    replays, lives = [], []
    drafter.reset()
    for turn in trace.turns:
        replays.append(  # noqa: PERF401 - the calls depend on each other
            replay_turn(
                drafter,
                turn,
                Sampler(GREEDY, 0),
                budget=budget,
                capacity=CAPACITY,
                vocab_size=VOCAB,
                stop_tokens=stops,
            )
        )
    drafter.reset()
    for turn in trace.turns:
        saved = cache.save(turn.start, turn.start + max_new_tokens + budget + 1)
        cache.length = turn.start
        lives.append(
            live_turn(
                target,
                cache,
                drafter,
                Sampler(GREEDY, 0),
                ingested=turn.ingested,
                ingested_features=turn.ingested_features,
                first_logits=turn.first_logits,
                budget=budget,
                max_new_tokens=max_new_tokens,
                stop_tokens=stops,
            )
        )
        cache.restore(saved)
    return trace, replays, lives


@settings(max_examples=60, deadline=None)
@given(
    pattern=st.lists(st.integers(0, 6), min_size=1, max_size=5),
    tree=st.booleans(),
    seed=st.integers(0, 50),
    max_new_tokens=st.integers(1, 20),
    eos=st.sampled_from([None, 3, 7]),
)
def test_replay_equals_live_step_for_step_and_both_equal_the_target(pattern, tree, seed, max_new_tokens, eos):
    target = TableTarget(VOCAB, seed=seed, eos=eos)
    drafter = Oracle(target, pattern, tree=tree)
    stops = target.info.eos_token_ids
    trace, replays, lives = live_and_replay(target, drafter, max_new_tokens, stops)
    for turn, replayed, live in zip(trace.turns, replays, lives, strict=True):
        assert live.tokens == turn.tokens.tolist()
        for name in ("drafted", "depth", "accepted", "committed", "eos_cut", "limit_cut", "rejected"):
            assert getattr(replayed.steps, name) == getattr(live.steps, name), name
        steps = live.steps
        assert sum(steps.committed) == turn.num_tokens - 1
        for drafted, accepted, committed in zip(steps.drafted, steps.accepted, steps.committed, strict=True):
            assert 0 <= accepted <= drafted
            assert accepted <= committed <= accepted + 1


def test_accepted_counts_follow_the_script():
    target = TableTarget(VOCAB, seed=1)
    trace, replays, _ = live_and_replay(target, Oracle(target, [3, 0, 2], tree=False), 20, ())
    steps = replays[0].steps
    assert steps.accepted[:4] == [3, 0, 2, 3]
    assert steps.committed[:4] == [4, 1, 3, 4]
    assert trace.turns[0].num_tokens == 20


@pytest.mark.parametrize("max_new_tokens", [1, 2, 7])
def test_a_known_trace_gives_what_the_first_pass_gave(max_new_tokens):
    target = TableTarget(VOCAB, seed=2, eos=5)
    stops = target.info.eos_token_ids
    _, first = traced(target, max_new_tokens=max_new_tokens, stops=stops)
    known = [
        Known(t.tokens.tolist(), t.logprobs.tolist(), t.gaps.tolist(), t.stop_reason) for t in first.turns
    ]
    passes = target.num_passes
    _, again = traced(target, known=known, max_new_tokens=max_new_tokens, stops=stops)
    assert target.num_passes - passes <= 2 * len(PROMPTS)
    for one, two in zip(first.turns, again.turns, strict=True):
        assert one.start == two.start
        assert one.ingested.tolist() == two.ingested.tolist()
        assert one.reply_features.taps[0].tolist() == two.reply_features.taps[0].tolist()
        assert one.logprobs.tolist() == two.logprobs.tolist()


def test_the_history_is_all_that_was_observed():
    target = TableTarget(VOCAB, seed=4)
    _, trace = traced(target)
    tokens, features = trace.history(2)
    text = []
    for prompt, turn in zip(PROMPTS[:2], trace.turns[:2], strict=True):
        text += [*prompt, *turn.tokens.tolist()]
    assert tokens.tolist() == text[:-1]
    assert features.taps[0][:, 1].tolist() == text[:-1]


def test_one_pass_per_step_and_no_more():
    target = TableTarget(VOCAB, seed=6)
    cache = target.new_cache(CAPACITY)
    prompt = torch.tensor(PROMPTS[0])
    first = target.prefill(prompt, cache, Requires(taps=(0,)))
    drafter = Oracle(target, [4], tree=False)
    before = target.num_passes
    result = live_turn(
        target, cache, drafter, Sampler(GREEDY, 0),
        ingested=prompt, ingested_features=first.features, first_logits=first.logits,
        budget=8, max_new_tokens=21, stop_tokens=(),
    )  # fmt: skip
    assert target.num_passes - before == len(result.steps.committed) == 4
    assert cache.length == len(PROMPTS[0]) + 20


def test_reading_the_ledger_is_not_timed(monkeypatch: pytest.MonkeyPatch):
    """The clock counts its own readings; walking the tensors takes a thousand of them."""
    now = [0.0]

    def tick(self) -> float:
        now[0] += 1.0
        return now[0]

    def read_held(drafter):
        now[0] += 1000.0
        return {"kv": drafter.calls}

    monkeypatch.setattr(Clock, "now", tick)
    target = TableTarget(VOCAB)
    results = []
    for read in (None, read_held):
        cache = target.new_cache(CAPACITY)
        prompt = torch.tensor(PROMPTS[0])
        first = target.prefill(prompt, cache, Requires(taps=(0,)))
        result = live_turn(
            target, cache, Oracle(target, [2, 0, 1], tree=False), Sampler(GREEDY, 0),
            ingested=prompt, ingested_features=first.features, first_logits=first.logits,
            budget=8, max_new_tokens=12, stop_tokens=(), read_held=read,
        )  # fmt: skip
        results.append(result)
    without, held = results
    assert held.held == {"kv": 0}
    assert [step["kv"] for step in held.steps.held] == list(range(1, len(held.steps.committed) + 1))
    assert held.choose_s == without.choose_s
    assert held.observe_prompt_s == without.observe_prompt_s
    assert held.steps.draft_s == without.steps.draft_s
    assert held.decode_s < without.decode_s + 3 * len(held.steps.committed) + 3
