"""Operations and bytes on paper are those that torch counts, for targets and for drafters' networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hyflash_bench.drafters.base import Drafter
from hyflash_bench.drafters.eagle import Eagle
from hyflash_bench.drafters.full_context import FullContext
from hyflash_bench.drafters.hyflash import HyFlash
from hyflash_bench.drafters.medusa import Medusa
from hyflash_bench.drafters.memory_only import MemoryOnly
from hyflash_bench.drafters.networks import native
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.drafters.window import Window
from hyflash_bench.memory.catalog import form_of
from hyflash_bench.memory.operators import count_operators
from hyflash_bench.memory.shapes import shape_of
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.sampling import GREEDY
from tests.drafters.networks.blocks import block
from tests.drafters.networks.small import eagle, features_of, medusa, saved
from tests.drafters.walks import opened
from tests.memory.counting import bytes_read, flops_of
from tests.targets.families import make_model, make_target, random_tokens

CONTEXT, ROWS = 3, 3
"""Short enough for the families' sliding windows, which forms do not know."""
FAMILIES = ("llama", "llama-biased", "llama-mha", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi3")


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_a_pass_of_a_target(family: str):
    model = make_model(family)
    shape = shape_of(model.config.to_dict(), "tiny")
    target = make_target(model, attention="grouped")
    cache = target.new_cache(CONTEXT + ROWS)
    target.prefill(random_tokens(CONTEXT), cache)
    arch = target._decoder.arch
    norms = [
        getattr(layer, f"{name}_norm")
        for layer in arch.layers
        for name in ("input", "query", "key", "attention", "mlp", "down")
    ]
    weights = [linear.weight for linear in arch.linears] + [
        *(linear.bias for linear in arch.linears if linear.bias is not None),
        *(norm.weight for norm in (*norms, arch.final_norm) if norm is not None),
    ]

    def work() -> None:
        cache.truncate(CONTEXT)
        target.forward(random_tokens(ROWS), cache)

    cost = shape.pass_cost(ROWS, CONTEXT, bits=32, kv_dtype="float32")
    assert flops_of(work) == cost.flops
    read = bytes_read(work, [*weights, *cache.tensors()])
    written = ROWS * shape.kv_bytes_per_token("float32")
    assert read + written == cost.num_bytes


CASES: list[tuple[type[Drafter], Any, dict[str, Any]]] = [
    (HyFlash, lambda: block("hyflash", memory_value_dim=16), {}),
    (HyFlash, lambda: block("hyflash, 2 layers", memory_value_dim=16), {}),
    (HyFlash, lambda: block("hyflash, markov", memory_value_dim=16), {}),
    (HyFlash, lambda: block("hyflash, 2 layers, one state", memory_value_dim=16), {}),
    (HyFlash, lambda: block("hyflash, copying", memory_value_dim=16), {}),
    (HyFlash, lambda: block("hyflash, recall", memory_value_dim=16), {}),
    (HyFlash, lambda: block("hyflash, copying", memory_value_dim=16), {"recall_rows": 7}),
    (FullContext, lambda: block("full-context"), {}),
    (FullContext, lambda: block("full-context, 2 layers, markov"), {}),
    (Window, lambda: block("window, 2 layers"), {}),
    (MemoryOnly, lambda: block("memory-only", memory_value_dim=16), {}),
    (Eagle, eagle, {}),
    (Eagle, lambda: eagle(copy_window=9, copy_size=8), {}),
    (Eagle, eagle, {"tree": True, "top_k": 3, "depth": 4}),
    (Eagle, eagle, {"window": 2}),
    (Medusa, medusa, {}),
    (Medusa, medusa, {"tree": True, "tree_nodes": 9}),
]


@pytest.mark.parametrize(("kind", "network", "options"), CASES)
def test_a_draft_and_an_observation(
    kind: type[Drafter],
    network: Any,
    options: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    folder = saved(network(), tmp_path)
    drafter = opened(kind, folder, **options)
    shape = shape_of(make_model("llama").config.to_dict(), "tiny")
    form = form_of(DrafterSpec(name=kind.name, options={"checkpoint": str(folder), **options}), shape)
    assert form is not None
    context, most = 40, form.most_drafted
    tokens = random_tokens(80)
    features = features_of(tokens, drafter.requires)

    def observed(start: int, stop: int) -> None:
        drafter.observe(tokens[start:stop], features.rows(slice(start, stop)))

    def draft() -> None:
        drafter.draft(5, 16, Sampler(GREEDY, 0))

    drafter.reset()
    observed(0, context)
    cost = form.draft_cost(float(most), float(context))
    if native.load_kernels() is not None:
        assert count_operators(draft) == pytest.approx(
            float(cost.num_operators * cost.num_passes), rel=0.15, abs=4
        )
    monkeypatch.setattr(native, "load_kernels", lambda: None)  # torch does not see into it
    total = float(cost.flops * cost.num_passes)
    assert flops_of(draft) == pytest.approx(total, rel=0.06)
    owned = [held.tensor for held in drafter.memory() if not held.shared and held.tensor is not None]
    floats = [tensor for tensor in owned if tensor.is_floating_point()]
    assert bytes_read(draft, floats) == pytest.approx(float(cost.num_bytes), rel=0.12)

    starts = range(context, len(tokens) - 2, 3)  # memories are written in some of the steps
    costs = [form.observe_cost(3.0, float(start)) for start in starts]
    assert flops_of(lambda: [observed(start, start + 3) for start in starts]) == pytest.approx(
        sum(float(cost.flops) for cost in costs), rel=0.15
    )
    drafter.reset()
    observed(0, context)
    assert count_operators(lambda: [observed(start, start + 3) for start in starts]) == pytest.approx(
        sum(float(cost.num_operators) for cost in costs), rel=0.2
    )
