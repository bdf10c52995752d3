"""Heads see one row of the target, and start as the target's own head."""

from __future__ import annotations

import pytest
import torch

from hyflash_bench.drafters.networks.medusa import MedusaConfig, MedusaNetwork
from hyflash_bench.drafters.networks.network import TargetShape
from tests.drafters.networks.small import DRAFT_IDS, NUM_SLOTS, batch_of, context, disturbed, medusa

LENGTHS = [9, 20, 12]
ANCHORS = [1, 5, 8, 10, 20, 22, 30, 40]


@pytest.fixture(scope="module", params=[1, 2])
def network(request: pytest.FixtureRequest) -> MedusaNetwork:
    return medusa(hidden_layers=request.param)


def test_every_slot_of_every_anchor_gets_logits(network: MedusaNetwork) -> None:
    out = network(batch_of(LENGTHS, ANCHORS, network.requires))
    assert out.shape == (len(ANCHORS), NUM_SLOTS, len(DRAFT_IDS))


def test_no_anchors_are_no_logits(network: MedusaNetwork) -> None:
    assert network(batch_of(LENGTHS, [], network.requires)).shape == (0, NUM_SLOTS, len(DRAFT_IDS))


def test_only_the_row_before_the_anchor_matters(network: MedusaNetwork) -> None:
    batch = batch_of([24], [11], network.requires)
    out = network(batch)
    assert torch.equal(network(disturbed(batch, slice(11, None))), out)
    assert torch.equal(network(disturbed(batch, slice(0, 10))), out)
    assert not torch.allclose(network(disturbed(batch, slice(10, 11), tokens=False)), out, atol=1e-4)


def test_heads_differ(network: MedusaNetwork) -> None:
    out = network(batch_of([24], [11], network.requires))[0]
    assert not torch.allclose(out[0], out[1], atol=1e-3)


def test_the_start_is_the_targets_own_head() -> None:
    config = MedusaConfig(target=TargetShape.of(context()), draft_vocab_size=97)
    network = MedusaNetwork(config)
    network.attach(context().model)
    network.initialise(context())
    batch = batch_of([16], [6, 12], network.requires)
    own = context().model(batch.tokens[None]).logits[0]
    for slot in range(config.num_slots):
        assert torch.allclose(network(batch)[:, slot], own[batch.anchors - 1], atol=1e-4)


def test_gradients_reach_every_parameter(network: MedusaNetwork) -> None:
    network.zero_grad()
    network(batch_of(LENGTHS, ANCHORS, network.requires)).logsumexp(-1).sum().backward()
    for parameter in network.parameters():
        assert parameter.grad is not None
        assert all(head.abs().sum() > 0 for head in parameter.grad.reshape(-1, parameter.shape[-1]))
    network.zero_grad()
