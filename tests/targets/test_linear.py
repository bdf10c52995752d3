"""Every form of a product gives the same numbers, and the choice is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hyflash_bench.native.library import MAX_ROWS
from hyflash_bench.targets import linear as module
from hyflash_bench.targets.architecture import Linear
from hyflash_bench.targets.linear import FORMS, LinearForms, Packed, calibrate
from hyflash_bench.targets.native import load_native

needs_onednn = pytest.mark.skipif(not module._has_onednn(), reason="this build of torch lacks oneDNN")


@pytest.fixture(autouse=True)
def _few_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BUDGET_S", 0.0)


def make_linear(outputs: int, inputs: int, *, has_bias: bool) -> Linear:
    generator = torch.Generator().manual_seed(outputs + inputs)
    weight = torch.randn(outputs, inputs, generator=generator)
    return Linear(weight, torch.randn(outputs, generator=generator) if has_bias else None)


@pytest.mark.parametrize("rows", [1, 2, 5, 6, 7, 13, 16])
@pytest.mark.parametrize("shape", [(24, 16), (7, 40), (130, 8)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_all_forms_agree(rows: int, shape: tuple[int, int], has_bias: bool) -> None:
    weight = make_linear(*shape, has_bias=has_bias)
    x = torch.randn(rows, shape[1], generator=torch.Generator().manual_seed(rows))
    expected = torch.nn.functional.linear(x, weight.weight, weight.bias)
    library = load_native()
    forms = dict(FORMS) | ({"native": library.linear} if library is not None else {})
    if module._has_onednn():
        forms["packed"] = Packed([weight])

    for form in forms.values():
        found = form(x, weight)
        assert found.is_contiguous()
        assert torch.allclose(found, expected, atol=1e-5)


def test_a_choice_is_measured_once(user_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WORTHWHILE_BYTES", 0)
    weights = [make_linear(24, 16, has_bias=False), make_linear(8, 24, has_bias=True)]
    first = calibrate(weights, None)
    monkeypatch.setattr(module, "_choose", lambda *_: pytest.fail("measured again"))

    second = calibrate(weights, None)

    assert set(first.table) == set(second.table) == {(24, 16), (8, 24)}
    assert all(len(forms) == MAX_ROWS for forms in first.table.values())
    assert first.native_rows == 0


@needs_onednn
def test_packed_weights_are_chosen_where_they_are_faster(
    user_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the choice is found again, with the weights packed anew."""
    monkeypatch.setattr(module, "_WORTHWHILE_BYTES", 0)
    slow = {"packed": 1.0, "plain": 2.0}
    monkeypatch.setattr(module, "_times", lambda forms, *_: ({n: slow.get(n, 3.0) for n in forms}, 3))
    weights = [make_linear(24, 16, has_bias=False), make_linear(8, 24, has_bias=True)]
    x = torch.randn(5, 24)

    for _ in range(2):
        forms = calibrate(weights, None)
        assert all(isinstance(form, Packed) for row in forms.table.values() for form in row)
        expected = torch.nn.functional.linear(x, weights[1].weight, weights[1].bias)
        assert torch.allclose(forms(x, weights[1]), expected, atol=1e-5)
    slow["packed"] = 1.95  # not worth a second copy of the weights
    for file in (user_cache / "linear").iterdir():
        file.unlink()
    assert calibrate(weights, None).table[8, 24] == (module.plain,) * MAX_ROWS


def test_nothing_is_packed_beside_kernels_or_beyond_the_limit(
    user_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WORTHWHILE_BYTES", 0)
    monkeypatch.setattr(module, "Packed", lambda _: pytest.fail("packed"))
    weights = [make_linear(24, 16, has_bias=False)]
    library = load_native()
    if library is not None:
        calibrate(weights, library)
    monkeypatch.setattr(module, "_MOST_PACKED_BYTES", 24 * 16 * 4 - 1)

    calibrate(weights, None)


def test_a_damaged_choice_is_measured_again(user_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WORTHWHILE_BYTES", 0)
    weights = [make_linear(24, 16, has_bias=False)]
    calibrate(weights, None)
    (kept,) = (user_cache / "linear").iterdir()
    kept.write_text('{"forms": {"24x16": ["nonsense"]}, "native_rows": 3}')

    assert set(calibrate(weights, None).table) == {(24, 16)}


def test_small_models_and_other_dtypes_are_not_measured(user_cache: Path) -> None:
    small = make_linear(24, 16, has_bias=False)
    half = Linear(small.weight.to(torch.bfloat16))

    assert calibrate([small], None) == LinearForms()
    assert calibrate([half], None) == LinearForms()
    assert not (user_cache / "linear").exists()


def test_longer_passes_use_the_plain_form() -> None:
    weight = make_linear(24, 16, has_bias=True)
    x = torch.randn(MAX_ROWS + 1, 16)
    forms = LinearForms({(24, 16): (lambda *_: pytest.fail("a form for few rows"),) * MAX_ROWS})

    assert torch.equal(forms(x, weight), torch.nn.functional.linear(x, weight.weight, weight.bias))
