"""Builds ``kernels.c`` with the machine's own compiler and calls it.

Optional: without a compiler everything runs in plain torch, with the same results up to rounding.
The library is kept in the user's cache under a hash of the source, the compiler and the processor.
``HYFLASH_BENCH_NATIVE=0`` turns it off.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hyflash_bench.targets.architecture import Activation, Linear, Norm
from hyflash_bench.targets.cachedir import cache_dir

__all__ = ["MAX_ROWS", "Native", "load_native", "processor"]

logger = logging.getLogger("hyflash_bench.targets")

MAX_ROWS = 16
"""Rows of a pass up to which these kernels are meant to be used."""

_KEYS = 64
_GATES: dict[Activation, int] = {"silu": 0, "gelu_tanh": 1}
_FLAGS = ("-O3", "-fopenmp", "-shared", "-fPIC")


class Native:
    """The compiled kernels on float32 CPU tensors.

    Attributes:
        digest: Identifies source, compiler and processor.
    """

    def __init__(self, library: Any, digest: str) -> None:
        self.digest = digest
        pointer, size, real, count = (
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_float,
            ctypes.c_int,
        )
        self._linear = library.linear
        self._linear.argtypes = [pointer] * 4 + [size] * 3 + [count]
        self._rms_norm = library.rms_norm
        self._rms_norm.argtypes = [pointer] * 3 + [size] * 2 + [real]
        self._gate = library.gate
        self._gate.argtypes = [pointer] * 2 + [size] * 2 + [count]
        self._append = library.append
        self._append.argtypes = [pointer] * 3 + [real] + [pointer] * 4 + [size] * 7
        self._attend = library.attend
        self._attend.argtypes = [pointer] * 7 + [size] * 6 + [real] * 2 + [count]
        for function in (self._linear, self._rms_norm, self._gate, self._append, self._attend):
            function.restype = None
        self._scratch = torch.empty(0)

    @staticmethod
    def fits(linear: Linear) -> bool:
        """Whether :meth:`linear` can serve this product."""
        weight = linear.weight
        return (
            weight.dtype == torch.float32
            and weight.device.type == "cpu"
            and weight.is_contiguous()
            and weight.shape[0] % 2 == 0
        )

    def linear(self, x: Tensor, linear: Linear) -> Tensor:
        """``[T, in]`` to ``[T, out]``."""
        rows, inputs = x.shape
        outputs = linear.weight.shape[0]
        y = torch.empty(rows, outputs)
        bias = None if linear.bias is None else linear.bias.data_ptr()
        self._linear(
            x.data_ptr(),
            linear.weight.data_ptr(),
            bias,
            y.data_ptr(),
            rows,
            inputs,
            outputs,
            torch.get_num_threads(),
        )
        return y

    def norm(self, x: Tensor, norm: Norm) -> Tensor:
        """RMS norm of ``[T, d]``."""
        y = torch.empty_like(x)
        rows, width = x.shape
        self._rms_norm(
            x.data_ptr(), norm.weight.data_ptr(), y.data_ptr(), rows, width, norm.eps
        )
        return y

    def has_gate(self, activation: Activation) -> bool:
        """Whether :meth:`gate` knows the activation."""
        return activation in _GATES

    def gate(self, gate_up: Tensor, activation: Activation) -> Tensor:
        """``[T, 2 f]`` to ``[T, f]``: the activated first half times the second."""
        rows, width = gate_up.shape
        y = torch.empty(rows, width // 2)
        self._gate(gate_up.data_ptr(), y.data_ptr(), rows, width // 2, _GATES[activation])
        return y

    def append(
        self,
        qkv: Tensor,
        query_norm: Norm | None,
        key_norm: Norm | None,
        cosine: Tensor,
        sine: Tensor,
        keys: Tensor,
        values: Tensor,
        start: int,
        num_heads: int,
    ) -> None:
        """Rotate ``qkv [T, (heads + 2 kv_heads) * head_dim]`` in place and fill the cache."""
        num_kv_heads, capacity, head_dim = keys.shape
        self._append(
            qkv.data_ptr(),
            None if query_norm is None else query_norm.weight.data_ptr(),
            None if key_norm is None else key_norm.weight.data_ptr(),
            0.0 if query_norm is None else query_norm.eps,
            cosine.data_ptr(),
            sine.data_ptr(),
            keys.data_ptr(),
            values.data_ptr(),
            qkv.shape[0],
            num_heads,
            num_kv_heads,
            head_dim,
            cosine.shape[1],
            capacity,
            start,
        )

    def attend(
        self,
        qkv: Tensor,
        keys: Tensor,
        values: Tensor,
        first: Tensor,
        within: Tensor,
        start: int,
        num_heads: int,
        scale: float,
        softcap: float | None,
    ) -> Tensor:
        """Attention over one layer's cache after :meth:`append`; ``[T, heads * head_dim]``."""
        rows = qkv.shape[0]
        num_kv_heads, capacity, head_dim = keys.shape
        units = (start + rows + _KEYS - 1) // _KEYS
        needed = units * num_heads * rows * (head_dim + 2 + _KEYS)
        if self._scratch.numel() < needed:
            self._scratch = torch.empty(needed + needed // 4)
        mixed = torch.empty(rows, num_heads * head_dim)
        self._attend(
            qkv.data_ptr(),
            keys.data_ptr(),
            values.data_ptr(),
            first.data_ptr(),
            within.data_ptr(),
            mixed.data_ptr(),
            self._scratch.data_ptr(),
            rows,
            num_heads,
            num_kv_heads,
            head_dim,
            capacity,
            start,
            scale,
            0.0 if softcap is None else softcap,
            torch.get_num_threads(),
        )
        return mixed


def processor() -> str:
    """What code and timings for this processor depend on; the same on equal machines."""
    lines: set[str] = set()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = {line for line in file if line.startswith(("model name", "flags", "Features"))}
    except OSError:
        pass
    import platform

    text = "".join(sorted(lines)) + platform.machine() + platform.processor()
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def load_native() -> Native | None:
    """The kernels, compiled on first use (about a second); None where that is not possible."""
    if os.environ.get("HYFLASH_BENCH_NATIVE") == "0" or sys.platform != "linux":
        return None
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        logger.info("no C compiler: passes of a few rows run in plain torch, more slowly")
        return None
    try:
        path, digest = _build(compiler)
        return Native(ctypes.CDLL(str(path)), digest)
    except (OSError, subprocess.SubprocessError, AttributeError) as error:
        detail = getattr(error, "stderr", None) or error
        logger.info("the native kernels could not be built, plain torch is used: %s", detail)
        return None


def _build(compiler: str) -> tuple[Path, str]:
    source = files("hyflash_bench.targets").joinpath("kernels.c").read_bytes()
    version = subprocess.run(
        [compiler, "--version"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    key = source + version.encode() + processor().encode() + " ".join(_FLAGS).encode()
    digest = hashlib.sha256(key).hexdigest()[:16]
    folder = cache_dir("native")
    path = folder / f"kernels-{digest}.so"
    if path.exists():
        return path, digest
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        code, built = Path(scratch, "kernels.c"), Path(scratch, "kernels.so")
        code.write_bytes(source)
        subprocess.run(
            [compiler, *_FLAGS, _tuning(compiler), str(code), "-o", str(built), "-lm"],
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        os.replace(built, path)
    return path, digest


def _tuning(compiler: str) -> str:
    """The flag that makes the compiler use all of this processor."""
    probe = subprocess.run(
        [compiler, "-march=native", "-E", "-x", "c", os.devnull],
        capture_output=True,
        check=False,
        timeout=60,
    )
    return "-march=native" if probe.returncode == 0 else "-mcpu=native"
