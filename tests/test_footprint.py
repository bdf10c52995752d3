"""Bytes of drafters on paper are those of live ones, and of numbers worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hyflash_bench import footprint
from hyflash_bench.data import data_folder
from hyflash_bench.drafters.base import Drafter
from hyflash_bench.drafters.eagle import Eagle
from hyflash_bench.drafters.full_context import FullContext
from hyflash_bench.drafters.hyflash import HyFlash
from hyflash_bench.drafters.medusa import Medusa
from hyflash_bench.drafters.memory_only import MemoryOnly
from hyflash_bench.drafters.networks.block import BlockConfig
from hyflash_bench.drafters.window import Window
from hyflash_bench.spec.claims import read_claims, shipped_claims
from hyflash_bench.spec.drafter import DrafterSpec
from tests.drafters.networks.blocks import VARIANTS, block
from tests.drafters.networks.small import eagle, medusa
from tests.drafters.walks import loaded

CLASSES: dict[str, type[Drafter]] = {
    "hyflash": HyFlash,
    "full-context": FullContext,
    "window": Window,
    "memory-only": MemoryOnly,
}
CONTEXTS = (0, 1, 7, 250, 251, 252, 253, 256, 700)


def parts_of(network: Any) -> dict[str, int]:
    counts = {
        "block": footprint.block_parts,
        "eagle": footprint.eagle_parts,
        "medusa": footprint.medusa_parts,
    }
    return counts[network.kind](network.config)


def networks() -> dict[str, Any]:
    kinds: dict[str, Any] = {kind: block(kind) for kind in VARIANTS}
    kinds |= {
        "hyflash, no rank": block("hyflash", slot_rank=0, last_hidden=True, taps=()),
        "hyflash, own width": block("hyflash", intermediate_size=0, last_hidden=False),
        "hyflash, odd heads": block("hyflash", family="llama-odd-head"),
        "eagle": eagle(),
        "eagle, no residual": eagle(token_residual=False, last_hidden=False),
        "eagle, odd heads": eagle(family="llama-odd-head"),
        "medusa": medusa(),
        "medusa, 2 layers": medusa(hidden_layers=2),
    }
    return kinds


def test_parts_sum_to_the_parameters_of_every_network():
    counted = {name: sum(parts_of(network).values()) for name, network in networks().items()}
    assert counted == {name: network.num_parameters() for name, network in networks().items()}


@pytest.mark.parametrize("kind", VARIANTS)
def test_block_drafters_on_paper_are_the_live_ones(kind: str, tmp_path: Path):
    drafter = loaded(CLASSES[kind.partition(",")[0]], block(kind), tmp_path)
    check(drafter, lambda config, length: footprint.block_held(config, length, 4))


@pytest.mark.parametrize("window", [3, 200])
def test_a_limit_makes_full_attention_constant(window: int, tmp_path: Path):
    drafter = loaded(FullContext, block("full-context"), tmp_path, window=window)
    check(drafter, lambda config, length: footprint.block_held(config, length, 4, limit=window))


@pytest.mark.parametrize(("options", "ahead"), [({}, 4), ({"tree": True, "top_k": 3, "depth": 5}, 13)])
def test_eagle_on_paper_is_the_live_one(options: dict[str, Any], ahead: int, tmp_path: Path):
    drafter = loaded(Eagle, eagle(), tmp_path, **options)
    check(drafter, lambda config, length: footprint.eagle_held(config, length, 4, ahead))


@pytest.mark.parametrize(("options", "nodes"), [({}, 0), ({"tree": True, "tree_nodes": 9}, 9)])
def test_medusa_on_paper_is_the_live_one(options: dict[str, Any], nodes: int, tmp_path: Path):
    drafter = loaded(Medusa, medusa(), tmp_path, **options)
    check(drafter, lambda config, _: footprint.medusa_held(config, 4, nodes))


def check(drafter: Any, held: Any) -> None:
    config = drafter.network.config
    weights = footprint.weight_bytes(config, parts_of(drafter.network), 4)
    for length in CONTEXTS:
        assert drafter.memory_formula(length) == {"weights": weights, **held(config, length)}


TARGET = SimpleNamespace(hidden_size=10, intermediate_size=20, num_heads=4, num_kv_heads=2, head_dim=5)
BLOCK: dict[str, Any] = {
    "target": TARGET,
    "num_slots": 3,
    "draft_vocab_size": 7,
    "num_layers": 2,
    "taps": (0, 1),
    "last_hidden": True,
    "attention": "window",
    "window": 8,
    "chunk": 4,
    "memory": "gated-delta",
    "memory_heads": 2,
    "memory_key_dim": 3,
    "memory_value_dim": 5,
    "memory_shifts": (1, 4),
    "copy_window": 6,
    "copy_size": 3,
    "recall_rows": 0,
    "shared_memory": False,
    "intermediate_size": 0,
    "slot_rank": 2,
    "markov_rank": 1,
}


def test_weights_by_hand():
    parts = footprint.block_parts(SimpleNamespace(**BLOCK))
    assert parts == {
        "head": 10,
        "fuse": 3 * 10 * 10,
        "input": 20 * 10 + 3 * 10 + 2 * (20 + 30),
        "sides": 2 * 2 * 10 * 10,
        "layers": 2 * (10 * 20 + 20 * 10 + 3 * 10 * 20 + 20),
        "readers": 2 * (10 * 16 + 3 * 6 + 5 + 10 * 10),
        "writers": 2 * (10 * 16 + 4 * 11 + 2),
        "markov": 7 + 8,
        "copying": (20 + 1) * 3 + 2 + 3,
    }
    assert footprint.weight_bytes(SimpleNamespace(**BLOCK), {"all": 100}, 2) == 2 * (100 + 70) + 8 * 7


def test_held_bytes_by_hand():
    window = SimpleNamespace(**BLOCK)
    assert footprint.block_held(window, 10**6, 2) == {
        "kv": 2 * (11 + 3) * 2 * 2 * 5 * 2 + 6 * (3 * 2 + 4) + 4,
        "state": 4 * 2 * 2 * 3 * 5,
        "buffer": (1 + 11 + 4 + 1) * 10 * 2,
    }
    recalling = SimpleNamespace(**BLOCK | {"recall_rows": 5})
    more = (
        footprint.block_held(recalling, 10**6, 2)["state"] - footprint.block_held(window, 10**6, 2)["state"]
    )
    assert more == 5 * (3 * 2 + 3 * 4)
    full = SimpleNamespace(**BLOCK | {"attention": "full", "memory": "none"})
    assert footprint.block_held(full, 253, 4) == {
        "kv": 2 * 256 * 2 * 2 * 5 * 4 + 6 * 16 + 4,
        "buffer": 2 * 40,
    }
    assert footprint.block_held(full, 254, 4, kv_row_bytes=24)["kv"] == 2 * 512 * 24 + 6 * 16 + 4


@pytest.mark.parametrize("kind", ["window", "full"])
def test_more_context_never_holds_less(kind: str):
    config = SimpleNamespace(**BLOCK | {"attention": kind, "memory": "none"})
    totals = [sum(footprint.block_held(config, length, 4).values()) for length in range(0, 3000, 7)]
    assert totals == sorted(totals)
    assert (len(set(totals)) == 1) == (kind == "window")


def test_the_attention_that_the_claims_call_of_equal_bytes_is_the_widest_within_them() -> None:
    """Of the shipped drafters, in the default target's float32."""
    claims = {claim.id: claim for claim in read_claims(*shipped_claims()).claims}
    rows = DrafterSpec.from_text(claims["attention-of-equal-bytes-is-no-better"].against).options["window"]
    hyflash, attention = (shipped_config(name) for name in ("hyflash-l1", "full-context-l1"))
    budget = held_bytes(hyflash)

    assert held_bytes(attention, limit=rows) <= budget < held_bytes(attention, limit=rows + 1)


def shipped_config(name: str) -> BlockConfig:
    path = data_folder("baselines") / "smollm2-135m" / name / "config.json"
    return BlockConfig.model_validate(json.loads(path.read_text(encoding="utf-8"))["network"])


def held_bytes(config: BlockConfig, limit: int = 0) -> int:
    return sum(footprint.block_held(config, 7680, 4, limit=limit).values())
