"""Continuing a run: what may change between two commands, and what may not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hyflash_bench.errors import UsageError
from hyflash_bench.results.records import CellRecord, Manifest

__all__ = ["VOLATILE", "differences", "merge_manifests", "mixed_limits"]

VOLATILE = frozenset(
    {
        "available_memory_bytes",
        "busy_share",
        "command",
        "cpu_frequency_hz",
        "cwd",
        "date",
        "folder",
        "free_disk_bytes",
        "free_memory_bytes",
        "git",
        "hostname",
        "load",
        "load_average",
        "path",
        "pid",
        "temperature",
        "time",
        "uptime_s",
        "user",
        "warnings",
    }
)
"""Facts of the moment, at any depth; the same machine with the same software may differ in them."""

_SAME_MEMORY = 0.02
"""Relative: what a system keeps for itself of its memory changes with every kernel and boot."""

_LATER_FACTS = frozenset({"vector_units"})
"""Not told by every version that wrote runs; a description without one says nothing against another."""

# The same target may be asked for by another name, or with longer contexts allowed.
_TARGET_IDENTITY = ("fingerprint", "dtype", "kv_dtype", "backend", "attention")


def merge_manifests(stored: Manifest, new: Manifest) -> Manifest:
    """The manifest of a continued run: old and new cells, the new request, the old birthday.

    Raises:
        UsageError: The target or the environment is another one, so the numbers cannot be mixed.
    """
    changed = [
        *differences("target", _identity(stored.target), _identity(new.target)),
        *differences("environment", stored.environment, new.environment),
    ]
    if changed:
        raise UsageError(
            f"Run {stored.run_id} was started under other conditions: {'; '.join(changed)}. "
            "Its numbers cannot be continued here. Add --fresh to discard it and start over, "
            "or give another --output-path."
        )
    cells = {cell.cell_id: cell for cell in (*stored.cells, *new.cells)}
    suites = {suite.get("suite_hash"): suite for suite in (*stored.suites, *new.suites)}
    devices = {device.get("name"): device for device in (*stored.devices, *new.devices)}
    return new.model_copy(
        update={
            "run_id": stored.run_id,
            "created_at": stored.created_at,
            "earlier_commands": _earlier_commands(stored, new),
            "target": new.target or stored.target,
            "environment": new.environment or stored.environment,
            "networks": {**stored.networks, **new.networks},
            "cells": list(cells.values()),
            "suites": list(suites.values()),
            "devices": list(devices.values()),
            "imported": [*(one for one in stored.imported if one not in new.imported), *new.imported],
        }
    )


def mixed_limits(cells: Iterable[CellRecord]) -> list[str]:
    """Which limits differ within a task, as ``quick/chat: max_new_tokens 4, 8``.

    Such rows stand side by side in tables, though they are no comparison.
    """
    found: dict[tuple[str, str], set[int]] = {}
    for cell in cells:
        for name in ("max_new_tokens", "draft_budget"):
            if (limit := getattr(cell, name)) is not None:
                found.setdefault((f"{cell.suite}/{cell.task}", name), set()).add(limit)
    return [
        f"{task}: {name} {', '.join(map(str, sorted(limits)))}"
        for (task, name), limits in found.items()
        if len(limits) > 1
    ]


def _earlier_commands(stored: Manifest, new: Manifest) -> list[list[str]]:
    known = [*stored.earlier_commands, *([stored.command] if stored.command else [])]
    return [command for index, command in enumerate(known) if command not in (new.command, *known[:index])]


def differences(name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> list[str]:
    """What differs between two descriptions, as ``name.key was OLD, is NEW``.

    Facts of the moment and load times (:data:`VOLATILE`, ``*_s``) are left out, memory counts as the
    same within 2 %, and nothing differs from a description that was never taken.
    """
    if not old or not new:
        return []
    was, now = dict(_leaves(old)), dict(_leaves(new))
    keys = sorted(was.keys() | now.keys())
    return [
        f"{name}.{key} was {_show(was, key)}, is {_show(now, key)}"
        for key in keys
        if not _is_same(key, was, now)
    ]


def _is_same(key: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    if key in _LATER_FACTS and not (key in was and key in now):
        return True
    one, other = was.get(key, "absent"), now.get(key, "absent")
    if key == "memory_bytes" and isinstance(one, int) and isinstance(other, int):
        return math.isclose(one, other, rel_tol=_SAME_MEMORY)
    return bool(one == other)


def _identity(target: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: target[key] for key in _TARGET_IDENTITY if key in target} if target else {}


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if key in VOLATILE or key.endswith("_s"):
            continue
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", list(value) if isinstance(value, tuple) else value


def _show(values: Mapping[str, Any], key: str) -> str:
    return repr(values[key]) if key in values else "absent"
