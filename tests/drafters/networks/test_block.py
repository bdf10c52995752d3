"""What a block may look at, what each option changes, and where training starts."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional

from hyflash_bench.drafters.networks.block import BlockConfig, BlockNetwork
from hyflash_bench.drafters.networks.delta import step
from hyflash_bench.drafters.networks.memory import MemoryWriter
from hyflash_bench.drafters.networks.network import TargetShape
from hyflash_bench.errors import SpecError
from tests.drafters.networks.blocks import KINDS, VARIANTS, block
from tests.drafters.networks.small import DRAFT_IDS, NUM_SLOTS, batch_of, context, disturbed

LENGTHS = [9, 40, 23]
ANCHORS = [1, 5, 8, 10, 20, 22, 30, 48, 50, 60, 71]


@pytest.mark.parametrize("kind", VARIANTS)
def test_every_slot_of_every_anchor_gets_logits_and_every_weight_a_gradient(kind: str) -> None:
    network = block(kind)
    out = network(batch_of(LENGTHS, ANCHORS, network.requires))
    assert out.shape == (len(ANCHORS), NUM_SLOTS, len(DRAFT_IDS))
    out.square().sum().backward()
    unused = {name for name, weight in network.named_parameters() if weight.grad is None}
    assert all(name.endswith("log_rates") for name in unused)
    assert not unused or network.config.memory == "delta"
    assert all(weight.grad.isfinite().all() for weight in network.parameters() if weight.grad is not None)


@pytest.mark.parametrize("kind", KINDS)
def test_no_anchors_are_no_logits(kind: str) -> None:
    network = block(kind)
    assert network(batch_of(LENGTHS, [], network.requires)).shape == (0, NUM_SLOTS, len(DRAFT_IDS))


@pytest.mark.parametrize("kind", VARIANTS)
def test_features_from_the_anchor_on_do_not_matter(kind: str) -> None:
    network = block(kind)
    batch = batch_of([40], [30], network.requires)
    out = network(batch)
    assert torch.equal(network(disturbed(batch, slice(30, None), tokens=False)), out)
    assert not torch.allclose(network(disturbed(batch, slice(29, 30), tokens=False)), out, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_anchors_token_matters(kind: str) -> None:
    network = block(kind)
    batch = batch_of([40], [30], network.requires)
    others = torch.tensor([row for row in range(40) if row != 30])
    assert torch.equal(network(disturbed(batch, others, features=False)), network(batch))
    assert not torch.allclose(network(disturbed(batch, slice(30, 31), features=False)), network(batch))


@pytest.mark.parametrize("slot", range(NUM_SLOTS))
def test_with_a_correction_slot_j_sees_no_token_after_row_a_plus_j(slot: int) -> None:
    network = block("hyflash, markov")
    batch = batch_of([40], [30], network.requires)
    out = network(batch)[0, slot]
    later = disturbed(batch, slice(31 + slot, None), features=False)
    own = disturbed(batch, slice(30 + slot, 31 + slot), features=False)
    assert torch.equal(network(later)[0, slot], out)
    assert not torch.allclose(network(own)[0, slot], out)


@pytest.mark.parametrize("kind", VARIANTS)
def test_the_first_row_of_a_long_text_reaches_all_but_the_window(kind: str) -> None:
    network = block(kind)
    batch = batch_of([40], [39], network.requires)
    changed = network(disturbed(batch, slice(0, 1), tokens=False))
    assert torch.equal(changed, network(batch)) == kind.startswith("window")


@pytest.mark.parametrize(
    "kind",
    [*KINDS, "hyflash, 2 layers, one state", "hyflash, markov", "hyflash, shifts", "hyflash, recall"],
)
def test_documents_do_not_see_each_other(kind: str) -> None:
    network = block(kind)
    batch = batch_of(LENGTHS, ANCHORS, network.requires)
    out = network(batch)
    second = slice(LENGTHS[0], LENGTHS[0] + LENGTHS[1])
    is_second = (batch.anchors >= second.start) & (batch.anchors < second.stop)
    elsewhere = torch.cat([torch.arange(second.start), torch.arange(second.stop, sum(LENGTHS))])
    assert torch.equal(network(disturbed(batch, elsewhere))[is_second], out[is_second])
    alone = batch_of([LENGTHS[1]], (batch.anchors[is_second] - second.start).tolist(), network.requires)
    alone = type(batch)(batch.tokens[second], batch.features.rows(second), (0,), alone.anchors)
    assert torch.allclose(network(alone), out[is_second], atol=1e-5)


def test_many_anchors_see_what_each_sees_alone() -> None:
    network = block("full-context")
    batch = batch_of([120], list(range(1, 119)), network.requires)
    out = network(batch)
    for index in (0, 31, 32, 117):
        one = batch_of([120], [index + 1], network.requires)
        assert torch.allclose(network(one)[0], out[index], atol=1e-5)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(
    "shared", [{}, {"copy_window": 30, "copy_size": 8, "follow_heads": 1}], ids=["", "copying"]
)
def test_with_its_memory_unmixed_hyflash_is_window_to_the_bit(layers: int, shared: dict[str, Any]) -> None:
    hyflash = block(num_layers=layers, **shared)
    window = block("window", num_layers=layers, **shared)
    for layer in hyflash.layers:
        assert layer.reader is not None
        torch.nn.init.zeros_(layer.reader.mix.weight)
    missing, surplus = window.load_state_dict(hyflash.state_dict(), strict=False)
    assert not missing
    assert all("reader" in name or "writers" in name for name in surplus)
    batch = batch_of(LENGTHS, ANCHORS, window.requires)
    assert torch.equal(hyflash(batch), window(batch))


@pytest.mark.parametrize("kind", ["window", "hyflash"])
def test_a_window_longer_than_the_text_is_full_context(kind: str) -> None:
    wide, full = block(kind, window=64), block("full-context")
    full.load_state_dict(wide.state_dict(), strict=False)
    batch = batch_of(LENGTHS, ANCHORS, full.requires)
    if kind == "hyflash":
        for layer in wide.layers:
            assert layer.reader is not None
            # An empty memory reads as nothing, whatever it is mixed with.
            assert layer.reader(torch.randn(1, NUM_SLOTS, 48), torch.zeros(1, 2, 8, 6)).abs().max() == 0.0
    assert torch.allclose(wide(batch), full(batch), atol=1e-5)


def test_half_precision_stays_near_and_has_gradients() -> None:
    network = block(num_layers=2)
    batch = batch_of(LENGTHS, ANCHORS, network.requires)
    exact = network(batch)
    with torch.autocast("cpu", torch.bfloat16):
        out = network(batch)
    out.float().logsumexp(-1).sum().backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in network.parameters())
    assert (out - exact).abs().mean() < 0.05 * exact.abs().mean()


# The start


def fresh(family: str = "llama", **options: Any) -> BlockNetwork:
    config = BlockConfig(
        target=TargetShape.of(context(family)),
        draft_vocab_size=len(DRAFT_IDS),
        **({"taps": (0, 1)} | KINDS["hyflash"] | options),
    )
    network = BlockNetwork(config)
    network.set_vocabulary(DRAFT_IDS)
    network.initialise(context(family))
    network.attach(context(family).model)
    return network


def test_layers_start_as_the_targets_last() -> None:
    network, body = fresh(num_layers=2), context().model.model
    assert torch.equal(network.head.norm.weight, body.norm.weight)
    for layer, source in zip(network.layers, body.layers[1:], strict=True):
        attention = source.self_attn
        parts = [attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight]
        assert torch.equal(layer.qkv.weight, torch.cat(parts))
        assert torch.equal(layer.out.weight, attention.o_proj.weight)
        assert torch.equal(layer.input_norm.weight, source.input_layernorm.weight)
        assert torch.equal(layer.mlp_norm.weight, source.post_attention_layernorm.weight)
        rows = torch.randn(3, network.config.target.hidden_size)
        assert torch.allclose(layer.mlp(rows), source.mlp(rows), atol=1e-5)


def test_fused_features_start_as_the_highest_tap() -> None:
    network = fresh()
    features = batch_of([12], [], network.requires).features
    assert torch.allclose(network.context_rows(features), features.taps[1], atol=0.05)


@pytest.mark.parametrize("width", [24, 100])
def test_another_width_keeps_the_largest_neurons_or_adds_silent_ones(width: int) -> None:
    layer, source = fresh(intermediate_size=width).layers[0], context().model.model.layers[-1]
    rows = torch.randn(64, source.self_attn.q_proj.in_features)
    theirs, mine = source.mlp(rows), layer.mlp(rows)
    if width > 64:
        assert torch.allclose(mine, theirs, atol=1e-5)
    else:
        assert 0.1 < (mine - theirs).norm() / theirs.norm() < 1.0


@pytest.mark.parametrize("family", ["qwen3", "gemma2", "phi3"])
def test_targets_of_other_families_start_what_fits(family: str) -> None:
    network = fresh(family)
    out = network(batch_of([30], [20], network.requires))
    assert out.isfinite().all()


def test_memories_start_with_the_half_lives_asked_for() -> None:
    writer = MemoryWriter(16, heads=4, key_dim=64, value_dim=8)
    writer.reset_gates(64.0, 4096.0)
    writes = writer(torch.randn(5, 16))
    halves = math.log(0.5) / writes.decays[0]
    assert torch.allclose(halves, torch.tensor([64.0, 256.0, 1024.0, 4096.0]), rtol=1e-3)
    assert torch.allclose(writes.keys.norm(dim=-1), torch.ones(5, 4))


@torch.no_grad()
def test_strong_writes_do_not_erase_what_gates_keep() -> None:
    """Half of it is lost to the gate and half to later writes, not nearly all of it."""
    torch.manual_seed(0)
    half_life, key_dim = 128, 64
    writer = MemoryWriter(8, heads=1, key_dim=key_dim, value_dim=4)
    writer.reset_gates(half_life, half_life)
    later = writer(torch.randn(half_life, 8))
    keys = functional.normalize(torch.randn(half_life, 1, key_dim), dim=-1)
    later = later._replace(keys=keys, values=torch.zeros_like(later.values))
    key = functional.normalize(torch.randn(key_dim), dim=0)
    kept = key @ step(key[None, :, None] * torch.ones(4), later, "gated-delta")[0]
    assert torch.allclose(kept, torch.full((4,), 0.25), atol=0.08)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"taps": (0, 3)}, r"taps \[0, 3\] must lie in 0..2"),
        ({"taps": (1, 0)}, r"taps \[1, 0\] must ascend"),
        ({"taps": (), "last_hidden": False}, "name taps or set last_hidden"),
        ({"attention": "full"}, "set memory to none"),
        ({"attention": "none", "memory": "none"}, "choose one"),
        ({"half_lives": (64.0, 2.0)}, "half_lives"),
        ({"window": 0}, "window: Input should be greater than or equal to 1"),
        ({"memory": "lstm"}, "memory: Input should be 'none'"),
    ],
)
def test_shapes_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    values = {"target": TargetShape.of(context()), "draft_vocab_size": 9} | options
    with pytest.raises(SpecError, match=message):
        BlockConfig.parse(values, where="config.json")
