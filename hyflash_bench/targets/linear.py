"""The fastest way to multiply a few rows with a weight, found by measuring.

A pass of 1 to 16 rows is bound by reading the weights, and the forms that torch offers for the
same product differ by a factor of two and more. A short calibration picks one per weight shape and
row count, and the longest pass for which the compiled kernels are no slower than the best of them.
All give the same result up to rounding; the choice holds for the whole process, so results repeat.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from hyflash_bench.native.build import processor
from hyflash_bench.native.library import MAX_ROWS
from hyflash_bench.targets.architecture import Linear
from hyflash_bench.targets.cachedir import cache_dir, read_json, write_json
from hyflash_bench.targets.native import NativeLibrary

__all__ = ["FORMS", "LinearForms", "calibrate"]

logger = logging.getLogger("hyflash_bench.targets")

Form = Callable[[Tensor, Linear], Tensor]
Shape = tuple[int, int]

_ROW_COUNTS = (1, 2, 5, 8, MAX_ROWS)
_SAMPLE_BYTES = 32 * 2**20
"""Distinct weights read per measurement: enough that few of them are still cached the next time."""
_BUDGET_S = 2.0
"""Shared out among shapes and row counts; what is slow takes longer, for the repeats it needs."""
_LIMIT_S = 4.0
_MIN_REPEATS = 3
_WORTHWHILE_BYTES = 8 * 2**20
"""Models below this stay in the caches, where forms differ by microseconds."""
_TOLERANCE = 1.1
"""The compiled kernels stay in use up to this factor: unlike the other forms they give a row the
same bits alone and in a draft. And packed weights are only worth their memory beyond it."""
_MOST_PACKED_BYTES = 2**30
"""Packed weights are a second copy, which bigger models may have no room for."""
_PACKED = "packed"
_PACKED_ROWS = 5
"""The pass that the packed layout is made for; it serves others as well."""


def plain(x: Tensor, linear: Linear) -> Tensor:
    """Rows times the weight, as torch does it."""
    return functional.linear(x, linear.weight, linear.bias)


def turned(x: Tensor, linear: Linear) -> Tensor:
    """Weight times the rows as columns."""
    y = torch.mm(linear.weight, x.t()).t()
    return (y if linear.bias is None else y + linear.bias).contiguous()


def batched(x: Tensor, linear: Linear) -> Tensor:
    """The weight cut into slabs, multiplied side by side on the threads."""
    outputs, inputs = linear.weight.shape
    slabs = next(count for count in (4, 2, 1) if outputs % count == 0)
    columns = x.t().unsqueeze(0).expand(slabs, inputs, x.shape[0])
    y = torch.bmm(linear.weight.view(slabs, outputs // slabs, inputs), columns)
    y = y.view(outputs, x.shape[0]).t()
    return (y if linear.bias is None else y + linear.bias).contiguous()


def direct(x: Tensor, linear: Linear) -> Tensor:
    """Rows times the weight by oneDNN, which torch prefers for packed weights only."""
    return _onednn(x, linear.weight, linear.bias)


class Packed:
    """The product by oneDNN with weights in the layout that it reads fastest.

    Args:
        linears: The weights that can be multiplied with; they are copied.
    """

    def __init__(self, linears: Iterable[Linear]) -> None:
        self._copies: dict[int, Tensor] = {}
        for weight in (linear.weight for linear in linears):
            self._copies[weight.data_ptr()] = torch.ops.mkldnn._reorder_linear_weight(weight, _PACKED_ROWS)

    def __call__(self, x: Tensor, linear: Linear) -> Tensor:
        """``x [T, in]`` times one of the weights, plus bias: ``[T, out]``."""
        return _onednn(x, self._copies[linear.weight.data_ptr()], linear.bias)


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


def _has_onednn() -> bool:
    """Whether this build of torch has the operators that its own compiler uses for packed weights."""
    names = ("_linear_pointwise", "_reorder_linear_weight")
    is_built = bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
    return is_built and all(hasattr(torch.ops.mkldnn, name) for name in names)


FORMS: Mapping[str, Form] = {"plain": plain, "turned": turned, "batched": batched} | (
    {"direct": direct} if _has_onednn() else {}
)


@dataclass(frozen=True, slots=True)
class LinearForms:
    """Which form to use for a shape and a row count.

    Attributes:
        table: Weight shape -> form for 1, 2, ... ``MAX_ROWS`` rows. Other shapes and longer passes
            use the plain form.
        native_rows: Longest pass for which the compiled kernels are worth using.
    """

    table: Mapping[Shape, tuple[Form, ...]] = field(default_factory=dict)
    native_rows: int = 0

    def __call__(self, x: Tensor, linear: Linear) -> Tensor:
        """``x [T, in]`` times the weight, plus bias: ``[T, out]``, contiguous."""
        rows = x.shape[0]
        if rows <= MAX_ROWS:
            outputs, inputs = linear.weight.shape
            forms = self.table.get((outputs, inputs))
            if forms is not None:
                return forms[rows - 1](x, linear)
        return functional.linear(x, linear.weight, linear.bias)


def calibrate(linears: Sequence[Linear], native: NativeLibrary | None) -> LinearForms:
    """Choose forms for the weights of a model.

    Takes up to a few seconds the first time and is kept in the user's cache per processor, torch
    version, number of threads and set of shapes. On accelerators and for other dtypes than
    float32 the plain form is used throughout. Without compiled kernels small models get packed
    weights, a second copy, where these are clearly faster.

    Args:
        linears: Every weight that a pass multiplies with.
        native: The compiled kernels, given only where they fit every weight.
    """
    groups: dict[Shape, list[Linear]] = {}
    for linear in linears:
        weight = linear.weight
        if weight.dtype == torch.float32 and weight.device.type == "cpu":
            groups.setdefault((weight.shape[0], weight.shape[1]), []).append(linear)
    if sum(linear.weight.nbytes for linear in linears) < _WORTHWHILE_BYTES or not groups:
        return LinearForms(native_rows=MAX_ROWS if native is not None else 0)
    is_packing = native is None and _can_pack(groups)
    path = cache_dir("linear") / f"{_key(groups, native, is_packing)}.json"
    chosen = read_json(path)
    if not _is_complete(chosen, groups, is_packing):
        began = time.perf_counter()
        chosen, is_sure = _choose(groups, native, is_packing)
        logger.info("chose matrix forms in %.1f s", time.perf_counter() - began)
        if is_sure:
            write_json(path, chosen)
    names = {shape: chosen["forms"][_label(shape)] for shape in groups}
    usable = dict(FORMS)
    if is_packing:
        packed = [linear for shape, group in groups.items() if _PACKED in names[shape] for linear in group]
        usable[_PACKED] = Packed(packed)
    table = {shape: _spread([usable[name] for name in measured]) for shape, measured in names.items()}
    return LinearForms(table, int(chosen["native_rows"]) if native is not None else 0)


def _can_pack(groups: Mapping[Shape, list[Linear]]) -> bool:
    weights = [linear.weight for group in groups.values() for linear in group]
    return _has_onednn() and sum(weight.nbytes for weight in weights) <= _MOST_PACKED_BYTES


def _choose(
    groups: dict[Shape, list[Linear]], native: NativeLibrary | None, is_packing: bool
) -> tuple[dict[str, Any], bool]:
    """The choice, and whether it was measured often enough to be kept.

    On a busy machine time runs out; what was not measured then takes the compiled kernels, or the
    form found for fewer rows.
    """
    candidates = dict(FORMS) | ({"native": native.linear} if native is not None else {})
    samples = {shape: _sample(group) for shape, group in groups.items()}
    if is_packing:
        candidates[_PACKED] = Packed(linear for sample in samples.values() for linear in sample)
    deadline = time.perf_counter() + _LIMIT_S
    share_s = _BUDGET_S / (len(groups) * len(_ROW_COUNTS))
    forms: dict[str, list[str]] = {_label(shape): [] for shape in groups}
    native_rows, is_sure = 0, True
    for rows in _ROW_COUNTS:
        torch_s = native_s = 0.0
        for shape, sample in samples.items():
            found = forms[_label(shape)]
            if time.perf_counter() > deadline:
                found.append(found[-1] if found else "plain")
                is_sure = False
                continue
            times, repeats = _times(candidates, sample, rows, share_s, deadline)
            is_sure &= repeats >= _MIN_REPEATS
            compiled_s = times.pop("native", float("inf"))
            if _PACKED in times:
                times[_PACKED] *= _TOLERANCE
            found.append(min(times, key=lambda name: times[name]))
            share = len(groups[shape]) / len(sample)
            torch_s += times[found[-1]] * share
            native_s += compiled_s * share
        if native_s <= _TOLERANCE * torch_s:
            native_rows = rows
    return {"forms": forms, "native_rows": native_rows}, is_sure


@torch.inference_mode()
def _times(
    forms: Mapping[str, Form], sample: list[Linear], rows: int, budget_s: float, deadline: float
) -> tuple[dict[str, float], int]:
    """Seconds per form, the least of some repeats, and how many they were."""
    x = torch.randn(rows, sample[0].weight.shape[1], generator=torch.Generator().manual_seed(0))
    best = dict.fromkeys(forms, float("inf"))
    enough = time.perf_counter() + budget_s
    repeats = 0
    while repeats < _MIN_REPEATS or time.perf_counter() < enough:
        for name, form in forms.items():
            began = time.perf_counter()
            for linear in sample:
                form(x, linear)
            best[name] = min(best[name], time.perf_counter() - began)
        repeats += 1
        if time.perf_counter() > deadline:
            break
    return best, repeats


def _sample(group: list[Linear]) -> list[Linear]:
    weight = group[0].weight
    return group[: max(1, _SAMPLE_BYTES // (weight.numel() * weight.element_size()))]


def _spread(measured: list[Form]) -> tuple[Form, ...]:
    """A form for every row count: that of the next measured one."""
    return tuple(
        next(form for count, form in zip(_ROW_COUNTS, measured, strict=True) if rows <= count)
        for rows in range(1, MAX_ROWS + 1)
    )


def _label(shape: Shape) -> str:
    return f"{shape[0]}x{shape[1]}"


def _key(groups: Mapping[Shape, list[Linear]], native: NativeLibrary | None, is_packing: bool) -> str:
    parts = [
        processor(),
        torch.__version__,
        str(torch.get_num_threads()),
        native.digest if native is not None else "",
        *_names(is_packing),
        *sorted(f"{_label(shape)}:{len(group)}" for shape, group in groups.items()),
        *map(str, _ROW_COUNTS),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _names(is_packing: bool) -> list[str]:
    return [*FORMS, *([_PACKED] if is_packing else [])]


def _is_complete(chosen: Mapping[str, Any], groups: Iterable[Shape], is_packing: bool) -> bool:
    forms = chosen.get("forms")
    if not isinstance(forms, dict) or not isinstance(chosen.get("native_rows"), int):
        return False
    rows, allowed = [forms.get(_label(shape)) for shape in groups], _names(is_packing)
    return all(
        isinstance(row, list) and len(row) == len(_ROW_COUNTS) and all(name in allowed for name in row)
        for row in rows
    )
