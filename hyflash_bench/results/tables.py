"""Parquet copies of the frames, used while they are as new as the lines they were made from."""

from __future__ import annotations

import hashlib
import json
from io import BytesIO
from typing import TYPE_CHECKING, Any

from hyflash_bench.atomic import replacing, write_text
from hyflash_bench.errors import DataError
from hyflash_bench.results.frames import build_table
from hyflash_bench.results.layout import Layout
from hyflash_bench.results.load import read_conversations, read_manifest, read_traces
from hyflash_bench.results.records import SCHEMA_VERSION
from hyflash_bench.results.run_records import RunRecords
from hyflash_bench.results.schema import TABLES, TABLES_VERSION, conform

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["are_fresh", "read_records", "read_table", "write_tables"]

_SHA256 = "tables_sha256"


def read_records(layout: Layout) -> RunRecords:
    """Everything the folder says, checked.

    Raises:
        DataError: A file is damaged, or written by a newer version.
    """
    return RunRecords(read_manifest(layout), read_traces(layout), read_conversations(layout))


def write_tables(layout: Layout) -> None:
    """Make every Parquet file from the lines.

    Raises:
        DataError: A line is damaged, or the disk is full.
    """
    stamp = _stamp(layout)
    records = read_records(layout)
    for name in TABLES:
        with replacing(layout.table(name)) as temporary:
            build_table(name, records).to_parquet(temporary, index=False)
            stamp[_SHA256][name] = hashlib.sha256(temporary.read_bytes()).hexdigest()
    # Last, so that a crash in between leaves tables that nobody trusts.
    write_text(layout.stamp, json.dumps(stamp, indent=2) + "\n")


def read_table(name: str, layout: Layout) -> pd.DataFrame:
    """One stored table; only to be trusted when :func:`are_fresh`.

    Raises:
        DataError: The file is not the one that was written.
    """
    import pandas as pd

    stored = layout.table(name).read_bytes()
    if hashlib.sha256(stored).hexdigest() != json.loads(layout.stamp.read_text("utf-8"))[_SHA256][name]:
        raise DataError(f"{layout.table(name)} was changed since it was made.")
    frame = pd.read_parquet(BytesIO(stored))
    return conform(name, {str(column): frame[column] for column in frame})


def are_fresh(layout: Layout) -> bool:
    """Whether every table is there, of this version, and newer than the lines it was made from."""
    try:
        stored = json.loads(layout.stamp.read_text(encoding="utf-8"))
        written = min(layout.table(name).stat().st_mtime_ns for name in TABLES)
        changed = max(path.stat().st_mtime_ns for path in layout.sources if path.exists())
    except (OSError, ValueError):
        return False
    return isinstance(stored, dict) and stored | {_SHA256: {}} == _stamp(layout) and written >= changed


def _stamp(layout: Layout) -> dict[str, Any]:
    """What the tables depend on; the lines only grow, so their length tells them apart."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tables_version": TABLES_VERSION,
        "manifest_sha256": hashlib.sha256(layout.manifest.read_bytes()).hexdigest(),
        "traces_bytes": layout.traces.stat().st_size if layout.traces.exists() else 0,
        "conversations_bytes": (layout.conversations.stat().st_size if layout.conversations.exists() else 0),
        _SHA256: {},  # of the tables, by name, once they are there
    }
