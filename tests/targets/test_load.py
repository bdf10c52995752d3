"""Loading from a folder, with errors a user can act on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
import transformers

from hyflash_bench.errors import DataError, TargetError, UnsupportedTarget, UsageError
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.load import load_target

pytestmark = pytest.mark.usefixtures("user_cache")


def test_a_folder_is_loaded_with_its_facts(tiny_target: Path) -> None:
    target = load_target(TargetSpec(target=str(tiny_target)))

    info = target.info
    assert info.source == "folder"
    assert info.name == tiny_target.name
    assert info.dtype == "float32"
    assert info.eos_token_ids == (2,)
    assert info.fingerprint.chat_template is not None
    assert len(info.fingerprint.weights) == 64
    assert info.num_parameters == sum(value.numel() for value in target.model.parameters())


def test_two_loads_of_one_folder_are_the_same_target(tiny_target: Path) -> None:
    first, second = (load_target(TargetSpec(target=str(tiny_target))) for _ in range(2))
    tokens = torch.arange(3, 20)

    assert first.info == second.info
    assert torch.equal(
        first.prefill(tokens, first.new_cache(17)).logits, second.prefill(tokens, second.new_cache(17)).logits
    )


def test_half_precision_stays_close(tiny_target: Path) -> None:
    full = load_target(TargetSpec(target=str(tiny_target)))
    half = load_target(TargetSpec(target=str(tiny_target), dtype="bfloat16"))
    tokens = torch.arange(3, 20)
    cache = half.new_cache(20)

    expected = full.prefill(tokens, full.new_cache(20)).logits
    passed = half.prefill(tokens, cache)

    assert half.info.dtype == "bfloat16"
    assert half.info.kv_dtype == "bfloat16"
    assert cache.numbers.dtype == torch.bfloat16
    assert passed.logits.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(passed.logits, expected).item() > 0.99


def test_code_of_a_folder_is_part_of_what_the_target_is(tiny_target: Path, tmp_path: Path) -> None:
    """A folder has no commit; where its code is run, the code's hash stands for one."""
    folder = tmp_path / "coded"
    shutil.copytree(tiny_target, folder)
    (folder / "modeling_own.py").write_text("ONE = 1\n")
    plain = load_target(TargetSpec(target=str(folder))).info
    trusted = load_target(TargetSpec(target=str(folder), trust_remote_code=True)).info
    (folder / "modeling_own.py").write_text("ONE = 2\n")
    changed = load_target(TargetSpec(target=str(folder), trust_remote_code=True)).info

    assert plain.revision is None
    assert len(trusted.revision or "") == 64
    assert len({info.revision for info in (plain, trusted, changed)}) == 3
    assert len({info.fingerprint.weights for info in (plain, trusted, changed)}) == 3


def test_an_unsupported_folder_is_refused_before_its_weights(tmp_path: Path) -> None:
    transformers.GPT2Config().save_pretrained(tmp_path)

    with pytest.raises(UnsupportedTarget, match="gpt2"):
        load_target(TargetSpec(target=str(tmp_path)))


def test_a_folder_without_safetensors_is_refused(tmp_path: Path) -> None:
    transformers.LlamaConfig(num_hidden_layers=1, hidden_size=32).save_pretrained(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")

    with pytest.raises(TargetError, match="could not be loaded"):
        load_target(TargetSpec(target=str(tmp_path)))


def test_an_absent_device_is_refused(tiny_target: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")

    with pytest.raises(UsageError, match=r"'cuda:0' is not available here\. Usable: cpu"):
        load_target(TargetSpec(target=str(tiny_target), backend="cuda:0"))


def test_remote_code_without_a_commit_is_refused() -> None:
    with pytest.raises(UsageError, match="pinned commit"):
        load_target(TargetSpec(target="org/model@main", trust_remote_code=True))


def test_damaged_weights_are_one_message(tiny_target: Path, tmp_path: Path) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(tiny_target, folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])

    with pytest.raises(TargetError, match="could not be loaded"):
        load_target(TargetSpec(target=str(folder)))


def test_a_target_loads_without_a_cache(
    tiny_target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HYFLASH_BENCH_CACHE", str(tmp_path / "file"))

    assert load_target(TargetSpec(target=str(tiny_target))).info.num_layers == 2


def test_a_gguf_file_without_a_cache_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HYFLASH_BENCH_CACHE", str(tmp_path / "file"))
    (tmp_path / "x.gguf").write_bytes(b"GGUF")

    with pytest.raises(DataError, match="Set HYFLASH_BENCH_CACHE"):
        load_target(TargetSpec(target=str(tmp_path / "x.gguf")))


def test_a_damaged_gguf_file_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF\x03\0\0\0" + b"\xff" * 16)

    with pytest.raises(TargetError, match="could not be converted"):
        load_target(TargetSpec(target=str(tmp_path / "x.gguf")))
