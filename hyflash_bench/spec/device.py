"""Device profiles: what a class of device can hold and how fast it is, with a source for every number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from hyflash_bench.data import cache_folder, data_folder, expanded
from hyflash_bench.errors import SpecError, UnknownName, UsageError
from hyflash_bench.spec.base import Spec
from hyflash_bench.spec.units import format_bytes, parse_bytes
from hyflash_bench.spec.yaml import read_yaml

__all__ = [
    "HOST",
    "Basis",
    "Compute",
    "DeviceProfile",
    "Known",
    "Rates",
    "Size",
    "device_names",
    "host_path",
    "read_device",
    "read_devices",
]

HOST = "host"
"""The machine at hand, once it is calibrated."""

Compute = Literal["float32", "float16", "bfloat16", "int8"]
Basis = Literal["published", "derived", "measured", "assumption"]

_FALLBACKS: Mapping[Compute, tuple[Compute, ...]] = {
    "float32": (),
    "bfloat16": ("float32",),
    "float16": ("float32",),
    "int8": ("float16", "float32"),
}
"""What a precision is computed in where the device has no units for it."""


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("write a number")
    return value


def _size(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("a size needs a unit, for example 8GiB")
    try:
        return parse_bytes(value)
    except SpecError as error:  # so that the message says which key of which file it is
        raise ValueError(str(error)) from None


_Number = Annotated[float, BeforeValidator(_number)]
_Positive = Annotated[float, BeforeValidator(_number), Field(gt=0.0, allow_inf_nan=False)]


class _Sourced(Spec):
    basis: Basis = Field(
        description="published by somebody, derived from published numbers, measured here, or an assumption."
    )
    source: str = Field(min_length=8, description="Where the number stands, or the arithmetic behind it.")


class Size(_Sourced):
    """A number of bytes and where it comes from."""

    value: Annotated[int, BeforeValidator(_size)] = Field(description="With a unit, as in 8GiB.")


class Known(_Sourced):
    """A number and where it comes from."""

    value: _Number = Field(gt=0.0, allow_inf_nan=False, description="In the unit that the key names.")


class Rates(_Sourced):
    """A roofline as it was measured: operations per second, by operations per byte that is read."""

    flop_per_byte: tuple[_Positive, ...] = Field(min_length=2, description="Ascending.")
    flop_per_s: tuple[_Positive, ...] = Field(min_length=2, description="One for each of these.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.flop_per_byte) != len(self.flop_per_s):
            raise ValueError(
                f"{len(self.flop_per_byte)} flop_per_byte and {len(self.flop_per_s)} flop_per_s; "
                "give as many of each"
            )
        if any(low >= high for low, high in pairwise(self.flop_per_byte)):
            raise ValueError("flop_per_byte must ascend")
        for rate in self.flop_per_s:
            _within("flop_per_s", rate, 1e6, 1e17)
        return self


class DeviceProfile(Spec):
    """A class of device. Every number says where it comes from."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$", description="As given to --device.")
    title: str = Field(min_length=1, description="For people.")
    kind: Literal["phone", "board", "laptop", "gpu", "host"] = Field(description="What sort of device.")
    notes: str = Field("", description="What is meant: which processor computes, which mode it runs in.")
    memory_total: Size = Field(description="Memory built in, of the kind that the model lies in.")
    memory_usable: Size = Field(description="What of it one program can really use.")
    bandwidth_bytes_per_s: Known = Field(description="Peak of the memory's bandwidth.")
    bandwidth_reached: Known = Field(description="Share of the peak that reading weights usually reaches.")
    compute_flop_per_s: dict[Compute, Known] = Field(
        description="Peak of dense matrix products by precision, an addition and a product being two."
    )
    compute_reached: Known = Field(description="Share of the peak that large products usually reach.")
    overhead_s: Known = Field(description="What a pass takes besides, whatever its size.")
    overhead_layer_s: Known = Field(description="What each layer of a pass takes besides, likewise.")
    power_w: Known | None = Field(None, description="Drawn while decoding, where known.")
    product_rates: dict[Compute, Rates] = Field(
        default_factory=dict, description="Products with weights, as measured; instead of peak and share."
    )
    attention_rates: dict[Compute, Rates] = Field(
        default_factory=dict, description="Attention over cached keys and values, likewise."
    )
    operator_s: Known | None = Field(
        None, description="What each operator of a torch module takes besides, where drafters are such."
    )
    routine_s: dict[str, Known] = Field(
        default_factory=dict, description="Routines of drafters without a network, seconds a call."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.memory_usable.value > self.memory_total.value:
            raise ValueError(
                f"memory_usable {format_bytes(self.memory_usable.value)} exceeds "
                f"memory_total {format_bytes(self.memory_total.value)}"
            )
        if "float32" not in self.compute_flop_per_s:
            raise ValueError("compute_flop_per_s lacks float32, which others fall back to")
        for share in ("bandwidth_reached", "compute_reached"):
            if getattr(self, share).value > 1.0:
                raise ValueError(f"{share} is a share of the peak; give at most 1")
        _within("memory_total", self.memory_total.value, 2**26, 2**44)
        _within("bandwidth_bytes_per_s", self.bandwidth_bytes_per_s.value, 1e8, 1e14)
        for precision, peak in self.compute_flop_per_s.items():
            _within(f"compute_flop_per_s.{precision}", peak.value, 1e8, 1e17)
        _within("overhead_s", self.overhead_s.value, 1e-9, 1.0)
        _within("overhead_layer_s", self.overhead_layer_s.value, 1e-9, 0.1)
        if self.operator_s is not None:
            _within("operator_s", self.operator_s.value, 1e-9, 0.1)
        for routine, seconds in self.routine_s.items():
            _within(f"routine_s.{routine}", seconds.value, 1e-10, 10.0)
        if self.power_w is not None:
            _within("power_w", self.power_w.value, 1e-3, 1e5)
        return self

    @property
    def bandwidth(self) -> float:
        """Bytes per second that a pass can count on."""
        return self.bandwidth_bytes_per_s.value * self.bandwidth_reached.value

    def compute(self, precision: Compute) -> float:
        """Operations per second that a pass can count on; precisions without a number fall back."""
        for known in (precision, *_FALLBACKS[precision]):
            if known in self.compute_flop_per_s:
                return self.compute_flop_per_s[known].value * self.compute_reached.value
        raise AssertionError("float32 is always there")

    def sourced(self) -> dict[str, Size | Known | Rates]:
        """Every number by its key, for tables of sources."""
        found: dict[str, Size | Known | Rates] = {}
        for key, value in self:
            inner = (
                {f"{key}.{name}": number for name, number in value.items()} if isinstance(value, dict) else {}
            )
            for name, number in (inner or {key: value}).items():
                if isinstance(number, _Sourced):
                    assert isinstance(number, Size | Known | Rates)
                    found[name] = number
        return found

    def bases(self) -> dict[Basis, int]:
        """How many of its numbers rest on what."""
        counts: dict[Basis, int] = {}
        for number in self.sourced().values():
            counts[number.basis] = counts.get(number.basis, 0) + 1
        return counts


def device_names() -> list[str]:
    """Names of the profiles that come with the package; ``host`` is not among them."""
    return sorted(path.stem for path in data_folder("devices").glob("*.yaml"))


def host_path() -> Path:
    """Where the profile of this machine lies, once ``calibrate`` has written it."""
    return cache_folder() / "devices" / f"{HOST}.yaml"


def read_device(given: str) -> DeviceProfile:
    """A profile by its name, or from a YAML file.

    Args:
        given: Name of a shipped profile, ``host``, or path of a file that ends in .yaml or .yml.

    Raises:
        UnknownName: Neither; the nearest name is offered.
        UsageError: There is no such file, or the host was not calibrated yet.
        SpecError: Numbers are missing, absurd or without a source.
    """
    if Path(given).suffix in (".yaml", ".yml"):
        path = expanded(given)
    elif given in device_names():
        path = data_folder("devices") / f"{given}.yaml"
    elif given == HOST:
        path = host_path()
        if not path.is_file():
            raise UsageError(
                "This machine was not calibrated yet, so there is no device 'host'. "
                "Let it stand idle and run: hyflash-bench calibrate"
            )
    else:
        hint = "A YAML file of your own will do as well; devices/README.md says what it holds."
        raise UnknownName("device", given, [*device_names(), HOST], hint)
    return DeviceProfile.parse(read_yaml(path), where=f"device profile {path}")


def read_devices(given: Iterable[str]) -> list[DeviceProfile]:
    """Several profiles, each under a name of its own, by which tables tell them apart.

    Raises:
        UsageError: Two of them have the same name, or see :func:`read_device`.
    """
    profiles = [read_device(name) for name in given]
    names = [profile.name for profile in profiles]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"Two of the devices are called {name!r}. Keep one, or give your own profile another name."
            )
    return profiles


def _within(key: str, value: float, lowest: float, highest: float) -> None:
    if not lowest <= value <= highest:
        raise ValueError(f"{key} {value:.4g} is absurd; between {lowest:.3g} and {highest:.3g} is believed")
