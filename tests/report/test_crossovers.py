"""Lengths at which curves cross, as the report's table has them."""

from __future__ import annotations

import math

import pandas as pd

from hyflash_bench.report.sections.acceptance import _whole


def test_a_crossing_that_is_nowhere_is_no_length() -> None:
    for dtype in ("Float64", "float64"):
        lengths = _whole(pd.Series([2047.6, math.inf, -math.inf, math.nan], dtype=dtype))
        assert lengths.dtype == "Int64"
        assert lengths.tolist()[:1] == [2048]
        assert lengths.isna().tolist() == [False, True, True, True]
