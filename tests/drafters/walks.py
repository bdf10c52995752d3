"""Walks of trained drafters along a text, with accepted tokens as a pattern says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hyflash_bench.drafters import Drafter, Features, Requires
from hyflash_bench.drafters.base import bytes_by_kind
from hyflash_bench.drafters.contract import Ground
from hyflash_bench.drafters.networks.batch import Batch
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.engine.live import live_turn
from hyflash_bench.engine.prefix import Prefix
from hyflash_bench.engine.replay import replay_turn
from hyflash_bench.engine.trace import Trace, trace_conversation
from hyflash_bench.spec.sampling import GREEDY, Sampling
from hyflash_bench.targets.cache import KVCache
from tests.drafters.networks.small import context, features_of, saved, target
from tests.targets.families import VOCAB, random_tokens


def loaded(kind: type[Drafter], network: Any, folder: Path, **options: Any) -> Any:
    """A drafter of this network, through a checkpoint."""
    return opened(kind, saved(network, folder), **options)


def opened(kind: type[Drafter], folder: Path, *, on: str = "cpu", **options: Any) -> Any:
    """A drafter of a checkpoint, for the tiny target on that device."""
    drafter = kind(kind.Options(checkpoint=str(folder), **options))
    drafter.load(context(on=on))
    return drafter


def check_half_precision(kind: type[Drafter], folder: Path, **options: Any) -> None:
    """In bfloat16 everything held is half as large, and drafts come as they do in float32."""
    tokens = random_tokens(20)
    full, half = (kind(kind.Options(checkpoint=str(folder), **options)) for _ in range(2))
    full.load(context())
    half.load(replace(context(), dtype=torch.bfloat16))
    for drafter in (full, half):
        drafter.observe(tokens[:0], features_of(tokens, drafter.requires).rows(slice(0, 0)))
        drafter.observe(tokens, features_of(tokens, drafter.requires))
    sizes = {drafter: bytes_by_kind(drafter.memory()) for drafter in (full, half)}
    assert sizes[half] == half.memory_formula(len(tokens))
    assert sizes[full]["state"] == 2 * sizes[half]["state"]
    drafts = [drafter.draft(5, BUDGET, Sampler(Sampling(temperature=1.0), 0)) for drafter in (full, half)]
    assert len(drafts[0]) == len(drafts[1]) > 0


def anchors_along(
    drafter: Drafter, tokens: Tensor, features: Features, prompt: int, pattern: list[int]
) -> Iterator[int]:
    """Observe a prompt, then steps of ``1 + accepted`` tokens; the anchor before each step."""
    drafter.reset()
    drafter.observe(tokens[:prompt], features.rows(slice(0, prompt)))
    anchor = prompt
    for accepted in pattern:
        if anchor >= len(tokens):
            return
        yield anchor
        step = slice(anchor, min(anchor + 1 + accepted, len(tokens)))
        drafter.observe(tokens[step], features.rows(step))
        anchor = step.stop


def ground_of(make: Callable[[], Drafter]) -> Ground:
    """A text full of repetitions with the tiny target's own features."""
    tokens = random_tokens(11, seed=5).repeat(4)

    @cache
    def features(requires: Requires) -> Features:
        return features_of(tokens, requires)

    return Ground(make, tokens, features, VOCAB)


CAPACITY, NUM_NEW, BUDGET = 120, 14, 8
PROMPTS = (random_tokens(9, seed=1), random_tokens(4, seed=2))


def traced(requires: Requires, sampling: Sampling = GREEDY, on: str = "cpu") -> tuple[KVCache, Trace]:
    """Two turns of the tiny target."""
    prefix = Prefix(target(on=on))
    prefix.reserve(CAPACITY)
    trace = trace_conversation(
        target(on=on), prefix, lambda turn, ended: PROMPTS[turn].tolist(), len(PROMPTS), Sampler(sampling, 0),
        max_new_tokens=NUM_NEW, stop_tokens=(), requires=requires,
    )  # fmt: skip
    return prefix.cache, trace


def own_answers(requires: Requires) -> Batch:
    """What the target says in :func:`traced`, with an anchor at every row."""
    _, trace = traced(requires)
    tokens, _ = trace.history(len(PROMPTS))
    return Batch(tokens, features_of(tokens, requires), (0,), torch.arange(1, len(tokens)))


def check_lossless(drafter: Drafter, temperature: float = 0.0, on: str = "cpu") -> None:
    """Greedy: live says what the target says, and replay counts the same; sampled: both run.

    The drafter should know the target's answers, so that there is something to accept.
    """
    sampling = Sampling(temperature=temperature) if temperature else GREEDY
    cache, trace = traced(drafter.requires, sampling, on)
    drafter.reset()
    replays = [
        replay_turn(
            drafter, turn, Sampler(sampling, 1),
            budget=BUDGET, capacity=CAPACITY, vocab_size=VOCAB, stop_tokens=(),
        )
        for turn in trace.turns
    ]  # fmt: skip
    assert all(sum(replayed.steps.committed) == NUM_NEW - 1 for replayed in replays)
    drafter.reset()
    for turn, replayed in zip(trace.turns, replays, strict=True):
        saved_rows = cache.save(turn.start, turn.start + NUM_NEW + BUDGET + 1)
        cache.length = turn.start
        live = live_turn(
            target(on=on), cache, drafter, Sampler(sampling, 1),
            ingested=turn.ingested, ingested_features=turn.ingested_features,
            first_logits=turn.first_logits, budget=BUDGET, max_new_tokens=NUM_NEW, stop_tokens=(),
        )  # fmt: skip
        cache.restore(saved_rows)
        assert len(live.tokens) == NUM_NEW
        assert sum(live.steps.accepted) > 0
        if temperature:
            return  # the live text differs from the trace, so the next turn does not follow it
        assert live.tokens == turn.tokens.tolist()
        assert replayed.steps.accepted == live.steps.accepted
        assert replayed.steps.drafted == live.steps.drafted
