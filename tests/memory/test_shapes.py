"""Sizes from a configuration alone are those of the model made from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from hyflash_bench.errors import TargetError, UnknownName, UnsupportedTarget
from hyflash_bench.memory import shapes
from hyflash_bench.memory.lookup import read_shape
from hyflash_bench.memory.shapes import ModelShape, kv_row_bytes, shape_of
from tests.targets.families import FAMILIES, make_model, make_target

TINY: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 10,
    "tie_word_embeddings": True,
    "max_position_embeddings": 512,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_bytes_are_those_of_the_live_target(family: str):
    model = make_model(family)
    info = make_target(model).info
    shape = shape_of(model.config.to_dict(), "tiny")
    assert shape.num_parameters == info.num_parameters
    assert shape.weight_bytes(32) == info.weight_bytes
    assert shape.kv_bytes_per_token("float32") == info.kv_bytes_per_token


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2"])
@torch.inference_mode()
def test_operations_are_those_that_torch_counts(family: str):
    model = make_model(family)
    shape = shape_of(model.config.to_dict(), "tiny")
    with FlopCounterMode(display=False) as counter:
        model(torch.arange(3, 14)[None], use_cache=False)
    counted = sum(
        flops
        for name, flops in counter.get_flop_counts()["Global"].items()
        if name in (torch.ops.aten.mm, torch.ops.aten.bmm, torch.ops.aten.addmm)
    )
    # The rotary table is a product too, of one column and one row for each position.
    rotary = 2 * 11 * shape.head_dim // 2
    assert 0 <= counted - shape.pass_cost(11, 0, bits=32, kv_dtype="float32").flops <= 2 * rotary


def test_numbers_by_hand():
    shape = shape_of(TINY, "tiny")
    assert shape.num_layer_parameters == 2 * (2 * 8 * 8 + 2 * 8 * 4 + 3 * 8 * 16) == 1152
    assert shape.num_parameters == 1152 + 80 + 40
    assert [shape.weight_bytes(bits) for bits in (32, 16, 8, 4)] == [5088, 2544, 1390, 774]
    assert [shape.kv_bytes_per_token(dtype) for dtype in ("float32", "float16", "int8")] == [64, 32, 32]
    assert kv_row_bytes(3, 64, "int8") == 2 * 3 * (64 + 2)
    cost = shape.pass_cost(3, 5, bits=32, kv_dtype="float32")
    assert cost.flops == 2 * 3 * (1152 + 80) + 4 * 2 * 8 * 3 * 8
    assert cost.num_bytes == 4 * (1152 + 80 + 40) + 64 * (8 + 3)
    assert cost.num_layers == 2


def test_only_rows_that_get_logits_pay_for_the_head():
    shape = shape_of(TINY, "tiny")
    all_rows = shape.pass_cost(9, 0, bits=16, kv_dtype="float16")
    one_row = shape.pass_cost(9, 0, bits=16, kv_dtype="float16", logit_rows=1)
    assert all_rows.flops - one_row.flops == 2 * 8 * 80


def test_an_untied_head_counts_twice_and_is_read_once():
    tied, untied = (shape_of(TINY | {"tie_word_embeddings": tie}, "tiny") for tie in (True, False))
    assert untied.num_parameters - tied.num_parameters == 80
    costs = [one.pass_cost(1, 0, bits=32, kv_dtype="float32").num_bytes for one in (tied, untied)]
    assert costs[0] == costs[1]


def test_fewer_bits_are_fewer_bytes():
    shape = shape_of(TINY, "tiny")
    sizes = [shape.weight_bytes(bits) for bits in shapes.WEIGHT_BITS]
    assert sizes == sorted(sizes, reverse=True)


def test_nested_and_bare_configurations_are_read():
    nested = {"model_type": "gemma3", "text_config": TINY | {"model_type": "gemma3_text"}}
    assert shape_of(nested, "tiny").hidden_size == 8
    bare = {key: value for key, value in TINY.items() if key not in ("num_key_value_heads", "head_dim")}
    assert shape_of(bare, "tiny").num_kv_heads == 4
    assert shape_of({**TINY, "head_dim": None, "max_position_embeddings": None}, "tiny").max_positions is None


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model_type": "mixtral"}, UnsupportedTarget, "of type 'mixtral'.*llama"),
        ({"hidden_size": None}, TargetError, "hidden_size=None"),
        ({"vocab_size": 0}, TargetError, "positive whole number"),
        ({"num_hidden_layers": "2"}, TargetError, "num_hidden_layers='2'"),
    ],
)
def test_what_cannot_be_sized_is_refused(change: dict[str, Any], error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        shape_of(TINY | change, "tiny")


def test_a_configuration_alone_is_enough(tmp_path: Path):
    folder = tmp_path / "huge"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(TINY))
    for given in (folder, folder / "config.json"):
        shape = read_shape(str(given))
        assert isinstance(shape, ModelShape)
        assert shape.name == "huge"
    (folder / "config.json").write_text("[]")
    with pytest.raises(TargetError, match="keys and values"):
        read_shape(str(folder))
    with pytest.raises(UnknownName, match="smollm2-135m"):
        read_shape("smollm-135m")
