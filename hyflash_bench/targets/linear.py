"""The fastest way to multiply a few rows with a weight, found by measuring.

A pass of 1 to 16 rows is bound by reading the weights, and the forms that a matrix library offers
for the same product differ by a factor of two and more. A short calibration per weight shape and
row count picks one; all give the same result up to rounding, and the choice is made once per
process, so results repeat.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from hyflash_bench.targets.architecture import Linear
from hyflash_bench.targets.cachedir import cache_dir, read_json, write_json
from hyflash_bench.targets.native import MAX_ROWS, Native, processor

__all__ = ["FORMS", "LinearForms", "calibrate"]

logger = logging.getLogger("hyflash_bench.targets")

Form = Callable[[Tensor, Linear], Tensor]
Shape = tuple[int, int]

_ROW_COUNTS = (1, 2, 4, 5, 8, MAX_ROWS)
_SAMPLE_BYTES = 40 * 2**20
"""Distinct weights read per measurement, beyond what caches hold of them between two reads."""
_BUDGET_S = 2.0
_NATIVE_BONUS = 1.4
"""The native form is taken unless another beats it by this factor: its result for a row does not
depend on how many rows share the pass, which keeps drafts and plain decoding in step."""


def plain(x: Tensor, linear: Linear) -> Tensor:
    """Rows times the weight, as torch does it."""
    return F.linear(x, linear.weight, linear.bias)


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


FORMS: Mapping[str, Form] = {"plain": plain, "turned": turned, "batched": batched}
"""The forms in plain torch; ``native`` joins them where it could be built."""


@dataclass(frozen=True, slots=True)
class LinearForms:
    """Which form to use for a shape and a row count.

    Attributes:
        table: Weight shape -> form for 1, 2, ... ``MAX_ROWS`` rows; shapes that are not in it, and
            longer passes, use the plain form.
    """

    table: Mapping[Shape, tuple[Form, ...]]

    def __call__(self, x: Tensor, linear: Linear) -> Tensor:
        """``x [T, in]`` times the weight, plus bias: ``[T, out]``, contiguous."""
        rows = x.shape[0]
        if rows <= MAX_ROWS:
            forms = self.table.get((linear.weight.shape[0], linear.weight.shape[1]))
            if forms is not None:
                return forms[rows - 1](x, linear)
        return F.linear(x, linear.weight, linear.bias)


def calibrate(linears: Iterable[Linear], native: Native | None) -> LinearForms:
    """Choose forms for all weights of a model.

    Takes up to a few seconds the first time and is kept in the user's cache per processor, torch
    version, number of threads and set of shapes. On accelerators and for other dtypes than
    float32 the plain form is used throughout.
    """
    groups: dict[Shape, list[Linear]] = {}
    for linear in linears:
        weight = linear.weight
        if weight.dtype == torch.float32 and weight.device.type == "cpu":
            groups.setdefault((weight.shape[0], weight.shape[1]), []).append(linear)
    if not groups:
        return LinearForms({})
    forms = dict(FORMS) | ({"native": native.linear} if native is not None else {})
    path = cache_dir("linear") / f"{_key(groups, native)}.json"
    names = read_json(path)
    if not _is_complete(names, groups, forms):
        began = time.perf_counter()
        names = _measure(groups, forms)
        write_json(path, names)
        logger.info("chose matrix forms in %.1f s", time.perf_counter() - began)
    return LinearForms(
        {shape: _spread([forms[name] for name in names[_label(shape)]]) for shape in groups}
    )


def _measure(groups: dict[Shape, list[Linear]], forms: dict[str, Form]) -> dict[str, list[str]]:
    sizes = {shape: _sample(group) for shape, group in groups.items()}
    share = _BUDGET_S / (len(sizes) * len(_ROW_COUNTS))
    chosen: dict[str, list[str]] = {}
    for shape, sample in sizes.items():
        usable = {
            name: form
            for name, form in forms.items()
            if name != "native" or all(Native.fits(linear) for linear in sample)
        }
        chosen[_label(shape)] = [
            _fastest(_times(usable, sample, rows, share)) for rows in _ROW_COUNTS
        ]
    return chosen


@torch.inference_mode()
def _times(
    forms: dict[str, Form], sample: list[Linear], rows: int, budget_s: float
) -> dict[str, float]:
    x = torch.randn(rows, sample[0].weight.shape[1], generator=torch.Generator().manual_seed(0))
    best = dict.fromkeys(forms, float("inf"))
    deadline = time.perf_counter() + budget_s
    for repeat in range(7):
        for name, form in forms.items():
            began = time.perf_counter()
            for linear in sample:
                form(x, linear)
            best[name] = min(best[name], time.perf_counter() - began)
        if repeat >= 2 and time.perf_counter() > deadline:
            break
    return best


def _fastest(times: dict[str, float]) -> str:
    name = min(times, key=lambda form: times[form])
    if "native" in times and times["native"] <= _NATIVE_BONUS * times[name]:
        return "native"
    return name


def _sample(group: list[Linear]) -> list[Linear]:
    weight = group[0].weight
    size = weight.numel() * weight.element_size()
    return group[: max(1, _SAMPLE_BYTES // size)]


def _spread(measured: list[Form]) -> tuple[Form, ...]:
    """A form for every row count: that of the next measured one."""
    return tuple(
        next(form for count, form in zip(_ROW_COUNTS, measured, strict=True) if rows <= count)
        for rows in range(1, MAX_ROWS + 1)
    )


def _label(shape: Shape) -> str:
    return f"{shape[0]}x{shape[1]}"


def _key(groups: Iterable[Shape], native: Native | None) -> str:
    parts = [
        processor(),
        torch.__version__,
        str(torch.get_num_threads()),
        native.digest if native is not None else "",
        *sorted(_label(shape) for shape in groups),
        *map(str, _ROW_COUNTS),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _is_complete(names: object, groups: Iterable[Shape], forms: Mapping[str, Form]) -> bool:
    if not isinstance(names, dict):
        return False
    return all(
        isinstance(row := names.get(_label(shape)), list)
        and len(row) == len(_ROW_COUNTS)
        and all(name in forms for name in row)
        for shape in groups
    )
