"""File names of a run folder, in one place.

A run folder::

results/<run_id>/
  manifest.json          what was asked for, where it ran, which cells
  traces.jsonl           what the target says, a line a conversation
  conversations.jsonl    what became of each cell on each conversation
  likelihoods.jsonl      of texts that lm-eval asked about, a line a pass; only where it asked
  tables/*.parquet       frames made from the lines; can be rebuilt at will
  lock                   held by the process that writes
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["RESULTS_FOLDER", "Layout"]

RESULTS_FOLDER = Path("results")


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths within a run folder."""

    folder: Path

    @property
    def manifest(self) -> Path:
        """Identity of the run and of its cells."""
        return self.folder / "manifest.json"

    @property
    def traces(self) -> Path:
        """One trace a line."""
        return self.folder / "traces.jsonl"

    @property
    def conversations(self) -> Path:
        """One cell on one conversation a line."""
        return self.folder / "conversations.jsonl"

    @property
    def likelihoods(self) -> Path:
        """Likelihoods of given texts, one pass of the target a line."""
        return self.folder / "likelihoods.jsonl"

    @property
    def tables(self) -> Path:
        """Folder of the Parquet files."""
        return self.folder / "tables"

    @property
    def stamp(self) -> Path:
        """What the Parquet files were made from."""
        return self.tables / "source.json"

    @property
    def lock(self) -> Path:
        """Held while a process writes."""
        return self.folder / "lock"

    @property
    def sources(self) -> tuple[Path, ...]:
        """The files that hold the truth; everything else is made from them."""
        return (self.manifest, self.traces, self.conversations)

    def table(self, name: str) -> Path:
        """Parquet file of a table."""
        return self.tables / f"{name}.parquet"

    @property
    def is_run(self) -> bool:
        """Whether a run was ever started here."""
        return self.manifest.is_file()

    @property
    def is_foreign(self) -> bool:
        """Whether the folder holds something, and it is no run's.

        A run begins with its lock and its lines. Other names that it uses, such as manifest.json,
        are common: a folder that has only those is somebody's else.
        """
        if not self.folder.is_dir():
            return self.folder.exists()
        found = {path.name for path in self.folder.iterdir()}
        return not found <= {self.lock.name} and not found & {self.traces.name, self.conversations.name}
