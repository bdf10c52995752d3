"""Prefill and verification against transformers' own full forward, for every family."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hyflash_bench.drafters.base import Features, Requires
from hyflash_bench.errors import ContextTooLong
from hyflash_bench.targets.target import Target
from tests.targets.families import FAMILIES, WINDOW, make_model, make_target, random_tokens

TOLERANCE = 1e-4
EVERYTHING = Requires(taps=(0, 2), last_hidden=True, logits=True)
TREE = [-1, 0, 0, 1, 2, 4]
CONTEXT = 3 * WINDOW + 2


def close(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE)


@torch.no_grad()
def reference(model: Any, tokens: Tensor) -> Features:
    """What transformers computes at every position of one full forward."""
    taps: dict[int, Tensor] = {}

    def tap(index: int) -> Any:
        return lambda _module, _inputs, output: taps.__setitem__(index, output[0])

    handles = [layer.register_forward_hook(tap(index)) for index, layer in enumerate(model.model.layers)]
    out = model(tokens[None], output_hidden_states=True, use_cache=False)
    for handle in handles:
        handle.remove()
    taps = {index: rows.reshape(len(tokens), -1) for index, rows in taps.items()}
    return Features(taps=taps, last_hidden=out.hidden_states[-1][0], logits=out.logits[0].float())


@pytest.fixture(params=FAMILIES, scope="module")
def model(request: pytest.FixtureRequest) -> Any:
    return make_model(request.param)


@pytest.fixture(params=["auto", "grouped", "sdpa"], scope="module")
def target(request: pytest.FixtureRequest, model: Any) -> Target:
    return make_target(model, attention=request.param)


def test_prefill_in_chunks_equals_one_full_forward(model: Any, target: Target) -> None:
    tokens = random_tokens(CONTEXT)
    expected = reference(model, tokens)

    passed = target.prefill(tokens, target.new_cache(40), EVERYTHING, chunk_size=5)

    assert close(passed.logits, expected.logits[-1:])
    assert close(passed.features.logits, expected.logits)
    assert close(passed.features.last_hidden, expected.last_hidden)
    assert set(passed.features.taps) == {0, 2}
    assert all(close(rows, expected.taps[layer]) for layer, rows in passed.features.taps.items())


def test_a_chain_continues_the_context(model: Any, target: Target) -> None:
    tokens = random_tokens(CONTEXT)
    expected = reference(model, tokens).rows(slice(CONTEXT - 9, None))
    cache = target.new_cache(CONTEXT)
    target.prefill(tokens[:-9], cache, chunk_size=100)

    first = target.forward(tokens[-9:-8], cache, EVERYTHING)
    rest = target.forward(tokens[-8:], cache, EVERYTHING)

    assert close(torch.cat([first.logits, rest.logits]), expected.logits)
    features = Features.concatenate([first.features, rest.features])
    assert close(features.last_hidden, expected.last_hidden)
    assert all(close(features.taps[layer], expected.taps[layer]) for layer in (0, 2))


def test_a_rejected_draft_leaves_no_trace(model: Any, target: Target) -> None:
    tokens = random_tokens(CONTEXT)
    cache = target.new_cache(CONTEXT + 8)
    target.prefill(tokens[:-4], cache)
    target.forward(random_tokens(6, seed=9), cache)
    cache.truncate(CONTEXT - 4)

    passed = target.forward(tokens[-4:], cache)

    assert close(passed.logits, reference(model, tokens).logits[-4:])


def test_a_tree_row_sees_only_its_own_path(model: Any, target: Target) -> None:
    context, draft = random_tokens(CONTEXT), random_tokens(len(TREE), seed=5)
    cache = target.new_cache(CONTEXT + len(TREE))
    target.prefill(context, cache)

    passed = target.forward(draft, cache, EVERYTHING, parents=torch.tensor(TREE))

    for row in range(len(TREE)):
        path = path_to(row)
        expected = reference(model, torch.cat([context, draft[path]]))
        assert close(passed.logits[row], expected.logits[-1])
        assert close(passed.features.taps[2][row], expected.taps[2][-1])


def test_the_kept_path_of_a_tree_is_a_plain_context(model: Any, target: Target) -> None:
    context, draft, after = random_tokens(CONTEXT), random_tokens(len(TREE), seed=5), random_tokens(3, seed=6)
    cache = target.new_cache(CONTEXT + len(TREE) + 3)
    target.prefill(context, cache)
    target.forward(draft, cache, parents=torch.tensor(TREE))
    path = path_to(5)

    cache.keep(CONTEXT, torch.tensor(path))
    passed = target.forward(after, cache)

    assert cache.length == CONTEXT + len(path) + 3
    expected = reference(model, torch.cat([context, draft[path], after]))
    assert close(passed.logits, expected.logits[-3:])


def path_to(row: int) -> list[int]:
    path = [row]
    while TREE[path[0]] >= 0:
        path.insert(0, TREE[path[0]])
    return path


@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.integers(1, 12), min_size=1, max_size=6), start=st.integers(1, 70))
def test_native_passes_give_the_same_bits_however_they_are_cut(cuts: list[int], start: int) -> None:
    target = make_target(_SHARED)
    if target.info.attention != "native":
        pytest.skip("no compiler here")
    tokens = random_tokens(start + sum(cuts))
    cache = target.new_cache(len(tokens))
    target.prefill(tokens[:start], cache)
    single = [target.forward(tokens[at : at + 1], cache).logits for at in range(start, len(tokens))]
    cache.truncate(start)

    pieces = [target.forward(piece, cache).logits for piece in torch.split(tokens[start:], cuts)]

    assert torch.equal(torch.cat(pieces), torch.cat(single))


_SHARED = make_model("gemma2")


def test_nothing_is_computed_that_nobody_asked_for() -> None:
    target = make_target(make_model("llama"))

    passed = target.prefill(random_tokens(9), target.new_cache(9))

    assert passed.features == Features()
    assert passed.logits.shape == (1, target.info.vocab_size)
    assert passed.logits.dtype == torch.float32


def test_a_context_past_the_last_position_is_refused_unless_extrapolating() -> None:
    model = make_model("llama")
    limit = model.config.max_position_embeddings
    target, daring = make_target(model), make_target(model, extrapolate=True)
    tokens = random_tokens(limit + 1)
    cache = target.new_cache(limit + 1)

    with pytest.raises(ContextTooLong, match=f"{limit + 1} tokens exceeds the {limit} positions"):
        target.prefill(tokens, cache)

    assert cache.length == 0
    daring.prefill(tokens, cache)
    assert cache.length == limit + 1
    assert daring.info.extrapolate


def test_room_past_the_last_position_changes_no_rotation() -> None:
    """Dynamic scaling looks at the longest context, which a cache with room for drafts exceeds."""
    model = make_model("llama-dynamic")
    target = make_target(model)
    tokens = random_tokens(model.config.max_position_embeddings)

    passed = target.prefill(tokens, target.new_cache(len(tokens) + 16), Requires(logits=True))

    assert close(passed.features.logits, reference(model, tokens).logits)


def test_a_tree_is_measured_by_its_depth_not_its_size() -> None:
    model = make_model("llama")
    target = make_target(model)
    limit = model.config.max_position_embeddings
    cache = target.new_cache(limit + 8)
    target.prefill(random_tokens(limit - 1), cache)

    target.forward(random_tokens(3), cache, parents=torch.tensor([-1, -1, -1]))
    cache.truncate(limit - 1)

    with pytest.raises(ContextTooLong):
        target.forward(random_tokens(2), cache, parents=torch.tensor([-1, 0]))


@pytest.mark.parametrize("bad", [torch.empty(0, dtype=torch.int64), torch.zeros(1, 3, dtype=torch.int64)])
def test_tokens_are_one_row_of_at_least_one(bad: Tensor) -> None:
    target = make_target(make_model("llama"))

    with pytest.raises(ValueError, match=r"T >= 1"):
        target.forward(bad, target.new_cache(4))


def test_more_than_fits_is_a_programming_error() -> None:
    target = make_target(make_model("llama"))
    cache = target.new_cache(4)
    target.prefill(random_tokens(3), cache)

    with pytest.raises(ValueError, match="2 tokens do not fit behind 3 in a cache of 4"):
        target.forward(random_tokens(2), cache)


@pytest.mark.parametrize("parents", [[0], [-1, 2], [-2, 0], [-1]])
def test_parents_must_describe_a_tree(parents: list[int]) -> None:
    target = make_target(make_model("llama"))
    tokens = random_tokens(2 if len(parents) > 1 or parents == [-1] else 1)

    with pytest.raises(ValueError, match="do not describe a tree"):
        target.forward(tokens, target.new_cache(4), parents=torch.tensor(parents))


def test_facts_can_be_written_as_json() -> None:
    info = make_target(make_model("gemma3")).info

    assert json.loads(json.dumps(info.to_json()))["eos_token_ids"] == [2]
    assert info.kv_bytes_per_token == 2 * 3 * 2 * 8 * 4
    assert info.num_parameters * 4 == info.weight_bytes


@pytest.mark.real
def test_the_default_target_agrees_with_transformers(smollm2: Target) -> None:
    text = "The three laws of robotics were written by Isaac Asimov. " * 8
    tokens = torch.tensor(smollm2.tokenizer.encode(text))
    expected = reference(smollm2.model, tokens)
    cache = smollm2.new_cache(len(tokens))

    smollm2.prefill(tokens[:-5], cache)
    passed = smollm2.forward(tokens[-5:], cache, Requires(taps=(14,), last_hidden=True))

    assert torch.allclose(passed.logits, expected.logits[-5:], rtol=1e-3, atol=1e-3)
    assert torch.equal(passed.logits.argmax(-1), expected.logits[-5:].argmax(-1))
