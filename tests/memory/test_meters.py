"""Meters of process and GPU. The GPU here is a stand-in with NVML's documented functions."""

# ruff: noqa: N802 - the stand-in has the library's names

from __future__ import annotations

import sys
import threading
import types

import pytest

from hyflash_bench.memory.meters import COST, PERIOD_S, Looking, Meter
from hyflash_bench.memory.nvml import GpuCounters, visible_devices

KEYS = {
    "process_rss", "process_peak_rss", "process_pss", "cuda_allocated_peak", "cuda_reserved_peak",
    "nvml_used", "nvml_power_w", "nvml_energy_j",
}  # fmt: skip
MIB = 2**20
UUIDS = ("GPU-aaaa1111-0000", "GPU-aaaa2222-0000", "GPU-bbbb3333-0000")
SLICES = {"MIG-cccc4444-0000": 10, "MIG-cccc5555-0000": 20}


class FakeNvml(types.ModuleType):
    """Three GPUs; the last one is cut into two slices, and the second has no energy counter.

    Stands in for the functions of ``pynvml`` that the package calls, with their documented answers;
    it says nothing about a real driver.
    """

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.millijoules = dict.fromkeys(UUIDS, 5_000)
        self.num_open = 0
        self.has_driver = True

    def nvmlInit(self) -> None:
        if not self.has_driver:
            raise self.NVMLError("Driver Not Loaded")
        self.num_open += 1

    def nvmlShutdown(self) -> None:
        self.num_open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(UUIDS)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return UUIDS[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid not in (*UUIDS, *SLICES):
            raise self.NVMLError("Not Found")
        return uuid

    def nvmlDeviceGetUUID(self, handle: str) -> bytes | str:
        return handle.encode() if handle == UUIDS[0] else handle  # older versions answer in bytes

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: str) -> int:
        if handle != UUIDS[2]:
            raise self.NVMLError("Not Supported")
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, index: int) -> str:
        if index >= len(SLICES):
            raise self.NVMLError("Not Found")
        return list(SLICES)[index]

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> types.SimpleNamespace:
        sizes = {uuid: number for number, uuid in enumerate(UUIDS)} | SLICES
        return types.SimpleNamespace(used=sizes[handle] * MIB)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        if handle in SLICES or handle == UUIDS[1]:
            raise self.NVMLError("Not Supported")
        return self.millijoules[handle]

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        if handle in SLICES:
            raise self.NVMLError("Not Supported")
        return 70_000


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        (None, ("0", "1", "2")),
        ("", ()),
        ("2,1", ("2", "1")),
        (" 1 , 0 ", ("1", "0")),
        ("0,2,-1,1", ("0", "2")),
        ("0,7,1", ("0",)),
        ("1,1", ()),
        ("GPU-aaaa2222,GPU-bbbb", ("GPU-aaaa2222", "GPU-bbbb")),
        ("MIG-cccc5555-0000", ("MIG-cccc5555-0000",)),
        ("MIG-GPU-bbbb3333-0000/1/0", ("MIG-GPU-bbbb3333-0000/1/0",)),
        ("NoDevFiles", ()),
    ],
)
def test_devices_are_shown_as_cuda_shows_them(setting: str | None, shown: tuple[str, ...]) -> None:
    assert visible_devices(setting, 3) == shown


@pytest.mark.parametrize(
    ("setting", "index", "used"),
    [
        (None, 1, 1),
        ("2,1", 0, 2),
        ("2,1", 1, 1),
        ("GPU-aaaa2222-0000", 0, 1),
        ("GPU-bbbb", 0, 2),
        ("MIG-cccc5555-0000", 0, 20),
        ("MIG-cccc4444,MIG-cccc5555", 1, 20),
        ("GPU-aaaa", 0, None),  # begins two names
        ("GPU-ffff", 0, None),
        ("2", 1, None),
        ("", 0, None),
    ],
)
def test_the_right_device_is_read(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, setting: str | None, index: int, used: int | None
) -> None:
    if setting is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    with GpuCounters(index) as gpu:
        assert gpu.used_bytes() == (None if used is None else used * MIB)
        assert gpu.is_there == (used is not None)
    assert nvml.num_open == 0
    assert gpu.used_bytes() is None, "closed"


@pytest.mark.parametrize(("uuid", "used"), [("aaaa2222-0000", 1), ("cccc4444-0000", 10), ("eeee", None)])
def test_what_cuda_says_itself_goes_before_the_environment(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, uuid: str, used: int | None
) -> None:
    """CUDA's order need not be NVML's; a name is a name."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with GpuCounters(0, uuid) as gpu:
        assert gpu.used_bytes() == (None if used is None else used * MIB)


def test_a_counter_that_a_device_lacks_is_not_measured(nvml: FakeNvml) -> None:
    with GpuCounters(0) as whole, GpuCounters(1) as old, GpuCounters(uuid="cccc4444-0000") as part:
        assert (whole.energy_j(), whole.power_w()) == (5.0, 70.0)
        assert (old.energy_j(), old.power_w()) == (None, 70.0)
        assert (part.energy_j(), part.power_w()) == (None, None)


def test_without_a_driver_or_the_library_nothing_is_measured(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml.has_driver = False
    with GpuCounters() as gpu:
        assert (gpu.used_bytes(), gpu.energy_j(), gpu.power_w()) == (None, None, None)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with GpuCounters() as gpu:
        assert not gpu.is_there


def test_what_is_not_there_is_null() -> None:
    with Meter() as meter:
        readings = meter.readings()
    assert set(readings) == KEYS
    assert all(readings[name] is None for name in KEYS if name.startswith(("cuda", "nvml")))
    assert readings["process_rss"]


def test_a_peak_is_seen_and_forgotten_on_reset() -> None:
    with Meter() as meter:
        before = meter.readings()["process_peak_rss"]
        block = bytearray(b"x") * (96 * MIB)
        held = meter.readings()
        del block
        after = meter.readings()
        meter.reset()
        again = meter.readings()
    assert held["process_rss"] >= before + 80 * MIB
    assert after["process_peak_rss"] >= held["process_rss"]
    assert after["process_rss"] <= held["process_rss"] - 80 * MIB
    assert again["process_peak_rss"] <= after["process_peak_rss"] - 80 * MIB


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts shared pages by their share")
def test_pss_is_at_most_rss() -> None:
    with Meter() as meter:
        readings = meter.readings()
    assert 0 < readings["process_pss"] <= readings["process_rss"] * 1.05  # read one after the other


class FakeCuda:
    """Torch's allocator as the meter asks it; no GPU is behind it."""

    def __init__(self) -> None:
        self.num_resets = 0
        self.index, self.uuid = 0, "bbbb3333-0000"

    def reset(self) -> None:
        self.num_resets += 1

    def peaks(self) -> tuple[int, int]:
        return 3, 4


def test_a_gpus_counters_stand_beside_the_process(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda()
    monkeypatch.setattr("hyflash_bench.memory.meters._Cuda", lambda backend: cuda)
    with Meter("cuda") as meter:
        nvml.millijoules[UUIDS[2]] += 2_500
        readings = meter.readings()
        meter.reset()
        again = meter.readings()
    assert (readings["cuda_allocated_peak"], readings["cuda_reserved_peak"]) == (3, 4)
    assert (readings["nvml_used"], readings["nvml_energy_j"]) == (2 * MIB, 2.5)
    assert again["nvml_energy_j"] == 0.0
    assert cuda.num_resets == 2


def test_power_stands_in_for_a_missing_energy_counter(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = FakeCuda()
    cuda.uuid = "aaaa2222-0000"
    monkeypatch.setattr("hyflash_bench.memory.meters._Cuda", lambda backend: cuda)
    times = iter([10.0, 12.0])
    with Meter("cuda", period_s=60.0) as meter:
        monkeypatch.setattr(
            "hyflash_bench.memory.meters.time", types.SimpleNamespace(perf_counter=lambda: next(times))
        )
        meter.reset()
        readings = meter.readings()
    assert (readings["nvml_power_w"], readings["nvml_energy_j"]) == pytest.approx((70.0, 140.0))


def clocked(monkeypatch: pytest.MonkeyPatch, look_s: float) -> list[float | None]:
    """The waits between five looks that take so long by a clock of their own; nothing is waited for."""
    now = [0.0]
    waits: list[float | None] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout)
            return len(waits) > 5

    def tick() -> float:
        now[0] += look_s
        return now[0]

    threads = types.SimpleNamespace(Event=Stop, Thread=threading.Thread, stack_size=threading.stack_size)
    monkeypatch.setattr("hyflash_bench.memory.meters.threading", threads)
    monkeypatch.setattr("hyflash_bench.memory.meters.time", types.SimpleNamespace(thread_time=tick))
    return waits


@pytest.mark.parametrize(("look_s", "period_s"), [(1e-6, PERIOD_S), (0.001, 0.001 / COST)])
def test_looking_never_takes_more_than_its_share(
    monkeypatch: pytest.MonkeyPatch, look_s: float, period_s: float
) -> None:
    """A look that takes long is taken less often."""
    waits = clocked(monkeypatch, look_s)
    with Looking(lambda: None) as looking:
        pass
    assert waits[0] == PERIOD_S
    assert waits[1:] == pytest.approx([period_s] * 5)
    assert looking.num_looks == 5
    assert looking.busy_s == pytest.approx(5 * look_s)


def test_a_look_that_gets_no_memory_is_not_the_last_one() -> None:
    """Under a cap the meter itself may be refused."""
    seen = threading.Semaphore(0)

    def look() -> None:
        seen.release()
        raise MemoryError

    with Looking(look, period_s=0.001):
        assert seen.acquire(timeout=30)
        assert seen.acquire(timeout=30)
