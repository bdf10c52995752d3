"""Block networks of the tiny target: the four drafters and their variants."""

from __future__ import annotations

from typing import Any

from hyflash_bench.drafters.networks.block import BlockConfig, BlockNetwork
from tests.drafters.networks.small import _common, _ready

MEMORY = {"memory_heads": 2, "memory_key_dim": 8, "memory_value_dim": 6, "half_lives": (4.0, 64.0)}
NEAR = {"window": 6, "chunk": 4}

KINDS: dict[str, dict[str, Any]] = {
    "hyflash": NEAR | MEMORY,
    "full-context": {"attention": "full", "memory": "none"},
    "window": NEAR | {"memory": "none"},
    "memory-only": NEAR | MEMORY | {"attention": "none"},
}
VARIANTS: dict[str, dict[str, Any]] = {
    **KINDS,
    "hyflash, 2 layers": KINDS["hyflash"] | {"num_layers": 2},
    "hyflash, 2 layers, one state": KINDS["hyflash"] | {"num_layers": 2, "shared_memory": True},
    "hyflash, no erasing": KINDS["hyflash"] | {"memory": "gated-linear"},
    "hyflash, no gates": KINDS["hyflash"] | {"memory": "delta"},
    "hyflash, odd window": KINDS["hyflash"] | {"window": 5, "chunk": 3},
    "hyflash, wide": KINDS["hyflash"] | {"memory_value_dim": 16, "num_layers": 2},
    "hyflash, markov": KINDS["hyflash"] | {"markov_rank": 8},
    "hyflash, shifts": KINDS["hyflash"] | {"memory_shifts": (1, 3), "follow_heads": 1},
    "hyflash, 2 layers, shifts": KINDS["hyflash"] | {"memory_shifts": (0, 5), "num_layers": 2},
    "full-context, follow": KINDS["full-context"] | {"follow_heads": 1},
    "window, follow": KINDS["window"] | {"follow_heads": 1, "num_layers": 2},
    "hyflash, copying": KINDS["hyflash"] | {"copy_window": 9, "copy_size": 8, "markov_rank": 8},
    "hyflash, recall": KINDS["hyflash"] | {"copy_window": 9, "copy_size": 8, "recall_rows": 11},
    "full-context, copying": KINDS["full-context"] | {"copy_window": 200, "copy_size": 8},
    "full-context, 2 layers, markov": KINDS["full-context"] | {"num_layers": 2, "markov_rank": 8},
    "window, 2 layers": KINDS["window"] | {"num_layers": 2},
    "memory-only, 2 layers": KINDS["memory-only"] | {"num_layers": 2},
}


def block(kind: str = "hyflash", family: str = "llama", *, seed: int = 0, **options: Any) -> BlockNetwork:
    sizes = _common(family) | {"taps": (0, 1), "intermediate_size": 40} | VARIANTS[kind] | options
    network: BlockNetwork = _ready(BlockNetwork, BlockConfig(**sizes), family, seed)
    return network
