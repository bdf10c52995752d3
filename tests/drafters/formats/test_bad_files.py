"""A bad checkpoint is refused with the file, the tensor or key, what was given and what is allowed."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from hyflash_bench.drafters.formats import load_drafter
from hyflash_bench.errors import DrafterError
from tests.drafters.formats.configs import DFLASH, EAGLE3, MEDUSA
from tests.drafters.formats.published import context, scaled, tensors_of, write
from tests.targets.families import VOCAB

ZLAB, NESTED, SPECULATORS = DFLASH[0], EAGLE3[1], "Llama-3.1-8B-Instruct-speculator.eagle3"
Tensors = dict[str, Tensor]


def refusal(folder: Path) -> str:
    with pytest.raises(DrafterError) as caught:
        load_drafter(folder, context())
    message = str(caught.value)
    assert str(folder) in message
    assert message.endswith((".", "]"))
    return message


def with_tensors(folder: Path, name: str, change: Callable[[Tensors], Any]) -> str:
    config = scaled(name)
    tensors = tensors_of(name, config)
    change(tensors)
    return refusal(write(folder, name, config=config, tensors=tensors))


def with_config(folder: Path, name: str, **changes: Any) -> str:
    config = scaled(name)
    tensors = tensors_of(name, config)
    return refusal(write(folder, name, config=config | changes, tensors=tensors))


# Tensors


def test_one_that_is_missing_is_named(tmp_path: Path) -> None:
    said = with_tensors(tmp_path, ZLAB, lambda tensors: tensors.pop("layers.1.mlp.up_proj.weight"))
    assert "lacks tensors: layers.1.mlp.up_proj.weight" in said
    assert "model.safetensors" in said


def test_one_that_nobody_knows_is_named(tmp_path: Path) -> None:
    odd = torch.zeros(3)
    said = with_tensors(tmp_path, NESTED, lambda tensors: tensors.update({"midlayer.odd.weight": odd}))
    assert "does not know: midlayer.odd.weight" in said


def test_a_head_over_a_part_of_the_vocabulary_cannot_be_left_out(tmp_path: Path) -> None:
    assert "lm_head.weight" in with_tensors(tmp_path, NESTED, lambda tensors: tensors.pop("lm_head.weight"))


def test_another_shape_is_shown_beside_the_right_one(tmp_path: Path) -> None:
    said = with_tensors(tmp_path, ZLAB, lambda tensors: tensors.update({"fc.weight": torch.ones(48, 96)}))
    assert "tensor fc.weight is [48, 96]" in said
    assert "[48, 144]" in said


def test_another_type_is_refused(tmp_path: Path) -> None:
    def quantise(tensors: Tensors) -> None:
        tensors["fc.weight"] = tensors["fc.weight"].to(torch.int8)

    said = with_tensors(tmp_path, ZLAB, quantise)
    assert "tensor fc.weight is int8; allowed is float32, bfloat16, float16" in said


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_is_refused(tmp_path: Path, value: float) -> None:
    said = with_tensors(tmp_path, NESTED, lambda tensors: tensors["norm.weight"].fill_(value))
    assert "tensor norm.weight holds NaN or infinity" in said


def test_ids_must_lead_into_the_vocabulary(tmp_path: Path) -> None:
    said = with_tensors(tmp_path / "far", NESTED, lambda tensors: tensors["d2t"].add_(50))
    assert f"different ids from 0 to {VOCAB - 1}" in said
    said = with_tensors(tmp_path / "twice", NESTED, lambda tensors: tensors["d2t"][1].sub_(1))
    assert "it leads to 76, from 3" in said
    said = with_tensors(tmp_path / "other", NESTED, lambda tensors: tensors["t2d"].logical_not_())
    assert "t2d names other tokens than d2t" in said
    said = with_tensors(tmp_path / "none", NESTED, lambda tensors: tensors.pop("d2t"))
    assert "lacks tensors: d2t" in said
    to_float = tensors_to_float("d2t")
    assert "tensor d2t is float32; allowed is int64 or int32" in with_tensors(
        tmp_path / "type", NESTED, to_float
    )


def tensors_to_float(name: str) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        tensors[name] = tensors[name].float()

    return change


def test_what_servers_leave_in_a_file_is_no_error(tmp_path: Path) -> None:
    config = scaled(SPECULATORS)
    tensors = tensors_of(SPECULATORS, config)
    tensors |= {
        "verifier_norm.weight": torch.ones(48),
        "verifier_lm_head.weight": torch.ones(77, 48),
        "layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8),
    }
    load_drafter(write(tmp_path, SPECULATORS, config=config, tensors=tensors), context())


# Files


@pytest.mark.parametrize("name", [ZLAB, NESTED, EAGLE3[0], MEDUSA])
def test_a_truncated_file_is_refused(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path, name)
    path = next(file for file in folder.iterdir() if file.suffix != ".json")
    path.write_bytes(path.read_bytes()[:2000])
    assert path.name in refusal(folder)


@pytest.mark.parametrize("name", [ZLAB, EAGLE3[0], MEDUSA])
def test_an_empty_file_is_refused(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path, name)
    path = next(file for file in folder.iterdir() if file.suffix != ".json")
    path.write_bytes(b"")
    assert f"{path.name} cannot be read" in refusal(folder)


def test_no_weights_at_all_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(scaled(ZLAB)))
    assert "holds no weights" in refusal(tmp_path)


class Payload:
    """What would run if the file were unpickled as anything may be."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.trace,)


@pytest.mark.parametrize(("name", "file"), [(EAGLE3[0], "pytorch_model.bin"), (MEDUSA, "medusa_lm_head.pt")])
@pytest.mark.parametrize("is_legacy", [False, True])
def test_code_in_a_pickle_is_not_run(tmp_path: Path, name: str, file: str, is_legacy: bool) -> None:
    folder, trace = write(tmp_path / "it", name), tmp_path / "trace"
    if is_legacy:
        (folder / file).write_bytes(pickle.dumps({"fc.weight": Payload(trace)}))
    else:
        torch.save({"fc.weight": Payload(trace)}, folder / file)
    what = "is damaged, or no file of weights" if is_legacy else "asks for getattr"
    assert f"none of it was run: it {what}" in refusal(folder)
    assert not trace.exists()
    pickle.loads(pickle.dumps(Payload(trace)))
    assert trace.exists()  # the payload would have worked


def test_a_file_of_other_things_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, EAGLE3[0])
    torch.save({"model": {"fc.weight": torch.ones(2)}}, folder / "pytorch_model.bin")
    assert "not tensors by name" in refusal(folder)


def test_a_set_of_files_must_be_whole(tmp_path: Path) -> None:
    config = scaled(ZLAB)
    tensors = tensors_of(ZLAB, config)
    folder = write(tmp_path, ZLAB, config=config, tensors=tensors)
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {f"model-0000{part + 1}-of-00002.safetensors": names[part::2] for part in range(2)}
    for file, held in parts.items():
        save_file({name: tensors[name] for name in held}, folder / file)
    index = {"weight_map": {name: file for file, held in parts.items() for name in held}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    load_drafter(folder, context())
    second = list(parts)[1]
    save_file({name: tensors[name] for name in names}, folder / second)
    assert "which another file has too" in refusal(folder)
    (folder / second).unlink()
    assert f"lacks files that its index names: {second}" in refusal(folder)
    (folder / "model.safetensors.index.json").write_text("{")
    assert "index.json cannot be read" in refusal(folder)


# Configurations, and other targets


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        (ZLAB, {"vocab_size": 500}, "its vocab_size is 500, this target's is 97"),
        (ZLAB, {"num_target_layers": 36}, "its num_target_layers is 36, this target's is 8"),
        (ZLAB, {"hidden_size": 64}, "its hidden_size is 64, this target's is 48"),
        (ZLAB, {"dflash_config": {"mask_token_id": 97, "target_layer_ids": [1, 3, 6]}}, "ids 0 to 96"),
        (ZLAB, {"dflash_config": {"mask_token_id": 95, "target_layer_ids": [1, 3, 8]}}, r"0\.\.7"),
        (ZLAB, {"dflash_config": {"mask_token_id": 95, "target_layer_ids": [1, 1]}}, "must differ"),
        (ZLAB, {"dflash_config": {"mask_token_id": 95, "target_layer_ids": "all"}}, "list of whole numbers"),
        (ZLAB, {"dflash_config": {"target_layer_ids": [1, 3, 6]}}, "lacks mask_token_id"),
        (ZLAB, {"hidden_act": "gelu"}, "hidden_act is 'gelu'; allowed is silu"),
        (ZLAB, {"layer_types": ["full_attention"]}, "5 times"),
        (ZLAB, {"projector_type": "domino"}, "projector_type is 'domino'; allowed is 'dflash'"),
        (ZLAB, {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type is 'dynamic'"),
        (ZLAB, {"num_attention_heads": 5}, "num_key_value_heads is 2; allowed is a divisor"),
        (ZLAB, {"intermediate_size": None}, "lacks intermediate_size"),
        (ZLAB, {"intermediate_size": "wide"}, "'wide'; allowed is a whole number"),
        (ZLAB, {"rms_norm_eps": "small"}, "norm_eps"),
        (NESTED, {"num_hidden_layers": 2}, "num_hidden_layers is 2; allowed is 1"),
        (NESTED, {"draft_vocab_size": 500}, "draft_vocab_size 500 exceeds vocab_size 97"),
        (SPECULATORS, {"transformer_layer_config": None}, "transformer_layer_config is None"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(
    tmp_path: Path, name: str, changes: dict[str, Any], said: str
) -> None:
    assert re.search(said, with_config(tmp_path, name, **changes))


def test_heads_of_another_target_are_refused(tmp_path: Path) -> None:
    tensors = tensors_of(MEDUSA, scaled(MEDUSA)) | {"2.1.weight": torch.ones(50, 48)}
    said = refusal(write(tmp_path / "vocabulary", MEDUSA, tensors=tensors))
    assert "tensor 2.1.weight is [50, 48], but the configuration and the target say [97, 48]" in said
    gap = {name: tensor for name, tensor in tensors.items() if not name.startswith("1.")}
    assert "holds no Medusa heads" in refusal(write(tmp_path / "gap", MEDUSA, tensors=gap))
    config = scaled(MEDUSA) | {"medusa_num_layers": 2}
    assert "medusa_num_layers is 2; allowed is 1" in refusal(
        write(tmp_path / "layers", MEDUSA, config=config)
    )
    odd = tensors_of(MEDUSA, config) | {"odd": torch.ones(2)}
    assert "does not know: odd" in refusal(write(tmp_path / "odd", MEDUSA, tensors=odd))
