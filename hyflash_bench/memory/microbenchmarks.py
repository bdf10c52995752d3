"""What is timed for a calibration: passes of models with random weights, memory, operators, routines."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import psutil
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from hyflash_bench.drafters.base import Drafter, Features
from hyflash_bench.drafters.networks.block import BlockConfig, BlockNetwork
from hyflash_bench.drafters.networks.eagle import EagleConfig, EagleNetwork
from hyflash_bench.drafters.networks.network import DraftNetwork, TargetShape
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.memory.operators import count_operators
from hyflash_bench.memory.random_models import made_up_text, sizes_of, untrained
from hyflash_bench.memory.shapes import ModelShape, WeightBits, shape_of
from hyflash_bench.registry import build_drafter
from hyflash_bench.spec.device import Compute
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.sampling import GREEDY
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.load import build_target

if TYPE_CHECKING:
    from hyflash_bench.targets.cache import KVCache
    from hyflash_bench.targets.target import Target

__all__ = ["ROUTINES", "TINY_LAYERS", "Bench", "Effort", "Overhead", "PassRate", "Points"]

ROUTINES = ("prompt-lookup", "suffix")
"""Drafters without a network, timed as a whole."""

_FORWARD_ROWS = 32
"""Longer passes are prefills, in which one row gets logits."""
_TINY = {"hidden_size": 64, "intermediate_size": 128, "num_heads": 4, "num_kv_heads": 2, "vocab_size": 256}
TINY_LAYERS = (2, 18)
_LEAST_SHARE = 0.02
"""Of a pass's time; a difference below it is noise, and memory's bandwidth is taken instead."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured.

    Attributes:
        widths: Hidden sizes of the models whose passes are timed.
        weight_bytes: About how much each of them weighs in float32; more than any cache holds.
        rows: Rows of a pass.
        attention_rows: Rows of the passes that are timed behind a context too.
        context_length: Of that context.
        read_bytes: Read at once to find the memory's peak.
        repeats: Most repeats of a measurement; their median counts.
        budget_s: After so many seconds a measurement ends with three repeats.
    """

    widths: tuple[int, ...] = (512, 2048)
    weight_bytes: int = 256 * 2**20
    rows: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8, 11, 16, 17, 24, 32, 64, 128, 256, 512)
    attention_rows: tuple[int, ...] = (1, 2, 4, 6, 11, 16, 17, 32, 512)
    context_length: int = 4096
    read_bytes: int = 512 * 2**20
    repeats: int = 9
    budget_s: float = 3.0


@dataclass(frozen=True, slots=True)
class PassRate:
    """What a pass of some rows reached.

    Attributes:
        dtype: Precision.
        hidden_size: Width of the model.
        rows: Of the pass.
        pass_s: Median seconds of a pass without context, overhead included.
        product_flop_per_s: Operations of its products per second, overhead apart.
    """

    dtype: Compute
    hidden_size: int
    rows: int
    pass_s: float
    product_flop_per_s: float


@dataclass(slots=True)
class Overhead:
    """Seconds that a pass takes besides, whatever its size, and each of its layers likewise."""

    pass_s: float
    layer_s: float

    def of(self, shape: ModelShape) -> float:
        """Of a model's whole pass."""
        return self.pass_s + shape.num_layers * self.layer_s


@dataclass(slots=True)
class Points:
    """Rates of one model: by rows, operations per byte and operations per second."""

    products: dict[int, tuple[float, float]] = field(default_factory=dict)
    attention: dict[int, tuple[float, float]] = field(default_factory=dict)
    rates: list[PassRate] = field(default_factory=list)


class Bench:
    """Runs the measurements on one backend."""

    def __init__(self, device: torch.device, effort: Effort, tell: Callable[[str], None]) -> None:
        self._device, self._effort, self._tell = device, effort, tell

    # Passes of the target

    def overhead(self) -> Overhead:
        """Of a pass and of a layer, by two models so small that nothing else takes time."""
        self._tell("Overhead of a pass and of a layer ...")
        few, many = (self._model({**_TINY, "num_layers": layers}, "float32") for layers in TINY_LAYERS)
        seconds = {}
        for target, shape in (few, many):
            cache = target.new_cache(64)
            seconds[shape.num_layers] = self._median(partial(_passed, target, cache, 1), most=200)
        low, high = TINY_LAYERS
        layer_s = max((seconds[high] - seconds[low]) / (high - low), 1e-8)
        return Overhead(max(seconds[low] - low * layer_s, 1e-8), layer_s)

    def points(self, dtype: Compute, width: int, overhead: Overhead) -> Points:
        """Rates of one model at all row counts, without and behind a context."""
        effort = self._effort
        self._tell(f"Passes of {effort.rows[0]} to {effort.rows[-1]} rows, {dtype}, {width} wide ...")
        target, shape = self._model(sizes_of(width, effort.weight_bytes), dtype)
        bits: WeightBits = 32 if dtype == "float32" else 16
        cache = target.new_cache(effort.context_length + max(effort.rows))
        for tensor in cache.tensors():
            tensor.normal_()
        found = Points()
        for rows in effort.rows:
            scored = rows if rows <= _FORWARD_ROWS else 1
            alone = self._pass_seconds(target, cache, rows, 0)
            cost = shape.pass_cost(rows, 0, bits=bits, kv_dtype=dtype, logit_rows=scored)
            flops, weights = cost.flops - cost.score_flops, cost.num_bytes - cost.cache_bytes
            working = max(alone - overhead.of(shape), alone / 10)
            found.products[rows] = (float(flops / weights), float(flops / working))
            found.rates.append(PassRate(dtype, width, rows, alone, float(flops / working)))
        for rows in effort.attention_rows:
            alone = self._pass_seconds(target, cache, rows, 0)
            behind = self._pass_seconds(target, cache, rows, effort.context_length)
            near, far = (
                shape.pass_cost(rows, context, bits=bits, kv_dtype=dtype)
                for context in (0, effort.context_length)
            )
            added = max(behind - alone, _LEAST_SHARE * alone)
            flops, read = far.score_flops - near.score_flops, far.cache_bytes - near.cache_bytes
            found.attention[rows] = (float(flops / read), float(flops / added))
        return found

    def _pass_seconds(self, target: Target, cache: KVCache, rows: int, context: int) -> float:
        def work() -> None:
            cache.length = context
            _passed(target, cache, rows)

        return self._median(work)

    def _model(self, sizes: dict[str, int], dtype: Compute) -> tuple[Target, ModelShape]:
        """A target with random weights."""
        config = LlamaConfig(
            hidden_size=sizes["hidden_size"],
            intermediate_size=sizes["intermediate_size"],
            num_hidden_layers=sizes["num_layers"],
            num_attention_heads=sizes["num_heads"],
            num_key_value_heads=sizes["num_kv_heads"],
            vocab_size=sizes["vocab_size"],
            max_position_embeddings=2 * (self._effort.context_length + max(self._effort.rows)),
            tie_word_embeddings=True,
        )
        model = LlamaForCausalLM(config).to(getattr(torch, dtype))
        spec = TargetSpec(target="calibration", dtype=_as_dtype(dtype), backend=str(self._device))
        target = build_target(model, None, spec)
        return target, shape_of(config.to_dict(), "calibration")

    # Memory and arithmetic alone

    def bandwidth(self) -> float:
        """Bytes read per second by the faster of two ways to read much at once."""
        self._tell("Bandwidth of memory ...")
        numbers = torch.ones(self._effort.read_bytes // 4, device=self._device)
        seconds = [self._median(numbers.sum), self._median(lambda: torch.dot(numbers, numbers))]
        return numbers.nbytes / min(seconds)

    def peak(self) -> float:
        """Operations per second of a product of square matrices in float32."""
        self._tell("Products of square matrices ...")
        size = int((self._effort.read_bytes // 32) ** 0.5)  # 16 MiB of the default's 512
        square = torch.rand(size, size, device=self._device)
        return 2 * size**3 / self._median(lambda: square @ square)

    def memory_bytes(self) -> tuple[int, int]:
        """Built in, and free now."""
        if self._device.type == "cuda":
            free, total = torch.cuda.mem_get_info(self._device)
            return int(total), int(free)
        memory = psutil.virtual_memory()
        return int(memory.total), int(memory.available)

    # Drafters

    def operator_seconds(self) -> float:
        """Of one operator of a torch module, Python included: drafts of tiny untrained drafters."""
        self._tell("Operators of drafters ...")
        target, _ = self._model({**_TINY, "num_layers": 4}, "float32")
        shape = TargetShape.of(target.load_context())
        common: dict[str, Any] = {"target": shape, "num_slots": 4, "draft_vocab_size": 128}
        networks: dict[str, DraftNetwork] = {
            "window": BlockNetwork(BlockConfig(**common, num_layers=2, taps=(1,), memory="none")),
            "eagle": EagleNetwork(EagleConfig(**common, taps=(1,), intermediate_size=128)),
        }
        seconds, operators = 0.0, 0
        for name, network in networks.items():
            drafter = untrained(name, network, target)
            features = Features(
                taps={1: torch.randn(40, shape.hidden_size, device=self._device)},
                last_hidden=torch.randn(40, shape.hidden_size, device=self._device),
            )
            drafter.observe(torch.arange(40), features)
            sampler = Sampler(GREEDY, 0)

            def work(drafter: Drafter = drafter, sampler: Sampler = sampler) -> object:
                return drafter.draft(7, 4, sampler)

            seconds += self._median(work, most=100)
            operators += count_operators(work)
        return seconds / operators

    def routine_seconds(self) -> dict[str, float]:
        """A draft, and the reading of a token, of each drafter without a network."""
        self._tell("Drafters without a network ...")
        text = made_up_text(4096)
        found = {}
        for name in ROUTINES:
            drafter, sampler = build_drafter(DrafterSpec(name=name)), Sampler(GREEDY, 0)
            read, drafts = [], []
            half = len(text) // 2
            drafter.observe(text[:half], Features())
            for at in range(half, len(text) - 3, 3):
                began = time.perf_counter()
                drafter.draft(int(text[at]), 16, sampler)
                drafted = time.perf_counter()
                drafter.observe(text[at : at + 3], Features())
                read.append((time.perf_counter() - drafted) / 3)
                drafts.append(drafted - began)
            found[f"{name}.draft"] = max(statistics.mean(drafts), 1e-9)
            found[f"{name}.observe"] = max(statistics.mean(read), 1e-9)
        return found

    # The clock

    def _median(self, work: Callable[[], object], most: int = 0) -> float:
        """Median seconds; the first time is not counted."""
        work()
        seconds: list[float] = []
        deadline = time.perf_counter() + self._effort.budget_s
        with torch.inference_mode():
            while len(seconds) < (most or self._effort.repeats):
                if len(seconds) >= 3 and time.perf_counter() > deadline:
                    break
                self._wait()
                began = time.perf_counter()
                work()
                self._wait()
                seconds.append(time.perf_counter() - began)
        return statistics.median(seconds)

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        elif self._device.type == "mps":
            torch.mps.synchronize()


def _passed(target: Target, cache: KVCache, rows: int) -> None:
    """A pass like the engine's own, taken back afterwards."""
    before = cache.length
    tokens = torch.arange(rows) % 200
    if rows <= _FORWARD_ROWS:
        target.forward(tokens, cache)
    else:
        target.prefill(tokens, cache, chunk_size=rows)
    cache.truncate(before)


def _as_dtype(dtype: Compute) -> Any:
    return dtype if dtype in ("float32", "bfloat16", "float16") else "float32"
