"""The start by least squares."""

from __future__ import annotations

import pytest
import torch

from hyflash_bench.drafters.networks.batch import Batch
from hyflash_bench.drafters.networks.fit import LeastSquares, shared_basis, wanted_rows
from hyflash_bench.drafters.networks.network import DraftNetwork
from tests.drafters.networks.blocks import block
from tests.drafters.networks.small import batch_of, context, eagle, features_of
from tests.targets.families import random_tokens

NUM_SLOTS = 3


def test_a_linear_law_is_found() -> None:
    generator = torch.Generator().manual_seed(0)
    law = torch.randn(NUM_SLOTS, 5, 8, generator=generator)
    offsets = torch.randn(NUM_SLOTS, 5, generator=generator)
    fit = LeastSquares(8, NUM_SLOTS, 5)
    for _ in range(4):
        x = torch.randn(200, 8, generator=generator)
        fit.add(x, torch.einsum("ni,joi->njo", x, law) + offsets)
    maps = fit.solve()
    assert fit.num_rows == 800
    assert torch.allclose(maps.weights, law, atol=0.02)
    assert torch.allclose(maps.biases, offsets, atol=0.02)


def test_without_an_intercept_the_map_alone_is_best() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(500, 8, generator=generator) + 1
    y = torch.randn(500, 1, 5, generator=generator) + 2
    fit = LeastSquares(8, 1, 5, intercept=False)
    fit.add(x, y)
    maps = fit.solve()
    best = torch.linalg.lstsq(x, y[:, 0]).solution.T
    assert torch.allclose(maps.weights[0], best, atol=0.01)
    assert maps.biases.abs().max() == 0


def test_slots_of_low_rank_difference_are_told_apart_exactly() -> None:
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(1, 5, 8, generator=generator)
    apart = torch.randn(NUM_SLOTS, 5, 2, generator=generator) @ torch.randn(2, 8, generator=generator)
    apart[0] = 0
    fit = LeastSquares(8, NUM_SLOTS, 5)
    x = torch.randn(500, 8, generator=generator)
    fit.add(x, torch.einsum("ni,joi->njo", x, first + apart))
    maps = fit.solve()
    widen, narrow = shared_basis(maps, rank=2)
    assert torch.allclose(widen @ narrow, maps.weights - maps.weights[:1], atol=1e-3)


def test_only_anchors_with_all_slots_in_their_document_are_fitted() -> None:
    batch = batch_of([6, 6], [1, 4, 7, 9], block().requires)
    ((kept, wanted),) = wanted_rows([batch], NUM_SLOTS)
    assert kept.anchors.tolist() == [1, 7]
    assert batch.features.last_hidden is not None
    assert torch.equal(wanted[1], batch.features.last_hidden[7:10])


@pytest.mark.parametrize("kind", ["hyflash", "full-context", "window", "memory-only"])
def test_a_warm_start_brings_a_block_nearer_to_the_target(kind: str) -> None:
    network = block(kind, slot_rank=8)
    network.initialise(context())
    _check(network)


def test_a_warm_start_brings_eagle_nearer_to_the_target() -> None:
    network = eagle(token_residual=True)
    network.initialise(context())
    _check(network)


def _check(network: DraftNetwork) -> None:
    """The text that is fitted must be far better said than before, by the loss of its own tokens."""
    batches = [_text(seed, network) for seed in range(12)]
    before = _distance(network, batches)
    network.warm_start(batches)
    assert _distance(network, batches) < 0.6 * before


def _text(seed: int, network: DraftNetwork) -> Batch:
    tokens = random_tokens(64, seed=seed)
    return Batch(tokens, features_of(tokens, network.requires), (0,), torch.arange(1, 58))


@torch.no_grad()
def _distance(network: DraftNetwork, batches: list[Batch]) -> float:
    """Mean divergence of slot 0 from what the target itself says there."""
    total = 0.0
    for batch in batches:
        own = batch.features.last_hidden[batch.anchors] @ network.head.rows.T
        said = network(batch)[:, 0].log_softmax(-1)
        total += float(
            torch.nn.functional.kl_div(said, own.log_softmax(-1), reduction="batchmean", log_target=True)
        )
    return total
