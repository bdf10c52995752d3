"""GPUs that are not there: tensors that say they lie on one, and refuse to meet those that do not.

A tensor of the emulated device wraps one in main memory. Operators run on what is wrapped, after the
checks that the device would make: all tensors on one device but for scalars and copies, indices on the
device of what is indexed or on the CPU, no float64 on MPS. So what is tested is where tensors lie, and
neither kernels nor speed. A backward pass needs the real device's own threads; here it gives ones.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["DEVICES", "emulated"]

DEVICES = ("cuda", "mps")
_GUARDS = """
#include <c10/core/impl/DeviceGuardImplInterface.h>
namespace c10::impl {
C10_REGISTER_GUARD_IMPL(CUDA, NoOpDeviceGuardImpl<DeviceType::CUDA>);
C10_REGISTER_GUARD_IMPL(MPS, NoOpDeviceGuardImpl<DeviceType::MPS>);
}
"""
_ATEN = torch.ops.aten
_MIXED = {
    _ATEN._to_copy.default,
    _ATEN.copy_.default,
    _ATEN.index.Tensor,
    _ATEN.index_put.default,
    _ATEN.index_put_.default,
    _ATEN._index_put_impl_.default,
}
"""What takes tensors of several devices."""
_GIBIBYTE = 1 << 30


class _Remote(Tensor):
    """A tensor that lies on the emulated device."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor, device: torch.device) -> _Remote:
        made = Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(),
            dtype=inner.dtype, layout=inner.layout, device=device,
        )  # fmt: skip
        made.inner = inner
        return made

    def tolist(self) -> Any:
        return self.inner.tolist()

    def __repr__(self) -> str:
        return f"{self.device}: {self.inner}"

    @classmethod
    def __torch_dispatch__(cls, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(operator, args, kwargs or {})


class _Mode(TorchDispatchMode):
    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(operator, args, kwargs or {})


class _PlainAttention(TorchFunctionMode):
    """Attention in plain operators: torch asks the device itself which kernel to take."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is functional.scaled_dot_product_attention:
            return torch._scaled_dot_product_attention_math(*args, **(kwargs or {}))[0]
        return function(*args, **(kwargs or {}))


def _run(operator: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Check where the tensors lie, compute in main memory, put the result where it belongs."""
    tensors = list(_tensors((*args, *kwargs.values())))
    remote = [tensor for tensor in tensors if isinstance(tensor, _Remote)]
    if not remote and kwargs.get("device") is None:
        return operator(*args, **kwargs)
    _require_one_device(operator, args, tensors, remote)
    device = remote[0].device if remote else None
    if operator in _MIXED and operator is not _ATEN._to_copy.default:
        device = args[0].device  # the first one's, whatever is copied or looked up
    if kwargs.get("device") is not None:
        device = torch.device(kwargs["device"])
        kwargs = kwargs | ({"device": torch.device("cpu")} if device.type in DEVICES else {})
    result = operator(*_mapped(_inner, args), **{name: _mapped(_inner, kwargs[name]) for name in kwargs})
    if device is None or device.type not in DEVICES:
        return result
    same = {id(tensor.inner): tensor for tensor in remote}  # what is changed in place stays itself
    return _mapped(lambda tensor: _placed(tensor, device, same), result)


def _tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _mapped(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(change, each) for each in value)
    return value


def _require_one_device(operator: Any, args: Any, tensors: list[Tensor], remote: list[_Remote]) -> None:
    if not remote:
        return
    if operator in _MIXED:
        if operator not in {_ATEN._to_copy.default, _ATEN.copy_.default} and args[0].device.type == "cpu":
            assert not any(isinstance(index, _Remote) for index in _tensors(args[1])), (
                f"{operator}: indices lie on another device than what is indexed, which is on the CPU"
            )
        return
    strays = [tuple(each.shape) for each in tensors if not isinstance(each, _Remote) and each.dim() > 0]
    assert not strays, f"{operator}: tensors of shapes {strays} are not on {remote[0].device}"


def _inner(tensor: Tensor) -> Tensor:
    return tensor.inner if isinstance(tensor, _Remote) else tensor


def _placed(tensor: Tensor, device: torch.device, same: dict[int, _Remote]) -> Tensor:
    assert device.type != "mps" or tensor.dtype != torch.float64, "MPS has no float64"
    return same[id(tensor)] if id(tensor) in same else _Remote(tensor, torch.device(device.type, 0))


@cache
def _register_guards() -> None:
    """Tell torch that switching to these devices takes nothing."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("emulated devices need g++")
    folder, package = Path(mkdtemp()), Path(torch.__file__).parent
    (folder / "guards.cpp").write_text(_GUARDS)
    flags = ["-std=c++17", "-shared", "-fPIC", f"-I{package / 'include'}", f"-L{package / 'lib'}"]
    command = [compiler, *flags, str(folder / "guards.cpp"), "-o", str(folder / "guards.so"), "-lc10"]
    subprocess.run(command, check=True)
    torch.ops.load_library(folder / "guards.so")


@contextmanager
def emulated(device: str) -> Iterator[None]:
    """Within it, torch has this device of :data:`DEVICES`; tensors of it must not leave."""
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        pytest.skip("there is a real device")
    _register_guards()
    facts = SimpleNamespace(name="emulated", total_memory=8 * _GIBIBYTE, uuid=None, major=8, minor=0)
    is_cuda = device == "cuda"
    answers: dict[Any, dict[str, Any]] = {
        torch.cuda: {
            "is_available": is_cuda, "device_count": int(is_cuda), "current_device": 0,
            "get_device_properties": facts, "get_device_name": facts.name, "is_bf16_supported": True,
            "synchronize": None, "empty_cache": None, "reset_peak_memory_stats": None, "_lazy_init": None,
            "max_memory_allocated": 0, "max_memory_reserved": 0, "memory_reserved": 0,
        },
        torch.mps: {"synchronize": None, "driver_allocated_memory": 0},
        torch.backends.mps: {"is_available": not is_cuda},
    }  # fmt: skip
    with ExitStack() as stack:
        for module, named in answers.items():
            for name, answer in named.items():
                stack.enter_context(patch.object(module, name, lambda *_, answer=answer, **__: answer))
        # Views of wrapped tensors cannot be made in inference mode, and modules keep the class of
        # parameters only when they are replaced.
        stack.enter_context(patch.object(torch._C, "_InferenceMode", _no_gradients))
        stack.enter_context(patch.object(torch.autograd, "backward", _give_ones))
        stack.callback(
            torch.__future__.set_overwrite_module_params_on_conversion,
            torch.__future__.get_overwrite_module_params_on_conversion(),
        )
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        stack.callback(torch._C._set_only_lift_cpu_tensors, torch._C._only_lift_cpu_tensors())
        torch._C._set_only_lift_cpu_tensors(True)
        stack.enter_context(_PlainAttention())
        stack.enter_context(_Mode())
        yield


def _no_gradients(mode: bool) -> Any:
    return torch.no_grad() if mode else torch.enable_grad()


def _give_ones(loss: Tensor) -> None:
    """A gradient for every parameter that the loss depends on."""
    waiting, met = [loss.grad_fn], {None}
    while waiting:
        node = waiting.pop()
        if node in met:
            continue
        met.add(node)
        if hasattr(node, "variable"):
            node.variable.grad = torch.ones_like(node.variable)
        waiting += [following for following, _ in node.next_functions]
