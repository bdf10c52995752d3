"""Device profiles: what a class of device can hold and how fast it is, with a source for every number."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from hyflash_bench.data import data_folder
from hyflash_bench.errors import SpecError, UnknownName
from hyflash_bench.spec.base import Spec
from hyflash_bench.spec.units import format_bytes, parse_bytes
from hyflash_bench.spec.yaml import read_yaml

__all__ = ["Compute", "DeviceProfile", "Known", "Size", "device_names", "read_device"]

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

    def sourced(self) -> dict[str, Size | Known]:
        """Every number by its key, for tables of sources."""
        peaks = {f"compute_flop_per_s.{name}": peak for name, peak in self.compute_flop_per_s.items()}
        return {key: value for key, value in self if isinstance(value, Size | Known)} | peaks


def device_names() -> list[str]:
    """Names of the profiles that come with the package."""
    return sorted(path.stem for path in data_folder("devices").glob("*.yaml"))


def read_device(given: str) -> DeviceProfile:
    """A profile by its name, or from a YAML file.

    Args:
        given: Name of a shipped profile, or path of a file that ends in .yaml or .yml.

    Raises:
        UnknownName: Neither; the nearest name is offered.
        UsageError: There is no such file.
        SpecError: Numbers are missing, absurd or without a source.
    """
    if Path(given).suffix in (".yaml", ".yml"):
        path = Path(given).expanduser()
    elif given in device_names():
        path = data_folder("devices") / f"{given}.yaml"
    else:
        hint = "A YAML file of your own will do as well; devices/README.md says what it holds."
        raise UnknownName("device", given, device_names(), hint)
    return DeviceProfile.parse(read_yaml(path), where=f"device profile {path}")


def _within(key: str, value: float, lowest: float, highest: float) -> None:
    if not lowest <= value <= highest:
        raise ValueError(f"{key} {value:.4g} is absurd; between {lowest:.3g} and {highest:.3g} is believed")
