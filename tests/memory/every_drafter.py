"""Every registered drafter on the tiny chat model, loaded; networks are random."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch

from hyflash_bench.drafters import Drafter
from hyflash_bench.drafters.networks.block import BlockConfig, BlockNetwork
from hyflash_bench.drafters.networks.checkpoint import save_network
from hyflash_bench.drafters.networks.eagle import EagleConfig, EagleNetwork
from hyflash_bench.drafters.networks.medusa import MedusaConfig, MedusaNetwork
from hyflash_bench.drafters.networks.network import TargetShape
from hyflash_bench.registry import build_drafter
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.load import load_target
from hyflash_bench.targets.target import Target
from tests.drafters.formats import published

NUM_SLOTS = 4
NEAR = {"window": 6, "chunk": 4}
MEMORY = {"memory_heads": 2, "memory_key_dim": 8, "memory_value_dim": 6, "half_lives": (4.0, 64.0)}
NETWORKS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "hyflash": (BlockNetwork, BlockConfig, NEAR | MEMORY | {"num_layers": 2}),
    "full-context": (BlockNetwork, BlockConfig, {"attention": "full", "memory": "none"}),
    "window": (BlockNetwork, BlockConfig, NEAR | {"memory": "none"}),
    "memory-only": (BlockNetwork, BlockConfig, NEAR | MEMORY | {"attention": "none"}),
    "eagle": (EagleNetwork, EagleConfig, {"intermediate_size": 40}),
    "medusa": (MedusaNetwork, MedusaConfig, {}),
}
PUBLISHED = ("Qwen3-4B-DFlash-b16", "DFlash, block size inside, sliding")
READS = {"taps": (0, 1), "intermediate_size": 40}
SPECS = (
    *("autoregressive", "prompt-lookup", "suffix", "suffix:tree=true", "scripted", "small-model"),
    *("hyflash", "full-context", "full-context:window=9", "window", "memory-only"),
    *("eagle", "eagle:tree=true", "medusa", "medusa:tree=true"),
    *("hyflash:kv_dtype=int8", "full-context:kv_dtype=bfloat16", "eagle:kv_dtype=int8"),
    *("dflash", "dflash:kv_dtype=int8"),
    *("prompt-lookup:window=90", "suffix:window=90", "eagle:window=9", "eagle:window=9,tree=true"),
)
"""One of each registered name at least."""
COPYING = ("hyflash", "full-context", "full-context:window=9", "eagle:tree=true", "medusa")
"""Drafters of each kind of network that copy from the last rows too."""
COPIES = {"copy_window": 24, "copy_size": 6}


@cache
def target_at(folder: Path) -> Target:
    """The tiny chat model, loaded."""
    return load_target(TargetSpec(target=str(folder), num_threads=1))


def home_of(text: str, target: Target) -> Target:
    """The target that a drafter is loaded for: published layouts have one of their own."""
    return published.target("qwen3") if text.startswith("dflash") else target


def spec_of(text: str, target: Target, folder: Path, *, copying: bool = False) -> DrafterSpec:
    """A drafter with a network of its own in a folder, where it has one."""
    spec = DrafterSpec.from_text(text)
    more: dict[str, Any] = {}
    if spec.name in NETWORKS:
        more["checkpoint"] = str(_saved(spec.name, target, folder, COPIES if copying else {}))
    elif spec.name == "dflash":
        layout = PUBLISHED["kv_dtype" in spec.options]
        more["checkpoint"] = str(published.write(folder / layout.replace(" ", ""), layout))
    elif spec.name == "small-model":
        more["model"] = target.info.model
    return spec.model_copy(update={"options": {**spec.options, **more}})


def loaded(text: str, target: Target, folder: Path, *, copying: bool = False) -> Drafter:
    """See :func:`spec_of`."""
    drafter = build_drafter(spec_of(text, target, folder, copying=copying))
    drafter.load(target.load_context())
    return drafter


def _saved(name: str, target: Target, folder: Path, more: dict[str, Any]) -> Path:
    path = folder / "-".join([name, *more])
    if path.exists():
        return path
    kind, config, options = NETWORKS[name]
    context = target.load_context()
    sizes = {"target": TargetShape.of(context), "num_slots": NUM_SLOTS, "draft_vocab_size": 100}
    reads = {} if name == "medusa" else READS
    torch.manual_seed(0)
    network = kind(config(**(sizes | reads | options | more)))
    network.set_vocabulary(range(3, 103))
    network.attach(context.model)
    network.initialise(context)
    save_network(network, path, {"drafter": network.kind, "steps": 0})
    return path
