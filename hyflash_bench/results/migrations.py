"""What older versions wrote, turned into what this one reads, in memory.

Whenever ``SCHEMA_VERSION`` rises to N, add ``migrate_to_N(kind, values)`` and its line in
:data:`MIGRATIONS`. A migration gets one manifest, trace or conversation as plain values and returns
the same thing one version later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
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


def migrate_to_3(kind: Kind, values: dict[str, Any]) -> dict[str, Any]:
    """Other columns were added, so they are absent; the sums of the ledger's columns are taken apart."""
    if kind != "conversation":
        return values
    # What does not look like a turn is left for the reader to refuse, with its place.
    with suppress(AttributeError, IndexError, KeyError, TypeError, ValueError):
        dropped_in = values.get("policy_turn")
        turns = [
            turn | {"steps": _taken_apart(turn, is_whole=turn["turn"] != dropped_in)}
            for turn in values["turns"]
        ]
        return values | {"turns": turns}
    return values


def _taken_apart(turn: dict[str, Any], *, is_whole: bool) -> dict[str, Any]:
    """Steps whose ledger has a column for each part, where the parts follow from what was stored.

    Logits and features were stored at their highest, that of the longest draft, and are proportional to
    the rows of a pass; the workspace is what is left. A turn in which a policy changed its drafts does not
    say how long they were.
    """
    steps = dict(turn["steps"])
    total, during, _ = (steps.pop(name, None) for name in ("ledger_bytes", "pass_bytes", "drafter_bytes"))
    if not total or not is_whole:
        return steps
    memory, rows = turn["memory"], [1 + drafted for drafted in steps["drafted"]]
    context = turn["context_length"] + steps["committed"][0]
    row_bytes = {
        "logits_bytes": memory["logits"] // max(rows),
        "features_bytes": memory["features"] // max(rows),
    }
    parts = {name: [size * count for count in rows] for name, size in row_bytes.items()}
    dropped = [count - kept for count, kept in zip(rows, steps["committed"], strict=True)]
    parts["rejected_kv_bytes"] = [count * (steps["target_kv_bytes"][0] // context) for count in dropped]
    known = [sum(step) for step in zip(*parts.values(), strict=True)]
    parts["workspace_bytes"] = [whole - part for whole, part in zip(during, known, strict=True)]
    weights = memory.get("target_weights_simulated", memory.get("target_weights"))
    fixed = {"target_weights_bytes": weights, "drafter_weights_bytes": memory["drafter_weights"]}
    return steps | parts | {name: [size] * len(rows) for name, size in fixed.items()}


def _renamed(values: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {new if key == old else key: value for key, value in values.items()}


MIGRATIONS: Mapping[int, Migration] = {2: migrate_to_2, 3: migrate_to_3}


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
