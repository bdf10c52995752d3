"""The texts that a corpus may use: files of pinned packages that no shipped suite names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from hyflash_bench.data import data_folder
from hyflash_bench.errors import DataError
from hyflash_bench.spec.corpus import RowsSource, TextSource, TextsSpec
from hyflash_bench.spec.yaml import read_yaml
from hyflash_bench.suites.sources import Library, Progress
from hyflash_bench.training.corpus.rows import RowTexts

__all__ = ["CorpusTexts", "TextFile", "files_of_suites"]


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file of a source.

    Attributes:
        source: Name of the source in the recipe.
        file: Its path there.
        weight: How often it is to be drawn from, against others.
    """

    source: str
    file: str
    weight: float

    @property
    def label(self) -> str:
        """Names the file within the recipe."""
        return f"{self.source}/{self.file}"


class CorpusTexts:
    """The texts of a recipe.

    Args:
        sources: Of the recipe.
        folder: Of the recipe's file; texts of one's own are relative to it.
        excluded: Paths of files that must not be used, whatever their source.
    """

    def __init__(self, sources: Mapping[str, TextSource], folder: Path, excluded: frozenset[str]) -> None:
        self._rows = {
            name: RowTexts(source, folder)
            for name, source in sources.items()
            if isinstance(source, RowsSource)
        }
        others = {name: source for name, source in sources.items() if not isinstance(source, RowsSource)}
        self._library = Library(others, folder)
        self._excluded = excluded

    def check_own_files(self) -> None:
        """See that the files of rows which the recipe names are there; fetches nothing.

        Raises:
            DataError: One is missing or cannot be read.
        """
        for rows in self._rows.values():
            rows.check_own_files()

    def files(self, texts: Sequence[TextsSpec], progress: Progress | None = None) -> list[TextFile]:
        """All files that are asked for and may be used; fetched if need be.

        Raises:
            DataError: A pattern matches nothing, or nothing but what suites use.
            DownloadError: A source cannot be fetched.
        """
        named = {one.source for one in texts}
        self._library.prepare(named - self._rows.keys(), progress)
        for name in sorted(named & self._rows.keys()):
            self._rows[name].prepare(progress)
        found = []
        for one in texts:
            names = [file for file in self._matching(one) if file not in self._excluded]
            if not names:
                raise DataError(
                    f"No text of source {one.source!r} that matches {', '.join(one.files)} may be used: "
                    "there is none, or shipped suites use all of them. Ask for others."
                )
            found += [TextFile(one.source, file, one.weight / len(names)) for file in names]
        return found

    def read(self, file: TextFile) -> str:
        """The text of a file, without space around it."""
        rows = self._rows.get(file.source)
        return (rows.read(file.file) if rows else self._library.read(file.source, file.file)).strip()

    def _matching(self, texts: TextsSpec) -> Sequence[str]:
        """Names of the files, or rows, that are asked for."""
        rows = self._rows.get(texts.source)
        if rows is None:
            return self._library.files(texts.source, texts.files)
        return [name for name in rows.names if any(fnmatchcase(name, pattern) for pattern in texts.files)]


def files_of_suites() -> frozenset[str]:
    """Paths of all files that a shipped suite names, in its own YAML or in YAML beside it."""
    folder = data_folder("suites")
    paths = [path for pattern in ("*.yaml", "*/*.yaml") for path in folder.glob(pattern)]
    return frozenset(file for path in paths for file in _named_files(read_yaml(path)))


def _named_files(value: Any) -> Iterator[str]:
    """Values of all keys ``file``, however deep."""
    if isinstance(value, Mapping):
        if isinstance(value.get("file"), str):
            yield value["file"]
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _named_files(inner)
