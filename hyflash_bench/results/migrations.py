"""What older versions wrote, turned into what this one reads, in memory.

Whenever ``SCHEMA_VERSION`` rises to N, add ``migrate_to_N(kind, values)`` and its line in
:data:`MIGRATIONS`. A migration gets one manifest, trace or conversation as plain values and returns
the same thing one version later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from hyflash_bench.errors import DataError, SchemaTooNew
from hyflash_bench.results.records import SCHEMA_VERSION

__all__ = ["MIGRATIONS", "Kind", "Migration", "check_version", "migrate"]

Kind = Literal["manifest", "trace", "conversation"]
Migration = Callable[[Kind, dict[str, Any]], dict[str, Any]]


def migrate_to_2(kind: Kind, values: dict[str, Any]) -> dict[str, Any]:
    """What torch computes on was called device; that word now means a device profile."""
    if kind != "manifest":
        return values
    parts = {
        name: values[name] for name in ("request", "resolved", "target") if isinstance(values.get(name), dict)
    }
    return values | {name: _renamed(part, "device", "backend") for name, part in parts.items()}


def _renamed(values: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {new if key == old else key: value for key, value in values.items()}


MIGRATIONS: Mapping[int, Migration] = {2: migrate_to_2}


def check_version(version: Any, where: str, written_by: str = "") -> int:
    """The schema version, if this package can read it.

    Args:
        version: What the manifest says.
        where: The run, for messages.
        written_by: Version of the package that wrote it.

    Raises:
        SchemaTooNew: Written by a newer version of this package.
        DataError: Not a version, or one without a way here.
    """
    if not isinstance(version, int) or isinstance(version, bool):
        raise DataError(f"{where}: schema_version is {version!r}, not a whole number; restore the file.")
    if version > SCHEMA_VERSION:
        by = f" by hyflash-bench {written_by}" if written_by else ""
        raise SchemaTooNew(
            f"{where} was written{by} with schema {version}; this version reads up to "
            f"{SCHEMA_VERSION}. Upgrade hyflash-bench."
        )
    missing = [step for step in range(version + 1, SCHEMA_VERSION + 1) if step not in MIGRATIONS]
    if missing:
        raise DataError(
            f"{where} has schema {version}, from which there is no way to {SCHEMA_VERSION} "
            f"(no migration to {missing[0]}). Run the benchmark again."
        )
    return version


def migrate(kind: Kind, values: dict[str, Any], version: int) -> dict[str, Any]:
    """Apply, in order, every migration after ``version``."""
    for step in range(version + 1, SCHEMA_VERSION + 1):
        values = MIGRATIONS[step](kind, values)
    if kind == "manifest":
        values = {**values, "schema_version": SCHEMA_VERSION}
    return values
