"""Device profiles: strict, sourced, and found by name or path."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from hyflash_bench.errors import SpecError, UnknownName, UsageError
from hyflash_bench.spec.device import DeviceProfile, device_names, host_path, read_device, read_devices
from hyflash_bench.spec.yaml import dump_yaml


def known(value: Any) -> dict[str, Any]:
    return {"value": value, "basis": "assumption", "source": "made up for a test"}


GOOD: dict[str, Any] = {
    "name": "toaster",
    "title": "A toaster",
    "kind": "board",
    "memory_total": known("2GiB"),
    "memory_usable": known("1GiB"),
    "bandwidth_bytes_per_s": known(4e9),
    "bandwidth_reached": known(0.5),
    "compute_flop_per_s": {"float32": known(8e9), "float16": known(1.6e10)},
    "compute_reached": known(0.25),
    "overhead_s": known(0.001),
    "overhead_layer_s": known(0.0001),
}


def changed(path: str, value: Any) -> dict[str, Any]:
    values = copy.deepcopy(GOOD)
    inner = values
    *parents, last = path.split(".")
    for key in parents:
        inner = inner[key]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return values


@pytest.mark.parametrize("name", device_names())
def test_every_shipped_profile_loads_and_names_its_sources(name: str):
    profile = read_device(name)
    assert profile.name == name
    for number in profile.sourced().values():
        assert number.source
        assert number.basis in ("published", "derived", "assumption")
    published = [number for number in profile.sourced().values() if number.basis == "published"]
    assert all("http" in number.source for number in published)
    assert profile.memory_usable.value < profile.memory_total.value


def test_the_classes_people_ask_for_are_there():
    kinds = {name: read_device(name).kind for name in device_names()}
    assert list(kinds.values()).count("phone") >= 3
    assert {"board", "laptop", "gpu"} <= set(kinds.values())
    assert "raspberry-pi-5-8gb" in kinds


def test_rates_are_peaks_times_what_is_reached():
    profile = DeviceProfile.parse(GOOD, "test")
    assert profile.bandwidth == 2e9
    assert profile.compute("float16") == 4e9


@pytest.mark.parametrize(("asked", "peak"), [("int8", 1.6e10), ("bfloat16", 8e9), ("float32", 8e9)])
def test_precisions_without_a_number_fall_back(asked: Any, peak: float):
    assert DeviceProfile.parse(GOOD, "test").compute(asked) == peak * 0.25


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("memory_total", None, "'memory_total' is missing"),
        ("memory_total.source", None, "'memory_total.source' is missing"),
        ("memory_total.source", "?", "at least 8 characters"),
        ("memory_total.basis", "guess", "published"),
        ("memory_total.value", "8", "memory_total.value.*number with a unit"),
        ("memory_total.value", 8, "needs a unit"),
        ("memory_usable.value", "3GiB", "memory_usable 3 GiB exceeds memory_total 2 GiB"),
        ("bandwidth_bytes_per_s.value", 17.1, "bandwidth_bytes_per_s 17.1 is absurd"),
        ("bandwidth_bytes_per_s.value", True, "write a number"),
        ("bandwidth_bytes_per_s.value", float("nan"), "finite number"),
        ("bandwidth_reached.value", 70, "at most 1"),
        ("compute_reached.value", 0, "greater than 0"),
        ("compute_flop_per_s.float32", None, "lacks float32"),
        ("compute_flop_per_s.float64", {"value": 1}, "compute_flop_per_s.float64"),
        ("overhead_s.value", 60, "overhead_s 60 is absurd"),
        ("name", "My Toaster", "name"),
        ("colour", "red", "unknown key 'colour'"),
    ],
)
def test_what_is_wrong_is_said(path: str, value: Any, message: str):
    with pytest.raises(SpecError, match=message):
        DeviceProfile.parse(changed(path, value), "test")


RATES = {**known(None), "flop_per_byte": [0.5, 8.0], "flop_per_s": [1e9, 9e9]}
del RATES["value"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"flop_per_byte": [0.5]}, "at least 2 needed"),
        ({"flop_per_byte": [8.0, 0.5]}, "flop_per_byte must ascend"),
        ({"flop_per_s": [1e9, 2e9, 3e9]}, "2 flop_per_byte and 3 flop_per_s"),
        ({"flop_per_s": [1.0, 2e9]}, "flop_per_s 1 is absurd"),
        ({"flop_per_s": [-1.0, 2e9]}, "greater than 0"),
        ({"source": ""}, "at least 8 characters"),
    ],
)
def test_what_is_wrong_with_measured_rates_is_said(change: dict[str, Any], message: str):
    fine = DeviceProfile.parse({**GOOD, "product_rates": {"float32": RATES}}, "test")
    assert fine.sourced()["product_rates.float32"].basis == "assumption"
    with pytest.raises(SpecError, match=message):
        DeviceProfile.parse({**GOOD, "product_rates": {"float32": {**RATES, **change}}}, "test")


def test_measured_seconds_may_not_be_absurd():
    for key, value in (("operator_s", known(1.0)), ("routine_s", {"suffix.draft": known(100.0)})):
        with pytest.raises(SpecError, match="is absurd"):
            DeviceProfile.parse({**GOOD, key: value}, "test")


def test_the_host_has_to_be_calibrated_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HYFLASH_BENCH_CACHE", str(tmp_path))
    with pytest.raises(UsageError, match="hyflash-bench calibrate"):
        read_device("host")
    host_path().parent.mkdir()
    host_path().write_text(dump_yaml({**GOOD, "name": "host", "kind": "host"}))
    assert read_device("host").kind == "host"


def test_a_profile_of_ones_own_is_read_by_its_path(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text(dump_yaml(GOOD))
    assert read_device(str(path)).title == "A toaster"
    with pytest.raises(UsageError, match="No file"):
        read_device(str(tmp_path / "other.yaml"))


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(UnknownName, match=r"Did you mean 'iphone-15-pro'\?.*YAML file of your own"):
        read_device("iphone-15")


def test_two_profiles_of_one_name_cannot_be_told_apart(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text(dump_yaml({**GOOD, "name": "h200"}))
    assert [device.name for device in read_devices(["h200", "iphone-15-pro"])] == ["h200", "iphone-15-pro"]
    with pytest.raises(UsageError, match="called 'h200'"):
        read_devices(["h200", str(path)])
