"""The KV cache: in place, cut back by a length, paths of trees put in order."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hyflash_bench.targets.cache import KVCache


def make_cache(capacity: int = 12, length: int = 0) -> KVCache:
    cache = KVCache(
        num_layers=2,
        num_kv_heads=3,
        head_dim=4,
        capacity=capacity,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    slots = torch.arange(cache.rows.shape[3], dtype=torch.float32)
    cache.rows.copy_(slots[None, None, None, :, None].expand_as(cache.rows))
    cache.length = length
    return cache


def held(cache: KVCache) -> list[int]:
    """The slot numbers that the cache was filled with, as they stand now."""
    rows = cache.rows[:, :, :, : cache.length]
    assert (rows == rows[0, 0, 0, :, 0][:, None]).all()
    return [int(slot) for slot in rows[0, 0, 0, :, 0]]


@given(st.data())
def test_keep_moves_a_path_down_and_forgets_the_rest(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 12))
    start = data.draw(st.integers(0, length - 1))
    path = sorted(data.draw(st.sets(st.integers(0, length - start - 1))))
    cache = make_cache(12, length)

    cache.keep(start, torch.tensor(path, dtype=torch.int64))

    assert held(cache) == [*range(start), *(start + row for row in path)]


def test_layers_are_views_of_one_allocation() -> None:
    cache = make_cache(8)

    (storage,) = cache.tensors()

    assert len(cache.layers) == 2
    assert all(
        part.untyped_storage().data_ptr() == storage.data_ptr() for pair in cache.layers for part in pair
    )
    assert cache.bytes() == storage.nbytes == 8 * cache.bytes_per_token
    assert cache.bytes_per_token == 2 * 2 * 3 * 4 * 4


def test_truncate_moves_the_length_and_nothing_else() -> None:
    cache = make_cache(12, 9)
    before = cache.rows.clone()

    cache.truncate(4)

    assert cache.length == 4
    assert cache.free == 8
    assert torch.equal(cache.rows, before)


@pytest.mark.parametrize("length", [-1, 10])
def test_truncate_cannot_lengthen(length: int) -> None:
    with pytest.raises(ValueError, match="cannot cut a cache of 9 tokens"):
        make_cache(12, 9).truncate(length)


@pytest.mark.parametrize("path", [[1, 1], [2, 1], [-1, 0], [0, 6]])
def test_keep_refuses_what_is_no_path(path: list[int]) -> None:
    with pytest.raises(ValueError, match="not an increasing path"):
        make_cache(12, 9).keep(3, torch.tensor(path))


def test_saved_rows_come_back_whatever_happened_between() -> None:
    cache = make_cache(12, 10)
    saved = cache.save(4, 10)
    cache.rows[:, :, :, 4:] = -1
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
