"""A cache in any precision: the text's own rounding and nothing more, whichever kernel reads it."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hyflash_bench.footprint import KVDtype, kv_row_bytes
from hyflash_bench.kv import same_step
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.attention import Visibility
from hyflash_bench.targets.cache import KVCache
from hyflash_bench.targets.target import Target
from tests.targets.families import make_model, make_target, random_tokens

KV_DTYPES: tuple[KVDtype, ...] = get_args(KVDtype)
LOSSY: tuple[KVDtype, ...] = ("bfloat16", "float16", "int8")
TREE = [-1, 0, 0, 1, 2, 4]
CONTEXT = 30
_LLAMA, _GEMMA2, _ODD = make_model("llama"), make_model("gemma2"), make_model("llama-odd-head")


def filled(target: Target, tokens: Tensor, spare: int = 20) -> KVCache:
    cache = target.new_cache(len(tokens) + spare)
    target.prefill(tokens, cache)
    return cache


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_facts_and_bytes_follow_the_precision(kv_dtype: KVDtype, dtype: str) -> None:
    model = make_model("llama").to(getattr(torch, dtype))
    target = make_target(model, kv_dtype=kv_dtype)
    cache = target.new_cache(24)

    assert (target.info.kv_dtype, target.info.dtype) == (kv_dtype, dtype)
    assert target.info.kv_bytes_per_token == 3 * kv_row_bytes(2, 8, kv_dtype) == cache.bytes_per_token
    assert cache.bytes() == 24 * cache.bytes_per_token
    coarser = "bfloat16" if "bfloat16" in (dtype, kv_dtype) or kv_dtype == "int8" else kv_dtype
    assert target.tolerance_dtype == getattr(torch, coarser)


def test_the_default_is_the_precision_of_the_weights() -> None:
    assert TargetSpec().kv_dtype == "auto"
    assert make_target(_LLAMA).info.kv_dtype == "float32"
    assert make_target(make_model("llama").bfloat16()).info.kv_dtype == "bfloat16"


# Attention against float64


@pytest.mark.parametrize("attention", ["grouped", "sdpa"])
@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_attention_stays_within_the_bound_of_its_precision(
    kv_dtype: KVDtype, attention: str, seed: int
) -> None:
    """With scores off by at most e, weights are off by a factor of at most exp(2 e)."""
    target = make_target(_LLAMA, attention=attention, kv_dtype=kv_dtype)
    random = torch.Generator().manual_seed(seed)
    queries = torch.randn(4, 6, 8, generator=random)
    keys, values = (2 * torch.randn(CONTEXT, 2, 8, generator=random) for _ in range(2))
    cache = target.new_cache(CONTEXT)
    cache.write(0, 0, keys, values)
    decoder = target._decoder
    layer, view = decoder.arch.layers[0], Visibility(CONTEXT - 4, 4)
    kept = cache.read(0, view.seen(None))

    found = decoder.look(queries, *kept, layer, view).view(4, 6, 8)

    exact_keys, exact_values = (
        side.double().repeat_interleave(3, 1).transpose(0, 1) for side in (keys, values)
    )
    scale = decoder.arch.attention_scale
    wide = queries.double().transpose(0, 1)
    scores = (wide @ exact_keys.mT * scale).masked_fill(~view.mask(None, queries.device), -torch.inf)
    expected = (scores.softmax(-1) @ exact_values).transpose(0, 1)
    off_keys, off_values = (
        (side.double() - exact.double().transpose(0, 1)).abs().amax(1)
        for side, exact in zip(kept, (keys, values), strict=True)
    )
    score_error = (wide.abs() @ off_keys.repeat_interleave(3, 0)[..., None]).max() * scale
    bound = (torch.exp(2 * score_error) - 1) * values.abs().max() + off_values.max()
    assert float((found - expected).abs().max()) <= float(bound) + 1e-5
    if kv_dtype == "float32":
        assert float(bound) == 0.0


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
@pytest.mark.parametrize("model", [_LLAMA, _GEMMA2, _ODD], ids=["llama", "gemma2", "odd head"])
def test_logits_are_off_by_no_more_than_the_precision(model: Any, kv_dtype: KVDtype) -> None:
    """Against a cache in float32, in steps of the precision; a random network amplifies them little."""
    tokens = random_tokens(CONTEXT + 6)
    exact, lossy = make_target(model), make_target(model, kv_dtype=kv_dtype)
    expected = exact.forward(tokens[CONTEXT:], filled(exact, tokens[:CONTEXT])).logits
    found = lossy.forward(tokens[CONTEXT:], filled(lossy, tokens[:CONTEXT])).logits
    step = torch.finfo(same_step(kv_dtype)).eps
    assert float((found - expected).abs().max()) <= 20 * step * float(expected.abs().max())
    assert torch.equal(found, expected) == (kv_dtype == "float32")


# The compiled kernels


def native(model: Any, kv_dtype: KVDtype) -> Target:
    target = make_target(model, kv_dtype=kv_dtype)
    if target.info.attention != "native":
        pytest.skip("no compiler here")
    return target


@pytest.mark.parametrize("kv_dtype", LOSSY)
@settings(max_examples=10, deadline=None)
@given(cuts=st.lists(st.integers(1, 12), min_size=1, max_size=6), start=st.integers(1, 50))
def test_a_draft_gives_the_same_bits_however_it_is_cut(
    kv_dtype: KVDtype, cuts: list[int], start: int
) -> None:
    target = native(_GEMMA2, kv_dtype)
    tokens = random_tokens(start + sum(cuts))
    cache = filled(target, tokens[:start], sum(cuts))
    single = [target.forward(tokens[at : at + 1], cache).logits for at in range(start, len(tokens))]
    written = [part[:, :, :, : cache.length].clone() for part in cache.tensors()]
    cache.truncate(start)

    pieces = [target.forward(piece, cache).logits for piece in torch.split(tokens[start:], cuts)]

    assert torch.equal(torch.cat(pieces), torch.cat(single))
    for part, before in zip(cache.tensors(), written, strict=True):
        assert torch.equal(part[:, :, :, : cache.length], before)


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
@pytest.mark.parametrize("model", [_LLAMA, _GEMMA2], ids=["llama", "gemma2"])
def test_the_kernels_read_the_same_numbers_as_torch(model: Any, kv_dtype: KVDtype) -> None:
    """The cache holds numbers of all sizes, down to the least of float16."""
    compiled, plain = native(model, kv_dtype), make_target(model, kv_dtype=kv_dtype, attention="grouped")
    random = torch.Generator().manual_seed(5)
    sizes = 10 ** (9 * torch.rand(2, 70, 2, 1, generator=random) - 8)
    keys, values = sizes * torch.randn(2, 70, 2, 8, generator=random)
    logits = []
    for target in (compiled, plain):
        cache = target.new_cache(80)
        for layer in range(3):
            cache.write(layer, 0, keys, values)
        cache.length = 70
        logits.append(target.forward(random_tokens(1), cache).logits)
    assert torch.allclose(*logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_the_kernels_keep_what_torch_keeps(kv_dtype: KVDtype) -> None:
    """The first layer's rows hardly differ; after rounding few differ, and by a step."""
    tokens = random_tokens(12, seed=4)
    compiled, plain = native(_LLAMA, kv_dtype), make_target(_LLAMA, kv_dtype=kv_dtype, attention="grouped")
    kept = []
    for target in (compiled, plain):
        cache = target.new_cache(12)
        target.forward(tokens, cache)
        kept.append([side.double() for side in cache.read(0, slice(0, 12))])
    for found, expected in zip(*kept, strict=True):
        step = torch.finfo(same_step(kv_dtype)).eps * expected.abs().amax(-1, keepdim=True)
        gap = (found - expected).abs()
        assert bool((gap <= 1.01 * step + 1e-5).all())
        assert float((gap > 1e-5).double().mean()) < 0.02


# Cut back, kept, saved


@pytest.mark.parametrize("attention", ["auto", "grouped"])
@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_the_kept_path_of_a_tree_is_what_a_chain_would_have_left(kv_dtype: KVDtype, attention: str) -> None:
    target = make_target(_LLAMA, kv_dtype=kv_dtype, attention=attention)
    context, draft, after = random_tokens(CONTEXT), random_tokens(len(TREE), seed=5), random_tokens(3, seed=6)
    path = [0, 2, 4, 5]
    tree, chain = filled(target, context), filled(target, context)
    target.forward(draft, tree, parents=torch.tensor(TREE))
    tree.keep(CONTEXT, torch.tensor(path))
    target.forward(draft[path], chain)

    assert tree.length == chain.length
    found, expected = (target.forward(after, cache).logits for cache in (tree, chain))
    step = torch.finfo(same_step(kv_dtype)).eps
    assert torch.allclose(found, expected, atol=step * float(expected.abs().max()) + 1e-4)


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_a_rejected_draft_and_a_detour_leave_no_trace(kv_dtype: KVDtype) -> None:
    target = make_target(_LLAMA, kv_dtype=kv_dtype)
    tokens = random_tokens(CONTEXT)
    cache, clean = filled(target, tokens), filled(target, tokens)
    saved = cache.save(CONTEXT - 8, CONTEXT)
    cache.truncate(CONTEXT - 8)
    target.forward(random_tokens(9, seed=9), cache)
    cache.restore(saved)
    cache.truncate(CONTEXT - 8)
    cache.length = CONTEXT
    target.forward(random_tokens(5, seed=8), cache)
    cache.truncate(CONTEXT)

    assert torch.equal(
        target.forward(random_tokens(2, seed=7), cache).logits,
        target.forward(random_tokens(2, seed=7), clean).logits,
    )


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_growing_keeps_every_row(kv_dtype: KVDtype) -> None:
    target = make_target(_LLAMA, kv_dtype=kv_dtype)
    tokens = random_tokens(CONTEXT)
    grown, roomy = filled(target, tokens, spare=0), filled(target, tokens)
    grown.grow(CONTEXT + 20)
    assert grown.bytes() == roomy.bytes()
    assert torch.equal(
        target.forward(random_tokens(3), grown).logits, target.forward(random_tokens(3), roomy).logits
    )
