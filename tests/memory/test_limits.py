"""Caps that the system enforces: real ones in processes of their own, cgroups and GPUs as stand-ins.

A folder with a cgroup's files shows what would be written where, not that a kernel obeys.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from hyflash_bench.errors import UsageError
from hyflash_bench.memory import limits
from hyflash_bench.memory.cgroup import VARIABLE, Cgroup, usable_parent
from hyflash_bench.memory.limits import EnforcedLimit, enforce, enforcement_available

MIB = 2**20
TIB = 2**40
KIND = enforcement_available()
can_limit = pytest.mark.skipif(
    KIND not in ("rlimit_data", "rlimit_as"), reason=f"this system has no resource limit that holds ({KIND})"
)

LIMITED = """
import json, platform, sys
if sys.argv[1] == "old": platform.release = lambda: "4.4.0-generic"
from hyflash_bench.memory.limits import enforce, enforcement_available
MIB = 2**20
held = bytearray(8 * MIB)
told = {"available": enforcement_available()}
limit = enforce(64 * MIB, held_bytes=8 * MIB)
told |= {"kind": limit.kind, "at_first": limit.used_bytes(), "torch": "torch" in sys.modules}
def fits(size):
    try: return bool(bytearray(size))
    except MemoryError: return False
told["fits"] = {size: fits(size * MIB) for size in (40, 50, 60, 80)}
more = bytearray(40 * MIB)
told |= {"then": limit.used_bytes(), "less_fits": fits(20 * MIB)}
limit.lift()
told["lifted"] = fits(200 * MIB)
limit.lay()
told["laid_again"] = fits(200 * MIB)
print(json.dumps(told))
"""


@pytest.fixture
def no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "usable_parent", lambda: None)


@can_limit
@pytest.mark.parametrize(("kernel", "kind"), [("own", KIND), ("old", "rlimit_as")])
def test_a_cap_holds_to_within_a_few_mib(kernel: str, kind: str) -> None:
    """What is held counts, what the program had before does not; nothing here needs torch."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, kernel], capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["available"] == told["kind"] == kind
    assert not told["torch"]
    assert told["at_first"] == 8 * MIB
    assert told["fits"] == {"40": True, "50": True, "60": False, "80": False}
    assert abs(told["then"] - 48 * MIB) < MIB
    assert not told["less_fits"]
    assert told["lifted"]
    assert not told["laid_again"]


@pytest.mark.parametrize(
    ("system", "release", "backend", "kind"),
    [
        ("linux", "6.1.0-9-amd64", "cpu", "rlimit_data"),
        ("linux", "4.7.0", "cpu", "rlimit_data"),
        ("linux", "4.4.0-210-generic", "cpu", "rlimit_as"),
        ("freebsd14", "14.0-RELEASE", "cpu", "rlimit_as"),
        ("darwin", "24.1.0", "cpu", None),
        ("win32", "11", "cpu", None),
        ("darwin", "24.1.0", "mps", "mps_fraction"),
        ("linux", "6.1.0", "cuda:1", "cuda_fraction"),
    ],
)
def test_each_system_has_its_way(
    no_groups: None,
    monkeypatch: pytest.MonkeyPatch,
    system: str,
    release: str,
    backend: str,
    kind: str | None,
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr("platform.release", lambda: release)
    assert enforcement_available(backend) == kind


def test_where_nothing_holds_the_message_offers_a_simulation(
    no_groups: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system that takes a limit and does not look at it is not believed, and left as it was."""
    resource = pytest.importorskip("resource")
    before = [resource.getrlimit(which) for which in (resource.RLIMIT_DATA, resource.RLIMIT_AS)]
    monkeypatch.setattr(EnforcedLimit, "holds", lambda self: False)
    with pytest.raises(UsageError, match=r"cannot be enforced on backend cpu .* --allow-simulated"):
        enforce(TIB)
    assert before == [resource.getrlimit(which) for which in (resource.RLIMIT_DATA, resource.RLIMIT_AS)]


# -- cgroups -----------------------------------------------------------------------------------


@pytest.fixture(params=["v2", "v1"])
def parent(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A group that was given to us."""
    if request.param == "v2":
        (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
        (tmp_path / "cgroup.subtree_control").write_text("memory\n")
    else:
        (tmp_path / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path


def group_in(parent: Path) -> Cgroup:
    """A group of our own; its files are there once the kernel has made the folder."""
    folder = parent / "hyflash-bench.77"
    folder.mkdir()
    is_v1 = (parent / "memory.limit_in_bytes").exists()
    files = (
        {"memory.limit_in_bytes": "0", "memory.memsw.limit_in_bytes": "0", "memory.usage_in_bytes": "5\n"}
        if is_v1
        else {"memory.max": "max", "memory.swap.max": "max", "memory.current": "5\n"}
    )
    for name, text in files.items():
        (folder / name).write_text(text)
    return Cgroup.around(77, parent)


def test_a_group_holds_one_process_and_its_limit(parent: Path) -> None:
    group = group_in(parent)
    assert (group.folder / "cgroup.procs").read_text() == "77\n"
    assert group.used_bytes == 5
    group.limit(4096)
    written = {file.name: file.read_text() for file in group.folder.iterdir()}
    if "memory.max" in written:
        assert (written["memory.max"], written["memory.swap.max"]) == ("4096", "0")
    else:
        assert written["memory.limit_in_bytes"] == written["memory.memsw.limit_in_bytes"] == "4096"


def test_a_kill_by_the_kernel_is_seen_and_so_is_the_peak(parent: Path) -> None:
    group = group_in(parent)
    assert (group.num_kills, group.peak_bytes) == (0, None)
    if (group.folder / "memory.max").exists():
        (group.folder / "memory.events").write_text("low 0\nhigh 0\nmax 31\noom 2\noom_kill 1\n")
        (group.folder / "memory.peak").write_text("4096\n")
    else:
        (group.folder / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
        (group.folder / "memory.max_usage_in_bytes").write_text("4096\n")
    assert (group.num_kills, group.peak_bytes) == (1, 4096)


def test_a_group_is_preferred_where_one_can_be_made(parent: Path) -> None:
    assert usable_parent() == parent
    if sys.platform == "linux":
        assert enforcement_available() == "cgroup"


def test_groups_that_are_not_ours_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Being able to write to a group does not make it ours: it has to be delegated or named."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr("hyflash_bench.memory.cgroup._attribute", lambda folder, name: None)
    assert usable_parent() is None
    monkeypatch.setattr("hyflash_bench.memory.cgroup._attribute", lambda folder, name: b"0")
    assert usable_parent() is None
    for named in (tmp_path, tmp_path / "absent"):  # no memory is counted in the one, the other is not there
        monkeypatch.setenv(VARIABLE, str(named))
        assert usable_parent() is None


def test_processes_make_room_before_memory_is_handed_down(tmp_path: Path) -> None:
    """Version 2: a group whose children count memory may hold no process itself."""
    (tmp_path / "cgroup.controllers").write_text("memory\n")
    (tmp_path / "cgroup.subtree_control").write_text("")
    (tmp_path / "cgroup.procs").write_text("41\n")
    Cgroup.around(77, tmp_path)
    assert (tmp_path / "hyflash-bench.main" / "cgroup.procs").read_text() == "41\n"
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"
    assert (tmp_path / "hyflash-bench.77" / "cgroup.procs").read_text() == "77\n"


@can_limit
def test_a_group_that_the_kernel_refuses_gives_way_to_a_resource_limit(parent: Path) -> None:
    (parent / f"hyflash-bench.{os.getpid()}" / "cgroup.procs").mkdir(parents=True)  # cannot be written
    assert enforcement_available() == "cgroup"
    limit = enforce(TIB)
    limit.lift()
    assert limit.kind == KIND


# -- GPUs --------------------------------------------------------------------------------------


class FakeAccelerator:
    """Torch's calls for the memory of a GPU of 80 MiB; none is here."""

    def __init__(self) -> None:
        self.set: list[tuple[float, ...]] = []
        self.cuda = types.SimpleNamespace(
            is_available=lambda: False,
            current_device=lambda: 3,
            memory_reserved=lambda gpu: 22 * MIB,
            max_memory_reserved=lambda gpu: 36 * MIB,
            get_device_properties=lambda gpu: types.SimpleNamespace(total_memory=80 * MIB),
            set_per_process_memory_fraction=lambda *given: self.set.append(given),
        )
        self.mps = types.SimpleNamespace(
            driver_allocated_memory=lambda: 24 * MIB,
            recommended_max_memory=lambda: 160 * MIB,
            set_per_process_memory_fraction=lambda *given: self.set.append(given),
        )

    @staticmethod
    def device(name: str) -> types.SimpleNamespace:
        _, separator, index = name.partition(":")
        return types.SimpleNamespace(index=int(index) if separator else None)


@pytest.mark.parametrize(
    ("backend", "set_to", "peak"),
    [
        ("cuda", (42 / 80, 3), 34 * MIB),  # 20 MiB of weights and 2 of slack are reserved; the cap is 40
        ("cuda:1", (42 / 80, 1), 34 * MIB),
        ("mps", (44 / 160,), None),
    ],
)
def test_a_gpus_fraction_is_the_cap_over_what_there_is(
    monkeypatch: pytest.MonkeyPatch, backend: str, set_to: tuple[float, ...], peak: int | None
) -> None:
    fake = FakeAccelerator()
    monkeypatch.setattr(limits, "_torch", lambda: fake)
    limit = enforce(40 * MIB, held_bytes=20 * MIB, backend=backend)
    assert fake.set == [pytest.approx(set_to)]
    assert limit.used_bytes() == 20 * MIB
    assert limit.peak_bytes() == peak
