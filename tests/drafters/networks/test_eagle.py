"""Nothing after the anchor leaks, nothing crosses documents, and the start is the target's own layer."""

from __future__ import annotations

import pytest
import torch

from hyflash_bench.drafters.networks.eagle import EagleConfig, EagleNetwork
from hyflash_bench.drafters.networks.network import TargetShape
from hyflash_bench.errors import SpecError
from tests.drafters.networks.small import (
    DRAFT_IDS,
    NUM_SLOTS,
    batch_of,
    context,
    disturbed,
    eagle,
    features_of,
)
from tests.targets.families import random_tokens

LENGTHS = [9, 20, 12]
ANCHORS = [1, 5, 8, 10, 20, 22, 30, 40]


@pytest.fixture(scope="module", params=[False, True], ids=["", "token-residual"])
def network(request: pytest.FixtureRequest) -> EagleNetwork:
    return eagle(token_residual=request.param)


def test_every_slot_of_every_anchor_gets_logits(network: EagleNetwork) -> None:
    out = network(batch_of(LENGTHS, ANCHORS, network.requires))
    assert out.shape == (len(ANCHORS), NUM_SLOTS, len(DRAFT_IDS))
    assert out.isfinite().all()


def test_no_anchors_are_no_logits(network: EagleNetwork) -> None:
    assert network(batch_of(LENGTHS, [], network.requires)).shape == (0, NUM_SLOTS, len(DRAFT_IDS))


def test_features_from_the_anchor_on_do_not_matter(network: EagleNetwork) -> None:
    batch = batch_of([24], [11], network.requires)
    changed = disturbed(batch, slice(11, None), tokens=False)
    assert torch.equal(network(batch), network(changed))
    assert not torch.equal(network(batch), network(disturbed(batch, slice(10, 11), tokens=False)))


@pytest.mark.parametrize("slot", range(NUM_SLOTS))
def test_slot_j_sees_no_token_after_row_a_plus_j(network: EagleNetwork, slot: int) -> None:
    batch = batch_of([24], [11], network.requires)
    out = network(batch)[0, slot]
    later = disturbed(batch, slice(12 + slot, None), features=False)
    own = disturbed(batch, slice(11 + slot, 12 + slot), features=False)
    assert torch.equal(network(later)[0, slot], out)
    assert not torch.allclose(network(own)[0, slot], out, atol=1e-4)


def test_everything_before_the_anchor_can_matter(network: EagleNetwork) -> None:
    batch = batch_of([24], [20], network.requires)
    for row in (0, 1, 10):
        changed = disturbed(batch, slice(row, row + 1), tokens=False)
        assert not torch.equal(network(batch), network(changed))


def test_nothing_crosses_documents(network: EagleNetwork) -> None:
    batch = batch_of(LENGTHS, ANCHORS, network.requires)
    out = network(batch)
    changed = network(disturbed(batch, torch.cat([torch.arange(0, 9), torch.arange(29, 41)])))
    middle = batch.anchors_within(slice(9, 29))
    assert torch.equal(out[middle], changed[middle])


def test_a_document_reads_the_same_wherever_it_stands(network: EagleNetwork) -> None:
    packed = batch_of(LENGTHS, ANCHORS, network.requires)
    span = slice(9, 29)
    alone = type(packed)(
        packed.tokens[span],
        packed.features.rows(span),
        (0,),
        packed.anchors[packed.anchors_within(span)] - 9,
    )
    assert torch.allclose(network(packed)[packed.anchors_within(span)], network(alone), atol=1e-6)


@pytest.mark.parametrize("token_residual", [False, True])
def test_anchors_do_not_see_each_other(token_residual: bool) -> None:
    network = eagle(token_residual=token_residual, spread=0.05)  # steps do not magnify the last bits
    together = network(batch_of(LENGTHS, ANCHORS, network.requires))
    for index, anchor in enumerate(ANCHORS):
        alone = network(batch_of(LENGTHS, [anchor], network.requires))
        assert torch.allclose(together[index], alone[0], rtol=0.0, atol=1e-5)


def test_gradients_reach_every_parameter_through_the_unrolled_steps(network: EagleNetwork) -> None:
    network.zero_grad()
    network(batch_of(LENGTHS, ANCHORS, network.requires))[:, -1].logsumexp(-1).sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
    network.zero_grad()


def test_the_start_is_the_targets_last_layer() -> None:
    """With the embedding half silent, step one computes the target's own next token."""
    shape = TargetShape.of(context())
    config = EagleConfig(
        target=shape,
        taps=(0, 1),
        intermediate_size=shape.intermediate_size,
        draft_vocab_size=97,
        token_residual=False,
    )
    network = EagleNetwork(config)
    network.attach(context().model)
    network.initialise(context())
    size = shape.hidden_size
    with torch.no_grad():
        assert 0 < network.query.weight[:, :size].abs().max() < 0.1
        network.query.weight[:, :size] = 0
        network.key_value.weight[:, :size] = 0
    batch = batch_of([16], [6, 12], network.requires)
    own = context().model(batch.tokens[None]).logits[0]
    assert torch.allclose(network(batch)[:, 0], own[batch.anchors - 1], atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "llama-mha", "llama-odd-head", "qwen3", "gemma", "phi3"])
def test_every_family_has_a_start(family: str) -> None:
    network = eagle(family)
    tokens = random_tokens(12)
    batch = batch_of([12], [5], network.requires)
    own = type(batch)(tokens, features_of(tokens, network.requires, family), (0,), batch.anchors)
    assert network(own).isfinite().all()


def test_fewer_neurons_are_the_largest_ones() -> None:
    shape = TargetShape.of(context())
    mlp = context().model.model.layers[-1].mlp
    sizes = (
        mlp.down_proj.weight.norm(dim=0) * mlp.gate_proj.weight.norm(dim=1) * mlp.up_proj.weight.norm(dim=1)
    )
    network = EagleNetwork(EagleConfig(target=shape, taps=(1,), intermediate_size=10, draft_vocab_size=97))
    network.initialise(context())
    kept = sizes.topk(10).indices.sort().values
    assert torch.equal(network.mlp.down.weight, mlp.down_proj.weight[:, kept])
    assert torch.equal(network.mlp.gate_up.weight[10:], mlp.up_proj.weight[kept])


@pytest.mark.parametrize("taps", [(), (2, 1), (1, 1), (0, 3), (-1, 2)])
def test_taps_ascend_within_the_target(taps: tuple[int, ...]) -> None:
    with pytest.raises(SpecError, match="taps"):
        EagleConfig.parse(
            {
                "target": TargetShape.of(context()),
                "taps": taps,
                "intermediate_size": 8,
                "draft_vocab_size": 5,
            },
            where="network",
        )
