"""A toy text that only a memory can predict: keys and values far back, asked for again much later."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from hyflash_bench.drafters import Features
from hyflash_bench.drafters.networks.batch import Batch
from hyflash_bench.drafters.networks.block import BlockConfig, BlockNetwork
from hyflash_bench.drafters.networks.network import TargetShape

SIZE, NUM_KEYS, NUM_VALUES = 32, 8, 8
FILLER = NUM_KEYS + NUM_VALUES
VOCAB = FILLER + 1
WINDOW, CHUNK = 4, 4
EMBEDDING, SECOND = torch.randn(2, VOCAB, SIZE, generator=torch.Generator().manual_seed(1))
TARGET = TargetShape(
    name="toy", weights="", tokenizer="", num_layers=1, hidden_size=SIZE, intermediate_size=SIZE,
    num_heads=2, num_kv_heads=1, head_dim=16, vocab_size=VOCAB, norm_eps=1e-6, rope_theta=1e4,
)  # fmt: skip


def document(random: torch.Generator) -> Tensor:
    """All keys with a value each, a pause longer than the window, and all keys again."""
    values = NUM_KEYS + torch.randint(NUM_VALUES, (NUM_KEYS,), generator=random)

    def told() -> Tensor:
        order = torch.randperm(NUM_KEYS, generator=random)
        return torch.stack([order, values[order]], dim=1).flatten()

    return torch.cat([told(), torch.full((WINDOW + CHUNK,), FILLER), told()])


def batch(random: torch.Generator, count: int = 6) -> Batch:
    """Anchors stand where a key is asked for, so that the next token is its value.

    Features tell a row's token and the one before it, as a real target's do.
    """
    texts = [document(random) for _ in range(count)]
    length = len(texts[0])
    before = torch.cat([torch.cat([text[:1], text[:-1]]) for text in texts])
    tokens = torch.cat(texts)
    features = Features(taps={0: EMBEDDING[before] + SECOND[tokens]})
    asked = torch.arange(length - 2 * NUM_KEYS, length, 2)
    starts = torch.arange(count) * length
    return Batch(tokens, features, tuple(starts.tolist()), (starts[:, None] + asked).flatten())


def trained_loss(memory: str, slot_rank: int, steps: int = 240) -> float:
    """Mean loss of the first slot after training, on new documents."""
    torch.manual_seed(0)
    config = BlockConfig(
        target=TARGET, num_slots=1, draft_vocab_size=VOCAB, taps=(0,), last_hidden=False,
        window=WINDOW, chunk=CHUNK, memory=memory, memory_heads=1, memory_key_dim=32,
        memory_value_dim=16, half_lives=(64.0, 64.0), slot_rank=slot_rank,
    )  # fmt: skip
    network = BlockNetwork(config)
    network._embedding = [EMBEDDING]
    torch.nn.init.eye_(network.fuse.weight)  # as from a target: fused features start as the tap
    network.head.attach(EMBEDDING)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2, betas=(0.9, 0.95))
    random = torch.Generator().manual_seed(0)

    def loss() -> Tensor:
        drawn = batch(random)
        labels, _ = drawn.labels(1)
        return functional.cross_entropy(network(drawn)[:, 0], labels[:, 0])

    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    with torch.no_grad():
        return float(torch.stack([loss() for _ in range(10)]).mean())


def test_hyflash_learns_to_recall_beyond_its_window_and_window_cannot() -> None:
    guessing = math.log(NUM_VALUES)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert trained_loss("none", slot_rank=2) > 0.9 * guessing
        assert trained_loss("gated-delta", slot_rank=0) < 0.5 * guessing
        assert trained_loss("gated-delta", slot_rank=2) < 0.5 * guessing
    finally:
        torch.set_num_threads(threads)
