"""A memory cgroup around one process (Linux): the kernel keeps the limit and ends who breaks it.

Groups are only made where somebody lets us: below the group of this process if it was delegated
(``systemd-run --user --scope -p Delegate=yes hyflash-bench run ...``), or below the one that
``HYFLASH_BENCH_CGROUP`` names. Source of files and rules: the kernel's admin guide (cgroup-v2,
cgroup-v1/memory) and systemd's rules for delegation.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

__all__ = ["VARIABLE", "Cgroup", "usable_parent"]

VARIABLE = "HYFLASH_BENCH_CGROUP"
"""Environment variable: folder of a cgroup below which this program may make its own."""

_ROOT = Path("/sys/fs/cgroup")
_DELEGATED = ("user.delegate", "trusted.delegate")
_LEAF = "hyflash-bench.main"


def usable_parent() -> Path | None:
    """The group below which one may be made for a worker, or None."""
    named = os.environ.get(VARIABLE)
    parent = Path(named) if named else _delegated()
    if parent is None or not os.access(parent, os.W_OK):
        return None
    return parent if _is_v1(parent) or "memory" in _words(parent / "cgroup.controllers") else None


@dataclass(frozen=True, slots=True)
class Cgroup:
    """A group of our own, with one process in it.

    Attributes:
        folder: Its files.
    """

    folder: Path

    @classmethod
    def around(cls, pid: int, parent: Path) -> Self:
        """Make a group and move a process into it; what the process holds already is not counted.

        Raises:
            OSError: The kernel does not let us.
        """
        if not _is_v1(parent):
            _hand_down_memory(parent)
        group = cls(parent / f"hyflash-bench.{pid}")
        group.folder.mkdir(exist_ok=True)
        try:
            (group.folder / "cgroup.procs").write_text(f"{pid}\n")
        except OSError:
            group.remove()
            raise
        return group

    @property
    def used_bytes(self) -> int:
        """Bytes charged to the group now."""
        return int(self._read("memory.current", "memory.usage_in_bytes") or 0)

    @property
    def peak_bytes(self) -> int | None:
        """Most bytes ever charged; before Linux 5.19 version 2 does not tell."""
        text = self._read("memory.peak", "memory.max_usage_in_bytes")
        return None if text is None else int(text)

    @property
    def num_kills(self) -> int:
        """Processes of the group that the kernel ended for want of memory."""
        lines = (self._read("memory.events", "memory.oom_control") or "").splitlines()
        counts = (line.split() for line in lines)
        return next((int(count) for name, count in counts if name == "oom_kill"), 0)

    def limit(self, num_bytes: int) -> None:
        """Lay a limit on the group; swap does not help.

        Raises:
            OSError: The kernel does not take it.
        """
        if _is_v1(self.folder):
            (self.folder / "memory.limit_in_bytes").write_text(str(num_bytes))
            swap, most = self.folder / "memory.memsw.limit_in_bytes", num_bytes
        else:
            (self.folder / "memory.max").write_text(str(num_bytes))
            swap, most = self.folder / "memory.swap.max", 0
        with suppress(OSError):  # a kernel that does not count swap
            if swap.exists():
                swap.write_text(str(most))

    def remove(self) -> None:
        """Remove the group once its process is gone."""
        with suppress(OSError):
            self.folder.rmdir()

    def _read(self, *names: str) -> str | None:
        for name in names:
            with suppress(OSError):
                return (self.folder / name).read_text().strip()
        return None


def _delegated() -> Path | None:
    """This process's own group (version 2), if whoever made it gave it away."""
    with suppress(OSError):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        own = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
        if own is not None and any(_attribute(_ROOT / own, name) == b"1" for name in _DELEGATED):
            return _ROOT / own
    return None


def _attribute(folder: Path, name: str) -> bytes | None:
    read = getattr(os, "getxattr", None)
    if read is None:
        return None
    with suppress(OSError):
        return bytes(read(folder, name))
    return None


def _hand_down_memory(parent: Path) -> None:
    """Let groups below count memory; a group that does so may hold no process itself.

    Raises:
        OSError: The kernel does not let us.
    """
    control = parent / "cgroup.subtree_control"
    if "memory" in _words(control):
        return
    leaf = parent / _LEAF
    leaf.mkdir(exist_ok=True)
    for pid in _words(parent / "cgroup.procs"):
        with suppress(ProcessLookupError):  # it has ended meanwhile
            (leaf / "cgroup.procs").write_text(f"{pid}\n")
    control.write_text("+memory")


def _is_v1(folder: Path) -> bool:
    return (folder / "memory.limit_in_bytes").exists()


def _words(file: Path) -> list[str]:
    with suppress(OSError):
        return file.read_text().split()
    return []
