"""Rows come back as near as their precision allows, and take the bytes that the formula says."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hyflash_bench.footprint import KVChoice, KVDtype, kv_row_bytes
from hyflash_bench.kv import KVRows, kv_dtype_of, same_step

KV_DTYPES: tuple[KVDtype, ...] = get_args(KVDtype)
LAYERS, HEADS, SIZE = 2, 3, 8


def make(kv_dtype: KVChoice, num_slots: int = 12, dtype: torch.dtype = torch.float32) -> KVRows:
    return KVRows(
        num_layers=LAYERS,
        num_kv_heads=HEADS,
        head_dim=SIZE,
        num_slots=num_slots,
        dtype=dtype,
        device=torch.device("cpu"),
        kv_dtype=kv_dtype,
    )


def rows(count: int, seed: int = 0, spread: float = 3.0) -> Tensor:
    """``[count, heads, size]`` numbers over many orders of magnitude."""
    random = torch.Generator().manual_seed(seed)
    sizes = 10 ** (spread * torch.rand(count, HEADS, 1, generator=random) - spread / 2)
    return sizes * torch.randn(count, HEADS, SIZE, generator=random)


def largest_error(kv_dtype: KVDtype, exact: Tensor) -> Tensor:
    """Half a step at each number, or what is lost below the least float16."""
    if kv_dtype == "int8":
        top = exact.abs().amax(-1, keepdim=True)
        return top / 127 * (0.5 + 2**-10) + 127 * 2.0**-24
    info = torch.finfo(same_step(kv_dtype))
    return exact.abs() * info.eps / 2 + info.smallest_normal * info.eps


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), spread=st.floats(0, 8))
def test_rows_come_back_within_half_a_step(kv_dtype: KVDtype, seed: int, spread: float) -> None:
    keys, values = rows(5, seed, spread), rows(5, seed + 1, spread)
    kv = make(kv_dtype)
    kv.write(1, 4, keys, values)

    found = kv.read(1, slice(4, 9))

    for kept, exact in zip(found, (keys, values), strict=True):
        assert kept.dtype == torch.float32
        error = (kept.transpose(0, 1) - exact).abs()
        assert bool((error <= largest_error(kv_dtype, exact)).all())


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_a_row_is_kept_alike_whatever_is_written_with_it(kv_dtype: KVDtype) -> None:
    keys, values = rows(9), rows(9, 1)
    whole, single = make(kv_dtype), make(kv_dtype)
    whole.write(0, 2, keys, values)
    for row in range(9):
        single.write(0, 2 + row, keys[row : row + 1], values[row : row + 1])
    for one, other in zip(whole.read(0, slice(2, 11)), single.read(0, slice(2, 11)), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_bytes_are_what_the_formula_says(kv_dtype: KVDtype, dtype: torch.dtype) -> None:
    kv = make(kv_dtype, 12, dtype)
    assert kv.bytes() == 12 * LAYERS * kv_row_bytes(HEADS, SIZE, kv_dtype)
    assert kv.bytes() == sum(tensor.untyped_storage().nbytes() for tensor in kv.tensors())


def test_a_row_by_hand() -> None:
    assert [kv_row_bytes(3, 64, kv_dtype) for kv_dtype in KV_DTYPES] == [1536, 768, 768, 396]
    kv = make("int8")
    keys = torch.zeros(1, HEADS, SIZE)
    keys[0, 0] = torch.tensor([127.0, -127.0, 1.0, 0.4, 0.6, -0.6, 0.0, 63.0])
    kv.write(0, 0, keys, keys)
    assert kv.numbers[0, 0, 0, 0].tolist() == [127, -127, 1, 0, 1, -1, 0, 63]
    assert float(kv.scales[0, 0, 0, 0]) == 1.0  # type: ignore[index]
    assert torch.equal(kv.read(0, slice(0, 1))[0][1], torch.zeros(1, SIZE))  # heads of zeros


@pytest.mark.parametrize("kv_dtype", ["float16", "int8"])
def test_numbers_past_float16_do_not_become_infinite(kv_dtype: KVDtype) -> None:
    kv = make(kv_dtype)
    huge = torch.full((1, HEADS, SIZE), 3e38)
    kv.write(0, 0, -huge, huge)
    assert all(bool(side.isfinite().all()) for side in kv.read(0, slice(0, 1)))


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_resizing_moves_what_is_kept_to_the_front(kv_dtype: KVDtype) -> None:
    kv = make(kv_dtype)
    kv.write(0, 0, rows(12), rows(12, 1))
    kv.write(1, 0, rows(12, 2), rows(12, 3))
    before = [kv.read(layer, slice(5, 9)) for layer in range(LAYERS)]
    kv.resize(40, slice(5, 9))
    assert kv.num_slots == 40
    assert kv.bytes() == 40 * LAYERS * kv_row_bytes(HEADS, SIZE, kv_dtype)
    for layer in range(LAYERS):
        assert all(map(torch.equal, kv.read(layer, slice(0, 4)), before[layer]))


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_reads_lose_nothing(kv_dtype: KVDtype, dtype: torch.dtype) -> None:
    """They come in the wider of both precisions, as a view where that is how they are kept."""
    kv = make(kv_dtype, 12, dtype)
    keys = rows(3).to(dtype)
    kv.write(0, 0, keys, keys)
    found, _ = kv.read(0, slice(0, 3))
    assert found.dtype == kv.dtype
    if kv_dtype != "int8":
        assert torch.equal(found.double(), kv.numbers[0, 0, :, :3].double())
    is_view = found.untyped_storage().data_ptr() == kv.numbers.untyped_storage().data_ptr()
    assert is_view == (kv_dtype in {"float32", str(dtype).removeprefix("torch.")})


def test_auto_is_the_precision_of_the_weights() -> None:
    assert kv_dtype_of("auto", torch.bfloat16) == "bfloat16"
    assert kv_dtype_of("int8", torch.bfloat16) == "int8"
    assert make("auto", dtype=torch.float16).kv_dtype == "float16"
