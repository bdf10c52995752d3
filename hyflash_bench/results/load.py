"""Files of a run as records; strict, and the only place that meets old schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from hyflash_bench.errors import DataError, MissingDependency, SpecError
from hyflash_bench.results.layout import Layout
from hyflash_bench.results.lines import decode, read_lines
from hyflash_bench.results.migrations import Kind, check_version, migrate
from hyflash_bench.results.records import ConversationRecord, Manifest, TraceRecord
from hyflash_bench.spec.base import Spec

__all__ = ["parse_record", "read_conversations", "read_manifest", "read_traces", "stored_version"]

Record = TypeVar("Record", bound=Spec)


def parse_record(model: type[Record], values: dict[str, Any], where: str) -> Record:
    """Build a record from what a file holds.

    Raises:
        DataError: The values do not fit; with the place and every problem.
    """
    try:
        return model.parse(values, where)
    except SpecError as error:
        raise DataError(
            f"{error}. The file was changed by something else: restore it, or run again with --fresh."
        ) from None


def read_manifest(layout: Layout) -> Manifest:
    """The manifest in this version's schema.

    Raises:
        MissingDependency: There is no run in the folder.
        SchemaTooNew: Written by a newer version.
        DataError: The file is damaged.
    """
    values = _manifest_values(layout)
    version = _version(values, layout)
    return parse_record(Manifest, migrate("manifest", values, version), str(layout.manifest))


def stored_version(layout: Layout) -> int:
    """Schema version of the files on disk."""
    return _version(_manifest_values(layout), layout)


def read_traces(layout: Layout) -> dict[str, TraceRecord]:
    """Every trace by its id; a later line wins."""
    records = _records(TraceRecord, "trace", stored_version(layout), layout)
    return {record.trace_id: record for record in records}


def read_conversations(layout: Layout) -> dict[tuple[str, str], ConversationRecord]:
    """What became of each cell on each conversation; a later line wins."""
    records = _records(ConversationRecord, "conversation", stored_version(layout), layout)
    return {(record.cell_id, record.item_id): record for record in records}


def _records(model: type[Record], kind: Kind, version: int, layout: Layout) -> Iterator[Record]:
    path = layout.traces if kind == "trace" else layout.conversations
    for line in read_lines(path):
        yield parse_record(model, migrate(kind, line.value, version), f"{path}, line {line.number}")


def _manifest_values(layout: Layout) -> dict[str, Any]:
    try:
        text = layout.manifest.read_bytes()
    except FileNotFoundError:
        raise MissingDependency(
            f"No run in {layout.folder} (no {layout.manifest.name} there). Check the path."
        ) from None
    except OSError as error:
        raise DataError(f"{layout.manifest} cannot be read: {error.strerror or error}.") from None
    return decode(text, str(layout.manifest))


def _version(values: dict[str, Any], layout: Layout) -> int:
    written_by = str(values.get("package_version", ""))
    return check_version(values.get("schema_version"), str(layout.folder), written_by)
