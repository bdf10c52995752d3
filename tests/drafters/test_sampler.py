"""The sampler against plain arithmetic and a goodness-of-fit test."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from hyflash_bench.drafters import Sampler
from hyflash_bench.spec.sampling import GREEDY, Sampling

logit_rows = st.lists(st.floats(-5, 5).map(lambda x: round(x, 3)), min_size=2, max_size=8, unique=True)


def by_hand(logits: list[float], sampling: Sampling) -> list[float]:
    weights = [math.exp(logit / sampling.temperature) for logit in logits]
    order = sorted(range(len(logits)), key=lambda index: -logits[index])
    kept = order[: sampling.top_k or len(order)]
    if sampling.top_p is not None:
        total, mass, nucleus = sum(weights[index] for index in kept), 0.0, []
        for index in kept:
            if mass / total < sampling.top_p:
                nucleus.append(index)
            mass += weights[index]
        kept = nucleus
    total = sum(weights[index] for index in kept)
    return [weights[index] / total if index in kept else 0.0 for index in range(len(logits))]


@settings(deadline=None)
@given(
    logits=logit_rows,
    temperature=st.sampled_from([0.5, 1.0, 2.0]),
    top_k=st.none() | st.integers(1, 9),
    top_p=st.none() | st.sampled_from([0.123, 0.5, 0.87, 1.0]),
)
def test_probabilities_equal_plain_arithmetic(
    logits: list[float], temperature: float, top_k: int | None, top_p: float | None
) -> None:
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
    rows = Sampler(sampling, 0).probabilities(torch.tensor([logits, logits], dtype=torch.float64))
    for row in rows:
        assert row.tolist() == pytest.approx(by_hand(logits, sampling), abs=1e-12)


def test_greedy_puts_all_mass_on_the_first_likeliest() -> None:
    row = Sampler(GREEDY, 0).probabilities(torch.tensor([0.0, 2.0, 2.0]))
    assert row.tolist() == [0.0, 1.0, 0.0]


def test_draws_follow_the_probabilities() -> None:
    expected = torch.tensor([0.4, 0.0, 0.3, 0.2, 0.1])
    sampler = Sampler(Sampling(temperature=1.0), seed=7)
    counts = torch.zeros(5)
    for _ in range(4000):
        counts[sampler.draw(expected)] += 1
    assert counts[1] == 0
    possible = expected > 0
    fit = chisquare(counts[possible].numpy(), 4000 * expected[possible].numpy())
    assert fit.pvalue > 0.001


def test_weights_need_not_be_normalised() -> None:
    one, other = (Sampler(Sampling(temperature=1.0), seed=3) for _ in range(2))
    weights = torch.tensor([1.0, 2.0, 5.0])
    assert [one.draw(weights) for _ in range(50)] == [other.draw(weights / 8) for _ in range(50)]


def test_one_seed_repeats_its_choices() -> None:
    logits = torch.linspace(-1, 1, 9)

    def choices(seed: int) -> list[int]:
        sampler = Sampler(Sampling(temperature=1.0), seed)
        return [sampler.choose(logits) for _ in range(40)]

    assert choices(1) == choices(1)
    assert choices(1) != choices(2)
