"""Sampled output follows the target's distribution, whatever the drafter proposes."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
import torch
from scipy.stats import chisquare

from hyflash_bench.drafters.base import Draft, Drafter, Features
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.engine.live import live_turn
from hyflash_bench.engine.prefix import Prefix
from hyflash_bench.engine.replay import replay_turn
from hyflash_bench.engine.trace import trace_conversation
from hyflash_bench.spec.sampling import Sampling
from tests.engine.table_target import TableTarget

VOCAB = 4
PROMPT = [0, 1]
LENGTH = 3
RUNS = 4000


class Guesser(Drafter):
    """Draws from another table than the target's; ``shape`` says how."""

    name = "guesser"

    def __init__(self, shape: str) -> None:
        super().__init__()
        self.shape = shape
        self.other = TableTarget(VOCAB, order=1, seed=7)

    def reset(self) -> None:
        pass

    def observe(self, tokens, features: Features) -> None:
        pass

    def memory(self):
        return []

    def draft(self, last_token, budget, sampler, along=None) -> Draft:
        if self.shape == "fixed chain":
            return Draft.chain([last_token, (last_token + 1) % VOCAB])
        if self.shape == "fixed tree":
            return Draft(torch.tensor([2, 1, 3, 0, 1]), torch.tensor([-1, -1, 0, 0, 1]))
        if self.shape == "sampled tree":
            return self._sampled_tree(last_token, sampler)
        tokens, rows = [], []
        for slot in range(2):
            q = sampler.probabilities(self.other.logits_after([last_token]))
            token = sampler.draw(q) if along is None else (int(along[slot]) if slot < len(along) else 0)
            tokens.append(token)
            rows.append(q)
            last_token = token
        return Draft.chain(tokens, torch.stack(rows))

    def _sampled_tree(self, last_token: int, sampler: Sampler) -> Draft:
        tokens: list[int] = []
        parents: list[int] = []
        rows = []
        for parent in (-1, -1, 0, 0, 1):
            before = last_token if parent < 0 else tokens[parent]
            q = sampler.probabilities(self.other.logits_after([before]))
            tokens.append(sampler.draw(q))
            parents.append(parent)
            rows.append(q)
        return Draft(torch.tensor(tokens), torch.tensor(parents), torch.stack(rows))


def expected(target: TableTarget, sampling: Sampling) -> dict[tuple[int, ...], float]:
    sampler = Sampler(sampling, 0)
    result = {}
    for reply in product(range(VOCAB), repeat=LENGTH):
        path, mass = list(PROMPT), 1.0
        for token in reply:
            mass *= float(sampler.probabilities(target.logits_after(path))[token])
            path.append(token)
        result[reply] = mass
    return result


def reply_of(target: TableTarget, drafter: Drafter, sampler: Sampler) -> tuple[int, ...]:
    cache = target.new_cache(64)
    prompt = torch.tensor(PROMPT)
    result = target.prefill(prompt, cache)
    turn = live_turn(
        target, cache, drafter, sampler,
        ingested=prompt, ingested_features=Features(), first_logits=result.logits,
        budget=8, max_new_tokens=LENGTH, stop_tokens=(),
    )  # fmt: skip
    return tuple(turn.tokens)


@pytest.mark.parametrize("shape", ["fixed chain", "fixed tree", "sampled chain", "sampled tree"])
@pytest.mark.parametrize(
    "sampling",
    [Sampling(temperature=1.0), Sampling(temperature=0.7, top_k=3), Sampling(temperature=1.3, top_p=0.8)],
)
def test_live_output_follows_the_target(shape, sampling):
    target = TableTarget(VOCAB, order=2, seed=3, sharpness=1.0)
    drafter = Guesser(shape)
    counts = Counter(reply_of(target, drafter, Sampler(sampling, seed)) for seed in range(RUNS))
    masses = expected(target, sampling)
    assert sum(masses.values()) == pytest.approx(1.0)
    assert all(masses[reply] > 0 for reply in counts)
    frequent = [reply for reply, mass in masses.items() if mass * RUNS >= 5]
    observed = [counts[reply] for reply in frequent]
    wanted = [masses[reply] * RUNS for reply in frequent]
    rest = RUNS - sum(wanted)
    if rest > 1:
        observed.append(RUNS - sum(observed))
        wanted.append(rest)
    scale = sum(observed) / sum(wanted)
    assert chisquare(observed, [value * scale for value in wanted]).pvalue > 1e-4


@pytest.mark.parametrize("shape", ["fixed chain", "fixed tree", "sampled chain"])
def test_sampled_replay_accepts_as_often_as_live(shape):
    """Over many seeds the mean number of committed tokens per step agrees within its error."""
    sampling = Sampling(temperature=1.0)
    target = TableTarget(VOCAB, order=2, seed=5, sharpness=1.0)
    drafter = Guesser(shape)
    length, live, replayed = 24, [], []
    for seed in range(400):
        prefix = Prefix(target)
        prefix.reserve(64)
        trace = trace_conversation(
            target, prefix, lambda turn, ended: PROMPT, 1, Sampler(sampling, seed),
            max_new_tokens=length, stop_tokens=(), requires=drafter.requires,
        )  # fmt: skip
        result = replay_turn(
            drafter, trace.turns[0], Sampler(sampling, 10_000 + seed),
            budget=8, capacity=64, vocab_size=VOCAB, stop_tokens=(),
        )  # fmt: skip
        replayed.append(_rate(result.steps))
        cache = target.new_cache(64)
        first = target.prefill(torch.tensor(PROMPT), cache)
        result = live_turn(
            target, cache, drafter, Sampler(sampling, 20_000 + seed),
            ingested=torch.tensor(PROMPT), ingested_features=Features(), first_logits=first.logits,
            budget=8, max_new_tokens=length, stop_tokens=(),
        )  # fmt: skip
        live.append(_rate(result.steps))
    live_rates, replay_rates = torch.tensor(live), torch.tensor(replayed)
    error = (live_rates.var() / len(live) + replay_rates.var() / len(replayed)).sqrt()
    assert abs(float(live_rates.mean() - replay_rates.mean())) < 4 * float(error)


def _rate(steps) -> float:
    uncut = [c for c, limited in zip(steps.committed, steps.limit_cut, strict=True) if not limited]
    return sum(uncut) / max(len(uncut), 1)
