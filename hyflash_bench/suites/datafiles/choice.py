"""Which files a command gives a suite."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hyflash_bench.data import expanded
from hyflash_bench.errors import UsageError

__all__ = ["DataFiles", "labels_of"]

_ENDINGS = (".gz", ".jsonl", ".json", ".ndjson", ".parquet")


@dataclass(frozen=True, slots=True)
class DataFiles:
    """What ``--data`` and ``--skip-bad-rows`` say.

    Attributes:
        paths: Files, or folders whose data files are all meant; none for the suite's own source.
        skip_bad_rows: Leave wrong rows out instead of refusing the file.
    """

    paths: tuple[Path, ...] = ()
    skip_bad_rows: bool = False

    @classmethod
    def of(cls, paths: Iterable[str | Path], *, skip_bad_rows: bool = False) -> DataFiles:
        """From paths as a user writes them."""
        return cls(tuple(expanded(path) for path in paths), skip_bad_rows)

    def files(self) -> list[Path]:
        """The files, those of folders included.

        Raises:
            UsageError: A path is not there, or a folder has no data file.
        """
        return [file for path in self.paths for file in _files(path)]


def labels_of(files: Sequence[Path]) -> list[str]:
    """What tells files apart: names without endings, with folders where names repeat.

    Some data sets name all their files ``validation.jsonl`` and their tasks by folder, so that these
    names alone never tell anything.
    """
    parts = [_parts(file) for file in files]
    longest = max(map(len, parts), default=0)
    labels: list[str] = []
    for depth in range(1, longest + 1):
        labels = ["/".join(each[-depth:]) for each in parts]
        if len(set(labels)) == len(labels):
            break
    return labels


def _parts(file: Path) -> list[str]:
    stem = file.name
    while stem.endswith(_ENDINGS) and Path(stem).stem:
        stem = Path(stem).stem
    folders = list(file.resolve().parts[1:-1])
    is_split = stem in {"validation", "test", "train", "dev", "rows"}
    return folders if is_split and folders else [*folders, stem]


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise UsageError(f"No file {path}. Check the path given with --data.")
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.name.endswith(_ENDINGS) and file.is_file())
    if not found:
        raise UsageError(
            f"{path} has no data file (ending in {', '.join(_ENDINGS)}). Give another with --data."
        )
    return found
