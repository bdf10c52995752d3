"""The compiled kernels are made again when their file is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from hyflash_bench.targets.native import load_native


def test_a_damaged_library_is_built_again(user_cache: Path) -> None:
    load_native.cache_clear()
    if load_native() is None:
        pytest.skip("no compiler here")
    (kept,) = (user_cache / "native").glob("*.so")
    kept.unlink()  # not overwritten: the first one is still mapped
    kept.write_bytes(b"garbage")
    load_native.cache_clear()
    assert load_native() is not None
    load_native.cache_clear()
