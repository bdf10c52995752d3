"""Rows that grow in step say what each of them alone would say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from hyflash_bench.errors import ContextTooLong
from hyflash_bench.targets.target import Target
from tests.targets.families import FAMILIES, WINDOW, make_model, make_target, random_tokens

NUM_ROWS = 3
LENGTH = 3 * WINDOW + 2


@pytest.fixture(params=FAMILIES, scope="module")
def target(request: pytest.FixtureRequest) -> Target:
    return make_target(make_model(request.param))


def alone(target: Target, tokens: Tensor) -> Tensor:
    return target.forward(tokens, target.new_cache(LENGTH)).logits


def test_every_row_equals_the_target_s_own_pass(target: Target) -> None:
    tokens = random_tokens(NUM_ROWS * LENGTH).view(NUM_ROWS, LENGTH)
    expected = torch.stack([alone(target, row) for row in tokens])
    rows = target.new_rows(NUM_ROWS, LENGTH)

    begun = rows.append(tokens[:, :9], chunk_size=4)
    torch.testing.assert_close(begun, expected[:, 8], rtol=1e-4, atol=1e-4)
    for position in range(9, LENGTH):
        logits = rows.append(tokens[:, position : position + 1])
        torch.testing.assert_close(logits, expected[:, position], rtol=1e-4, atol=1e-4)
    assert rows.length == LENGTH


def test_refuses_what_does_not_fit() -> None:
    target: Any = make_target(make_model("llama"))
    rows = target.new_rows(2, 4)

    with pytest.raises(ValueError, match="capacity 4"):
        rows.append(torch.zeros(2, 5, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"\[2, T\]"):
        rows.append(torch.zeros(3, 1, dtype=torch.int64))
    with pytest.raises(ContextTooLong):
        target.new_rows(1, target.info.max_positions + 1)
