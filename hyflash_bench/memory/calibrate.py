"""Measures this machine into a device profile: what its memory, its arithmetic and its software take.

Models with random weights, built like targets, pass through the target's own code; drafters of a tiny
target show what torch takes to start an operator. Nothing of any run enters.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import torch

from hyflash_bench.memory.microbenchmarks import TINY_LAYERS, Bench, Effort, PassRate
from hyflash_bench.spec.device import HOST, Compute, DeviceProfile

__all__ = ["FULL", "Calibration", "calibrate"]

FULL = Effort()


@dataclass(slots=True)
class Calibration:
    """A profile, and what it was made from."""

    profile: DeviceProfile
    passes: list[PassRate] = field(default_factory=list)


def calibrate(
    *,
    backend: str = "cpu",
    machine: str = "this machine",
    dtypes: Sequence[Compute] = ("float32", "bfloat16"),
    effort: Effort = FULL,
    tell: Callable[[str], None] = lambda message: None,
) -> Calibration:
    """Measure the machine; torch's number of threads is taken as it is.

    Args:
        backend: Where targets run: ``cpu``, ``cuda[:N]`` or ``mps``.
        machine: What it is, for the profile's title.
        dtypes: Precisions whose rates are measured; float32 comes first.
        effort: How much is measured.
        tell: Told what is being measured.
    """
    bench = Bench(torch.device(backend), effort, tell)
    overhead = bench.overhead()
    passes: list[PassRate] = []
    products: dict[str, Any] = {}
    attention: dict[str, Any] = {}
    for dtype in dtypes:
        points = [bench.points(dtype, width, overhead) for width in effort.widths]
        passes += [rate for point in points for rate in point.rates]
        products[dtype] = _merged([point.products for point in points], effort.rows)
        attention[dtype] = _merged([point.attention for point in points], effort.attention_rows)
    read = bench.bandwidth()
    lowest = products["float32"]
    streamed = lowest["flop_per_s"][0] / lowest["flop_per_byte"][0]
    peak = bench.peak()
    reached = max(lowest["flop_per_s"])
    operator_s = bench.operator_seconds()
    routines = bench.routine_seconds()
    total, usable = bench.memory_bytes()

    when = datetime.now(UTC).isoformat(timespec="minutes")
    threads = f", {torch.get_num_threads()} threads" if backend == "cpu" else ""
    where = f"measured {when} on {machine} ({backend}{threads}, torch {torch.__version__})"
    medians = f"medians of up to {effort.repeats} repeats"

    def known(value: Any, how: str) -> dict[str, Any]:
        value = float(f"{value:.4g}") if isinstance(value, float) else value
        return {"value": value, "basis": "measured", "source": f"{how}; {where}"}

    def rates(found: dict[str, Any], how: str) -> dict[str, Any]:
        return {**found, "basis": "measured", "source": f"{how}; {medians}; {where}"}

    widths = " and ".join(map(str, effort.widths))
    values = {
        "name": HOST,
        "title": f"This machine ({machine})",
        "kind": HOST,
        "notes": f"Measured by hyflash-bench calibrate, {when}.",
        "memory_total": known(f"{total}B", "as the system says"),
        "memory_usable": known(f"{min(usable, total)}B", "available when it was calibrated"),
        "bandwidth_bytes_per_s": known(
            max(read, streamed), f"{effort.read_bytes / 2**20:.0f} MiB read at once, {medians}"
        ),
        "bandwidth_reached": known(
            min(1.0, streamed / max(read, streamed)), f"passes of one row of models {widths} wide"
        ),
        "compute_flop_per_s": {
            "float32": known(max(peak, reached), f"products of square matrices, {medians}")
        },
        "compute_reached": known(
            min(1.0, reached / max(peak, reached)), f"the best pass of models {widths} wide"
        ),
        "overhead_s": known(
            overhead.pass_s, f"passes of one row of models with {TINY_LAYERS} layers of width 64, solved"
        ),
        "overhead_layer_s": known(overhead.layer_s, "likewise"),
        "product_rates": {
            dtype: rates(
                found, f"passes of {effort.rows[0]} to {effort.rows[-1]} rows of models {widths} wide"
            )
            for dtype, found in products.items()
        },
        "attention_rates": {
            dtype: rates(found, f"what {effort.context_length} tokens of context add to these passes")
            for dtype, found in attention.items()
        },
        "operator_s": known(operator_s, "drafts of untrained drafters on a target of width 64, per operator"),
        "routine_s": {name: known(seconds, "on a made-up text") for name, seconds in routines.items()},
    }
    return Calibration(DeviceProfile.parse(values, where="calibration"), passes)


def _merged(models: Sequence[dict[int, tuple[float, float]]], rows: Sequence[int]) -> dict[str, list[float]]:
    """The geometric mean of models, row count by row count; intensities that do not ascend are dropped."""
    intensities: list[float] = []
    rates: list[float] = []
    for count in rows:
        intensity, rate = (
            statistics.geometric_mean(point[count][index] for point in models) for index in (0, 1)
        )
        if not intensities or intensity > intensities[-1]:
            intensities.append(float(f"{intensity:.4g}"))
            rates.append(float(f"{rate:.4g}"))
    return {"flop_per_byte": intensities, "flop_per_s": rates}
