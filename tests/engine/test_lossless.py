from __future__ import annotations

import pytest
import torch

from hyflash_bench.engine.lossless import GAP_TOLERANCE, Judgement, judge

TRACED = [5, 6, 7, 8]
GAPS = [1.0, 1e-5, 0.1, 2.0]


@pytest.mark.parametrize(
    ("live", "judgement"),
    [
        ([5, 6, 7, 8], Judgement("identical")),
        ([5, 9, 7, 8], Judgement("near_tie", 1, 1e-5)),
        ([5, 6, 9, 9], Judgement("mismatch", 2, 0.1)),
        ([9, 9, 9, 9], Judgement("mismatch", 0, 1.0)),
        ([5, 6, 7], Judgement("mismatch", 3, None)),
        ([5, 6, 7, 8, 9], Judgement("mismatch", 4, None)),
    ],
)
def test_the_first_difference_decides(live, judgement):
    assert judge(live, TRACED, GAPS, torch.float32) == judgement


def test_the_tolerance_is_the_dtypes():
    assert GAP_TOLERANCE[torch.float32] < GAP_TOLERANCE[torch.float16] < GAP_TOLERANCE[torch.bfloat16]
    assert judge([5, 6, 9, 8], TRACED, GAPS, torch.bfloat16).verdict == "near_tie"
