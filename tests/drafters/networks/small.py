"""Networks of a tiny target, with weights large enough for every part to matter."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hyflash_bench.drafters import Features, LoadContext, Requires
from hyflash_bench.drafters.networks.batch import Batch
from hyflash_bench.drafters.networks.checkpoint import save_network
from hyflash_bench.drafters.networks.eagle import EagleConfig, EagleNetwork
from hyflash_bench.drafters.networks.medusa import MedusaConfig, MedusaNetwork
from hyflash_bench.drafters.networks.network import DraftNetwork, TargetShape
from hyflash_bench.targets.target import Target
from tests.targets.families import VOCAB, make_model, make_target, random_tokens

NUM_SLOTS = 4
SPREAD = 0.15
"""Of what is added to the weights."""
DRAFT_IDS = [*range(3, 60), *range(70, 90)]


@cache
def target(family: str = "llama", on: str = "cpu") -> Target:
    return make_target(make_model(family), backend=on)


def context(family: str = "llama", on: str = "cpu") -> LoadContext:
    return target(family, on).load_context()


def eagle(family: str = "llama", *, seed: int = 0, spread: float = SPREAD, **options: Any) -> EagleNetwork:
    sizes = _common(family) | {"taps": (0, 2), "intermediate_size": 40} | options
    return _ready(EagleNetwork, EagleConfig(**sizes), family, seed, spread)


def medusa(family: str = "llama", *, seed: int = 0, **options: Any) -> MedusaNetwork:
    return _ready(MedusaNetwork, MedusaConfig(**(_common(family) | options)), family, seed)


def saved(network: DraftNetwork, folder: Path) -> Path:
    save_network(network, folder, {"drafter": network.kind, "steps": 3})
    return folder


def taught(network: Any, batch: Batch) -> Any:
    """The same network after it learnt a text by heart."""
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    labels, inside = batch.labels(network.config.num_slots)
    ids = network.head.draft_ids
    places = torch.searchsorted(ids, labels).clamp(max=len(ids) - 1)
    known = inside & (ids[places] == labels)
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(batch)[known], places[known]).backward()
        optimizer.step()
    return rounded(network)


def rounded(network: Any) -> Any:
    """Parameters that a checkpoint in bfloat16 holds exactly."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(parameter.bfloat16().float())
    return network


def features_of(tokens: Tensor, requires: Requires, family: str = "llama") -> Features:
    """What the target computes along a text, in tensors that gradients may pass."""
    given = target(family).prefill(tokens, target(family).new_cache(len(tokens)), requires).features
    return Features(
        taps={layer: rows.clone() for layer, rows in given.taps.items()},
        last_hidden=None if given.last_hidden is None else given.last_hidden.clone(),
    )


def batch_of(lengths: list[int], anchors: list[int], requires: Requires, *, seed: int = 0) -> Batch:
    """Documents of these lengths."""
    tokens = random_tokens(sum(lengths), seed=seed)
    starts = [sum(lengths[:index]) for index in range(len(lengths))]
    parts = [
        features_of(tokens[start : start + length], requires)
        for start, length in zip(starts, lengths, strict=True)
    ]
    return Batch(tokens, Features.concatenate(parts), tuple(starts), torch.tensor(anchors, dtype=torch.int64))


def disturbed(batch: Batch, rows: slice | Tensor, *, tokens: bool = True, features: bool = True) -> Batch:
    """Other tokens and features at some rows."""
    changed = batch.tokens.clone()
    if tokens:
        changed[rows] = (changed[rows] + 7) % VOCAB
    given = batch.features
    if not features:
        return replace(batch, tokens=changed)

    def other(values: Tensor) -> Tensor:
        values = values.clone()
        values[rows] = 3.0 - values[rows]
        return values

    taps = {layer: other(values) for layer, values in given.taps.items()}
    last_hidden = None if given.last_hidden is None else other(given.last_hidden)
    return replace(batch, tokens=changed, features=Features(taps=taps, last_hidden=last_hidden))


def _common(family: str) -> dict[str, Any]:
    return {
        "target": TargetShape.of(context(family)),
        "num_slots": NUM_SLOTS,
        "draft_vocab_size": len(DRAFT_IDS),
    }


def _ready(kind: Any, config: Any, family: str, seed: int, spread: float = SPREAD) -> Any:
    torch.manual_seed(seed)
    network = kind(config)
    network.set_vocabulary(DRAFT_IDS if config.draft_vocab_size == len(DRAFT_IDS) else range(VOCAB))
    network.attach(context(family).model)
    network.initialise(context(family))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(spread * torch.randn(parameter.shape))
    return rounded(network).eval()
