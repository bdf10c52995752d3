"""The KV cache: in place, cut back by a length, paths of trees put in order."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hyflash_bench.footprint import KVChoice
from hyflash_bench.targets.cache import KVCache


def make_cache(capacity: int = 12, length: int = 0, kv_dtype: KVChoice = "auto") -> KVCache:
    cache = KVCache(
        num_layers=2,
        num_kv_heads=3,
        head_dim=4,
        capacity=capacity,
        dtype=torch.float32,
        device=torch.device("cpu"),
        kv_dtype=kv_dtype,
    )
    slots = torch.arange(cache.num_slots)
    cache.numbers.copy_(slots[:, None])
    if cache.scales is not None:
        cache.scales.copy_(slots)
    cache.length = length
    return cache


def held(cache: KVCache) -> list[int]:
    """The slot numbers that the cache was filled with, as they stand now."""
    rows = cache.numbers[:, :, :, : cache.length]
    slots = rows[0, 0, 0, :, 0]
    assert (rows == slots[:, None]).all()
    assert cache.scales is None or (cache.scales[:, :, :, : cache.length] == slots).all()
    return [int(slot) for slot in slots]


@given(st.data(), st.sampled_from(["float32", "int8"]))
def test_keep_moves_a_path_down_and_forgets_the_rest(data: st.DataObject, kv_dtype: KVChoice) -> None:
    length = data.draw(st.integers(1, 12))
    start = data.draw(st.integers(0, length - 1))
    path = sorted(data.draw(st.sets(st.integers(0, length - start - 1))))
    cache = make_cache(12, length, kv_dtype)

    cache.keep(start, torch.tensor(path, dtype=torch.int64))

    assert held(cache) == [*range(start), *(start + row for row in path)]


def test_truncate_moves_the_length_and_nothing_else() -> None:
    cache = make_cache(12, 9)
    before = cache.numbers.clone()

    cache.truncate(4)

    assert cache.length == 4
    assert cache.free == 8
    assert torch.equal(cache.numbers, before)


@pytest.mark.parametrize("length", [-1, 10])
def test_truncate_cannot_lengthen(length: int) -> None:
    with pytest.raises(ValueError, match="cannot cut a cache of 9 tokens"):
        make_cache(12, 9).truncate(length)


@pytest.mark.parametrize("path", [[1, 1], [2, 1], [-1, 0], [0, 6]])
def test_keep_refuses_what_is_no_path(path: list[int]) -> None:
    with pytest.raises(ValueError, match="not an increasing path"):
        make_cache(12, 9).keep(3, torch.tensor(path))


@pytest.mark.parametrize("kv_dtype", ["float32", "int8"])
def test_saved_rows_come_back_whatever_happened_between(kv_dtype: KVChoice) -> None:
    cache = make_cache(12, 10, kv_dtype)
    saved = cache.save(4, 10)
    for part in cache.tensors():
        part[:, :, :, 4:] = -1
    cache.truncate(7)

    cache.restore(saved)

    assert cache.length == 7
    cache.length = 10
    assert held(cache) == list(range(10))


def test_saving_past_the_end_is_refused() -> None:
    with pytest.raises(ValueError, match="not within a cache of 12"):
        make_cache(12, 3).save(2, 13)


def test_reserve_says_what_does_not_fit() -> None:
    cache = make_cache(12, 10)

    assert cache.reserve(2) == 10
    with pytest.raises(ValueError, match="3 tokens do not fit behind 10 in a cache of 12"):
        cache.reserve(3)


def test_an_empty_cache_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 token"):
        make_cache(0)
