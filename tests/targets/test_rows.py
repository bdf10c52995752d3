"""Rows that grow in step say what each of them alone would say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from hyflash_bench.drafters.base import Features, Requires
from hyflash_bench.errors import ContextTooLong
from hyflash_bench.targets import rows as rows_module
from hyflash_bench.targets.native import load_row_attention
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

    begun, _ = rows.append(tokens[:, :9], chunk_size=4)
    torch.testing.assert_close(begun, expected[:, 8], rtol=1e-4, atol=1e-4)
    for position in range(9, LENGTH):
        logits, _ = rows.append(tokens[:, position : position + 1])
        torch.testing.assert_close(logits, expected[:, position], rtol=1e-4, atol=1e-4)
    assert rows.length == LENGTH


def test_features_of_every_row_are_those_of_the_target_s_own_pass(target: Target) -> None:
    tokens = random_tokens(NUM_ROWS * LENGTH).view(NUM_ROWS, LENGTH)
    requires = Requires(taps=(0, 1), last_hidden=True)
    expected = [target.forward(row, target.new_cache(LENGTH), requires).features for row in tokens]
    rows = target.new_rows(NUM_ROWS, LENGTH)

    spans = [tokens[:, :9], *tokens[:, 9:].split(1, dim=1)]
    found = Features.concatenate([rows.append(span, requires, chunk_size=4)[1] for span in spans], dim=1)

    for index, own in enumerate(expected):
        for tap in requires.taps:
            torch.testing.assert_close(found.taps[tap][index], own.taps[tap], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(found.last_hidden[index], own.last_hidden, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seen", [1, 5, 16, 33])
@pytest.mark.parametrize("group", [1, 3, 6])
def test_the_compiled_attention_is_attention(seen: int, group: int) -> None:
    attend = load_row_attention()
    if attend is None:
        pytest.skip("no C compiler")
    torch.manual_seed(0)
    keys, values = torch.randn(2, 4, 2, 40, 32).to(torch.bfloat16)
    queries = torch.randn(4, 2 * group, 32)
    mixed = attend(queries, keys, values, seen, 0.3)
    expected = scaled_dot_product_attention(
        queries.view(4, 2, group, 32), keys[:, :, :seen].float(), values[:, :, :seen].float(), scale=0.3
    )
    torch.testing.assert_close(mixed, expected.view(4, -1), rtol=1e-5, atol=1e-5)


def test_half_precision_rows_say_the_same_with_and_without_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = make_target(make_model("llama", head_dim=32), dtype="bfloat16")
    tokens = random_tokens(2 * 12).view(2, 12)

    def said() -> Tensor:
        grown = target.new_rows(2, 12)
        first, _ = grown.append(tokens[:, :7])
        return torch.stack([first, *(grown.append(tokens[:, at : at + 1])[0] for at in range(7, 12))])

    native = said()
    monkeypatch.setattr(rows_module, "load_row_attention", lambda: None)
    torch.testing.assert_close(native, said(), rtol=0.05, atol=0.05)


def test_refuses_what_does_not_fit() -> None:
    target: Any = make_target(make_model("llama"))
    rows = target.new_rows(2, 4)

    with pytest.raises(ValueError, match="capacity 4"):
        rows.append(torch.zeros(2, 5, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"\[2, T\]"):
        rows.append(torch.zeros(3, 1, dtype=torch.int64))
    with pytest.raises(ContextTooLong):
        target.new_rows(1, target.info.max_positions + 1)
