"""What a calibration times: models and drafters with random weights, and a made-up text."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hyflash_bench.drafters.base import Drafter
from hyflash_bench.drafters.networks.checkpoint import save_network
from hyflash_bench.drafters.networks.network import DraftNetwork
from hyflash_bench.registry import build_drafter
from hyflash_bench.spec.drafter import DrafterSpec

if TYPE_CHECKING:
    from hyflash_bench.targets.target import Target

__all__ = ["made_up_text", "sizes_of", "untrained"]


def sizes_of(width: int, weight_bytes: int) -> dict[str, int]:
    """A model of this width that weighs about so much: MLPs 2.75 times as wide, heads of 64 in threes."""
    heads, inner = width // 64, width * 11 // 4 // 8 * 8
    kv_heads = max(1, heads // 4)
    layer = width * (2 * (heads + kv_heads) * 64 + 3 * inner)
    vocab = max(256, min(16384, weight_bytes // 4 // 4 // width))
    return {
        "hidden_size": width,
        "intermediate_size": inner,
        "num_layers": max(1, round((weight_bytes / 4 - vocab * width) / layer)),
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "vocab_size": vocab,
    }


def untrained(name: str, network: DraftNetwork, target: Target) -> Drafter:
    """A drafter with a network as it is, loaded."""
    network.set_vocabulary(range(network.config.draft_vocab_size))
    with tempfile.TemporaryDirectory() as folder:
        save_network(network, Path(folder), {})
        drafter = build_drafter(DrafterSpec(name=name, options={"checkpoint": folder}))
        drafter.load(target.load_context())
    return drafter


def made_up_text(length: int) -> Tensor:
    """Phrases that come back, the more so the earlier they were made up; about as a document repeats."""
    random = Random(0)
    phrases = [[random.randrange(4000) for _ in range(random.randint(4, 20))] for _ in range(200)]
    text: list[int] = []
    while len(text) < length:
        text += phrases[int(len(phrases) * random.random() ** 3)]
        text.append(random.randrange(4000))
    return torch.tensor(text[:length])
