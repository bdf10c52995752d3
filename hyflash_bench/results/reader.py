"""Reading runs: the stable way to a run's numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from hyflash_bench.errors import DataError, HyFlashError, UnknownName
from hyflash_bench.results.frames import build_table
from hyflash_bench.results.layout import RESULTS_FOLDER, Layout
from hyflash_bench.results.load import read_manifest, read_traces
from hyflash_bench.results.records import Manifest, TraceRecord
from hyflash_bench.results.schema import TABLES
from hyflash_bench.results.tables import are_fresh, read_records, read_table

if TYPE_CHECKING:
    import pandas as pd

    from hyflash_bench.results.run_records import RunRecords

__all__ = ["Run", "RunListing", "list_runs", "load_run"]


@dataclass(frozen=True)
class Run:
    """A stored run: its manifest, and its tables as DataFrames made when first asked for.

    Columns, dtypes and meanings are in :data:`hyflash_bench.results.schema.TABLES`; an empty run
    has the same columns and no rows.
    """

    folder: Path
    manifest: Manifest

    @property
    def run_id(self) -> str:
        """Name of the run."""
        return self.manifest.run_id

    @cached_property
    def cells(self) -> pd.DataFrame:
        """One row a cell: identity, status, counts, headline numbers."""
        return self._table("cells")

    @cached_property
    def conversations(self) -> pd.DataFrame:
        """One row a cell and conversation: what became of it."""
        return self._table("conversations")

    @cached_property
    def turns(self) -> pd.DataFrame:
        """One row a cell, conversation, turn and mode: counts, times, bytes, losslessness."""
        return self._table("turns")

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row a step."""
        return self._table("steps")

    @cached_property
    def traces(self) -> pd.DataFrame:
        """One row a turn of what the target said."""
        return self._table("traces")

    @cached_property
    def trace_steps(self) -> pd.DataFrame:
        """One row a pass of the target after the first token: what it held."""
        return self._table("trace_steps")

    @cached_property
    def replies(self) -> Mapping[str, TraceRecord]:
        """What the target said, by trace id: texts with their tokens."""
        return read_traces(Layout(self.folder))

    @cached_property
    def memory(self) -> pd.DataFrame:
        """Bytes in long form: one row a turn, owner and kind."""
        return self._table("memory")

    def table(self, name: str) -> pd.DataFrame:
        """A table by its name.

        Raises:
            UnknownName: No such table.
        """
        if name not in TABLES:
            raise UnknownName("table", name, TABLES)
        frame: pd.DataFrame = getattr(self, name)
        return frame

    def _table(self, name: str) -> pd.DataFrame:
        layout = Layout(self.folder)
        if "_records" not in self.__dict__ and are_fresh(layout):
            # The lines hold the truth: a damaged copy of them costs time and nothing else.
            with suppress(Exception):
                return read_table(name, layout)
        try:
            return build_table(name, self._records)
        except (OverflowError, UnicodeError) as error:
            raise DataError(
                f"{self.folder}: a value fits no column of {name} ({error}). A file was changed by something "
                "else; restore it."
            ) from error

    @cached_property
    def _records(self) -> RunRecords:
        return read_records(Layout(self.folder))


@dataclass(frozen=True, slots=True)
class RunListing:
    """A run as a list shows it.

    Attributes:
        folder: Where it is.
        manifest: What it says of itself, or None if it cannot be read.
        problem: Why it cannot be read, or None.
    """

    folder: Path
    manifest: Manifest | None
    problem: str | None = None


def load_run(path_or_name: Path | str, folder: Path | str = RESULTS_FOLDER) -> Run:
    """Open a stored run for reading.

    Args:
        path_or_name: A run folder, or the name of one in ``folder``.
        folder: Where runs are kept.

    Raises:
        UnknownName: There is no such run; the message offers the nearest names.
        SchemaTooNew: A newer version wrote it.
        DataError: A file is damaged, with file and line. A torn last line is no damage.
    """
    for candidate in (Path(path_or_name), Path(folder) / path_or_name):
        layout = Layout(candidate)
        if layout.is_run:
            return Run(candidate, read_manifest(layout))
        if layout.traces.exists() or layout.conversations.exists():
            raise DataError(
                f"{candidate} holds results, but no file {layout.manifest.name} that says what was run. "
                "Restore it from a copy, or run the same command into another folder."
            )
    known = [str(path.relative_to(folder)) for path in _run_folders(Path(folder))]
    hint = f"Give a run folder or a name out of {folder}/."
    raise UnknownName("run", str(path_or_name), known, hint)


def list_runs(folder: Path | str = RESULTS_FOLDER) -> list[RunListing]:
    """Every run in a folder, newest first; damaged ones are listed with their problem."""
    listings = [_listing(path) for path in _run_folders(Path(folder))]
    return sorted(listings, key=_age, reverse=True)


def _run_folders(folder: Path) -> Iterator[Path]:
    """Those in a folder, and in folders there that are no runs themselves."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if Layout(path).is_run:
            yield path
        elif path.is_dir():
            yield from (inner for inner in sorted(path.iterdir()) if Layout(inner).is_run)


def _listing(path: Path) -> RunListing:
    try:
        return RunListing(path, read_manifest(Layout(path)))
    except HyFlashError as error:
        return RunListing(path, None, str(error))


def _age(listing: RunListing) -> tuple[str, str]:
    created = listing.manifest.created_at if listing.manifest else ""
    return created, listing.folder.name
