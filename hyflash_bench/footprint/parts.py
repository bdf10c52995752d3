"""Parameters of trained drafters, by what they do."""

from __future__ import annotations

from hyflash_bench.footprint.sizes import BlockSizes, EagleSizes, MedusaSizes, NetworkSizes

__all__ = ["ID_BYTES", "block_parts", "eagle_parts", "medusa_parts", "num_memories", "weight_bytes"]

ID_BYTES = 8
"""Ids of draft vocabularies and of trees are held as int64."""


def weight_bytes(config: NetworkSizes, parts: dict[str, int], element_bytes: int) -> int:
    """Bytes of a network's weights: parameters, the head's rows of the target and their ids.

    Args:
        config: Of the network.
        parts: Its parameters, as ``block_parts`` and the others count them.
        element_bytes: Of a number in the network's precision.
    """
    rows = config.draft_vocab_size * config.target.hidden_size
    return element_bytes * (sum(parts.values()) + rows) + ID_BYTES * config.draft_vocab_size


def block_parts(config: BlockSizes) -> dict[str, int]:
    """Parameters by part; ``fuse``, ``writers`` and ``sides`` work on verified rows."""
    target, size, slots = config.target, config.target.hidden_size, config.num_slots
    num_states, heads = num_memories(config), config.memory_heads
    keys, values = heads * config.memory_key_dim, heads * config.memory_value_dim
    queries, kv = target.num_heads * target.head_dim, target.num_kv_heads * target.head_dim
    width = config.intermediate_size or target.intermediate_size
    layer = size * queries * 2 + 3 * size * width + 2 * size
    reader = size * (keys + values) + slots * keys + config.memory_value_dim + values * size
    writer = size * (keys + values) + 2 * heads * (size + 1) + heads
    return {
        "head": size,
        "fuse": (len(config.taps) + config.last_hidden) * size * size,
        "input": 2 * size * size + slots * size + config.slot_rank * (2 * size + slots * size),
        "sides": config.num_layers * 2 * size * kv,
        "layers": config.num_layers * layer,
        "readers": config.num_layers * reader if num_states else 0,
        "writers": num_states * writer,
        "markov": config.markov_rank * (2 * config.draft_vocab_size + 1),
        "copying": _copying_part(config),
    }


def eagle_parts(config: EagleSizes) -> dict[str, int]:
    """Parameters by part; ``fuse`` and ``sides`` work on verified rows."""
    target, size = config.target, config.target.hidden_size
    queries, kv = target.num_heads * target.head_dim, target.num_kv_heads * target.head_dim
    layer = 3 * size * queries + 3 * size * config.intermediate_size + 3 * size
    return {
        "head": size,
        "fuse": (len(config.taps) + config.last_hidden) * size * size,
        "sides": 2 * size * 2 * kv,
        "layers": layer + (2 * size * size if config.token_residual else 0),
        "copying": _copying_part(config),
    }


def medusa_parts(config: MedusaSizes) -> dict[str, int]:
    """Parameters by part."""
    size = config.target.hidden_size
    layers = config.hidden_layers * config.num_slots * size * (size + 1)
    return {"head": size, "layers": layers, "copying": _copying_part(config)}


def _copying_part(config: NetworkSizes) -> int:
    """Parameters of the head that copies."""
    inputs = 2 * config.target.hidden_size
    return (inputs + 1) * config.copy_size + 2 + config.num_slots if config.copy_window else 0


def num_memories(config: BlockSizes) -> int:
    """Memories of a block drafter."""
    if config.memory == "none":
        return 0
    return 1 if config.shared_memory else config.num_layers
