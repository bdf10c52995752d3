"""What a request asks of memory, checked before anything is loaded. No torch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hyflash_bench.errors import HyFlashError, UsageError
from hyflash_bench.memory.limits import enforcement_available
from hyflash_bench.memory.lookup import read_shape
from hyflash_bench.memory.shapes import WeightBits
from hyflash_bench.registry import can_shrink, drafter_names, keeps_kv
from hyflash_bench.spec.device import DeviceProfile, read_devices
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.plan import Cap, CapKind
from hyflash_bench.spec.run import RunSpec
from hyflash_bench.spec.target import BACKEND
from hyflash_bench.spec.units import format_bytes

__all__ = ["asked_caps", "asked_devices", "checked", "remarks", "require_room"]

REFERENCE = "autoregressive"

_BITS: Mapping[str, WeightBits] = {"float32": 32, "bfloat16": 16, "float16": 16}


def checked(spec: RunSpec) -> RunSpec:
    """The request with what it says for all drafters put into each.

    Raises:
        UsageError: A device is unknown, a cap is below the weights, a policy or a precision suits none of
            the drafters, or enforcement is not to be had.
    """
    if spec.drafter_kv_dtype != "auto" and not any(map(keeps_kv, spec.drafters)):
        raise UsageError(
            f"--drafter-kv-dtype {spec.drafter_kv_dtype}: none of {_listed(spec)} has keys and values of its "
            "own. Drop the option, or add a drafter that has (see ls drafters -v: kv_dtype)."
        )
    if spec.cap_policy == "window" and not any(map(can_shrink, spec.drafters)):
        raise UsageError(
            f"--cap-policy window: none of {_listed(spec)} can keep less of the context. Add one that can "
            f"({', '.join(_shrinking())}), or use --cap-policy stop or no-draft."
        )
    for cap in asked_caps(spec):
        _require_weights(spec, cap)
    drafters = tuple(_with_kv(drafter, spec) for drafter in spec.drafters)
    return spec.model_copy(update={"drafters": drafters, "drafter_kv_dtype": "auto"})


def remarks(spec: RunSpec) -> Iterator[str]:
    """What will not go as asked, to be said before anything is loaded."""
    unable = [d.label for d in spec.drafters if d.name != REFERENCE and not can_shrink(d)]
    if spec.cap_policy == "window" and unable:
        yield (
            f"--cap-policy window: {', '.join(unable)} cannot keep less of the context; where such a drafter "
            "passes a cap, its cell is incompatible."
        )


def asked_devices(spec: RunSpec) -> list[DeviceProfile]:
    """The profiles of the devices asked for.

    Raises:
        UsageError: A name is unknown, is one of a backend, or stands for a device that is there already; a
            file cannot be read or is no profile.
    """
    for name in spec.devices:
        if re.match(BACKEND, name):
            raise UsageError(
                f"{name!r} is a backend, what torch computes on: --backend {name}. A device is a profile of "
                "what the model is to run on; its memory becomes a simulated cap."
            )
    return read_devices(spec.devices)


def asked_caps(spec: RunSpec) -> list[Cap]:
    """Every cap of a request, sizes before devices; the uncapped cells are not among them.

    Raises:
        UsageError: A device is unknown, or caps are to be enforced and cannot be.
    """
    kind = _kind(spec) if spec.memory_caps else "simulated"
    sizes = (Cap(size, kind, spec.cap_policy, None, spec.weight_bits) for size in spec.memory_caps)
    devices = (
        Cap(device.memory_usable.value, "simulated", spec.cap_policy, device.name, spec.weight_bits)
        for device in asked_devices(spec)
    )
    return [*sizes, *devices]


def require_room(cap: Cap, weight_bytes: int, precision: str) -> None:
    """Refuse a cap below the weights alone.

    Raises:
        UsageError: With the size of the weights, and what would help.
    """
    if cap.num_bytes >= weight_bytes:
        return
    whose = f"usable memory of {cap.device}" if cap.device else "memory cap"
    fewer = ", fewer --weight-bits" if cap.kind == "simulated" else ""
    raise UsageError(
        f"The {whose}, {format_bytes(cap.num_bytes)}, is below the target's weights alone: "
        f"{format_bytes(weight_bytes)} in {precision}. Give more memory{fewer} or a smaller target."
    )


def _require_weights(spec: RunSpec, cap: Cap) -> None:
    """What can be known from the target's files; the rest is seen once it is loaded."""
    bits = _BITS.get(spec.dtype) if cap.weight_bits == 32 else spec.weight_bits
    if bits is None:
        return
    try:
        shape = read_shape(spec.target)
    except HyFlashError:
        return  # not fetched yet, or not to be read: loading it says so
    require_room(cap, shape.weight_bytes(bits), f"{bits} bits")


def _kind(spec: RunSpec) -> CapKind:
    if spec.cap_kind == "simulated" or enforcement_available(spec.backend) is not None:
        return spec.cap_kind
    if spec.allow_simulated:
        return "simulated"
    raise UsageError(
        f"A memory cap cannot be enforced on backend {spec.backend} of this system. "
        "Use --cap-kind simulated, or add --allow-simulated."
    )


def _shrinking() -> list[str]:
    return [name for name in drafter_names() if can_shrink(DrafterSpec(name=name))]


def _with_kv(drafter: DrafterSpec, spec: RunSpec) -> DrafterSpec:
    if spec.drafter_kv_dtype == "auto" or not keeps_kv(drafter) or "kv_dtype" in drafter.options:
        return drafter
    options: dict[str, Any] = {**drafter.options, "kv_dtype": spec.drafter_kv_dtype}
    return drafter.model_copy(update={"options": options})


def _listed(spec: RunSpec) -> str:
    return ", ".join(drafter.label for drafter in spec.drafters)
