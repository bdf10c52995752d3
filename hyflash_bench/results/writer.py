"""Writing a run so that a crash, a full disk or a second process cannot spoil what is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from filelock import FileLock, Timeout

from hyflash_bench.atomic import write_error, write_text
from hyflash_bench.errors import RunLocked, UsageError
from hyflash_bench.results.layout import Layout
from hyflash_bench.results.lines import LineFile, encode, read_line_at, read_lines
from hyflash_bench.results.load import parse_record, read_manifest, stored_version
from hyflash_bench.results.merge import merge_manifests
from hyflash_bench.results.records import (
    SCHEMA_VERSION,
    ConversationRecord,
    LikelihoodRecord,
    Manifest,
    TraceRecord,
)
from hyflash_bench.results.schema import TABLES
from hyflash_bench.spec.base import Spec

__all__ = ["FINAL_STATUSES", "RecordIndex", "RunWriter"]

Key = TypeVar("Key")
Record = TypeVar("Record", bound=Spec)

FINAL_STATUSES = frozenset({"ok", "incompatible", "oom", "mismatch"})
"""States that running again would not change; error, timeout and interrupted are tried again."""


class RunWriter:
    """The one process that may write to a run folder; a context manager. Any of its threads may append.

    A run that was begun before is continued: torn last lines are cut off, :meth:`finished` says
    what need not be done again, and :meth:`write_manifest` unites the cells.
    """

    def __init__(self, folder: Path | str, *, fresh: bool = False) -> None:
        """Open the run, making the folder if needed.

        Args:
            folder: The run folder, ``results/<run_id>``.
            fresh: Discard what a former run left in it.

        Raises:
            RunLocked: Another process writes to it.
            UsageError: The folder holds other things than a run, or a run of an older schema.
            SchemaTooNew: A newer version wrote it.
            DataError: The folder cannot be written, or a file in it is damaged.
        """
        self.layout = Layout(Path(folder))
        self._appending = Lock()
        if self.layout.is_foreign:
            raise UsageError(
                f"{folder} is not empty and holds no run. Give an --output-path that is new, "
                "empty or a former run."
            )
        with ExitStack() as opened:
            opened.callback(_locked(self.layout).release)
            if fresh:
                _discard(self.layout)
            _refuse_other_schema(self.layout)
            self._trace_lines = LineFile(self.layout.traces)
            opened.callback(self._trace_lines.close)
            self._conversation_lines = LineFile(self.layout.conversations)
            opened.callback(self._conversation_lines.close)
            self._traces = RecordIndex(TraceRecord, self.layout.traces, lambda line: str(line["trace_id"]))
            self._status = {
                (line.value["cell_id"], line.value["item_id"]): line.value["status"]
                for line in read_lines(self.layout.conversations)
            }
            self._opened = opened.pop_all()

    def write_manifest(self, manifest: Manifest) -> Manifest:
        """Replace the manifest in one go; returns it as written, united with a former run's.

        Raises:
            UsageError: The former run had another target or environment.
            DataError: The disk is full; the former manifest is untouched.
        """
        if self.layout.is_run:
            manifest = merge_manifests(read_manifest(self.layout), manifest)
        write_text(self.layout.manifest, encode(manifest, indent=2) + "\n")
        return manifest

    def append_trace(self, trace: TraceRecord) -> None:
        """Store what the target said; on disk when this returns.

        Raises:
            DataError: NaN or infinity in the record, or the disk is full.
        """
        with self._appending:
            self._traces.add(trace.trace_id, self._trace_lines.append(trace))

    def append_conversation(self, conversation: ConversationRecord) -> None:
        """Store what became of a cell on a conversation; on disk when this returns.

        Raises:
            DataError: NaN or infinity in the record, or the disk is full.
        """
        with self._appending:
            self._conversation_lines.append(conversation)
            self._status[conversation.cell_id, conversation.item_id] = conversation.status

    def append_likelihoods(self, likelihoods: LikelihoodRecord) -> None:
        """Store what the target thinks of given texts; on disk when this returns.

        Raises:
            DataError: NaN or infinity in the record, or the disk is full.
        """
        with self._appending:
            self._likelihood_lines.append(likelihoods)

    def finished(self) -> set[tuple[str, str]]:
        """Pairs of cell and item that need not run again (:data:`FINAL_STATUSES`)."""
        return {pair for pair, status in self._status.items() if status in FINAL_STATUSES}

    def traces(self) -> Mapping[str, TraceRecord]:
        """Stored traces by id, each read from disk when it is asked for."""
        return self._traces

    def conversations(self) -> Mapping[tuple[str, str], ConversationRecord]:
        """What was stored by now of each cell on each item, read from disk when it is asked for."""
        return RecordIndex(
            ConversationRecord,
            self.layout.conversations,
            lambda line: (str(line["cell_id"]), str(line["item_id"])),
        )

    def likelihoods(self) -> Iterator[LikelihoodRecord]:
        """What was stored of given texts; of equal keys a later one wins."""
        path = self.layout.likelihoods
        for line in read_lines(path):
            yield parse_record(LikelihoodRecord, line.value, f"{path}, line {line.number}")

    def write_tables(self) -> None:
        """Make the Parquet files from the lines; they can be deleted and made again at will.

        Raises:
            DataError: A line is damaged, or the disk is full.
        """
        # pandas takes half a second to import, and writing needs it only here.
        from hyflash_bench.results.tables import write_tables

        write_tables(self.layout)

    @cached_property
    def _likelihood_lines(self) -> LineFile:
        """Made when it is needed: few runs ask about given texts."""
        lines = LineFile(self.layout.likelihoods)
        self._opened.callback(lines.close)
        return lines

    def close(self) -> None:
        """Let the next process in."""
        self._opened.close()

    def __enter__(self) -> Self:
        """Return the open writer."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close, whatever happened."""
        self.close()


class RecordIndex(Mapping[Key, Record], Generic[Key, Record]):
    """Records of a file by key without holding them: long contexts make them large.

    Args:
        model: Of the records.
        path: The file.
        key_of: A line's key; of equal keys a later line wins.
    """

    def __init__(self, model: type[Record], path: Path, key_of: Callable[[dict[str, Any]], Key]) -> None:
        self._model = model
        self._path = path
        self._offsets = {key_of(line.value): line.offset for line in read_lines(path)}

    def add(self, key: Key, offset: int) -> None:
        """Note where a record was written."""
        self._offsets[key] = offset

    def __getitem__(self, key: Key) -> Record:
        """Read one record."""
        values = read_line_at(self._path, self._offsets[key])
        return parse_record(self._model, values, f"{self._path}, {key}")

    def __contains__(self, key: object) -> bool:
        """Answer from memory."""
        return key in self._offsets

    def __iter__(self) -> Iterator[Key]:
        """Keys in the order they were first written."""
        return iter(self._offsets)

    def __len__(self) -> int:
        """Number of records."""
        return len(self._offsets)


def _locked(layout: Layout) -> FileLock:
    lock = FileLock(layout.lock, timeout=0)
    try:
        layout.folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise RunLocked(
            f"Another process is writing to {layout.folder}. "
            "Wait until it ends, or choose another --output-path."
        ) from None
    except OSError as error:
        raise write_error(layout.folder, error) from error
    return lock


def _discard(layout: Layout) -> None:
    """Remove what a run writes and nothing else; the lock stays, since we hold it."""
    try:
        for path in layout.sources:
            path.unlink(missing_ok=True)
        for path in (layout.likelihoods, layout.stamp, *map(layout.table, TABLES)):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise write_error(layout.folder, error) from error


def _refuse_other_schema(layout: Layout) -> None:
    if not layout.is_run:
        return
    version = stored_version(layout)
    if version != SCHEMA_VERSION:
        raise UsageError(
            f"{layout.folder} was written with schema {version}; it can be read but not continued "
            f"with schema {SCHEMA_VERSION}. Add --fresh to discard it, or give another --output-path."
        )
