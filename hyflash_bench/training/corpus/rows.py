"""Texts of a data set, one a row: from files beside the recipe, or from the hub."""

from __future__ import annotations

from functools import cached_property, partial
from pathlib import Path

from hyflash_bench.spec.corpus import RowsSource
from hyflash_bench.suites.conversation import UserTurn
from hyflash_bench.suites.datafiles import HubSource, Index, Place, Plain, index_of, plain_file, row_at
from hyflash_bench.suites.datafiles.choice import labels_of
from hyflash_bench.suites.formats.base import Entry, Format, Row
from hyflash_bench.suites.sources import Progress, within

__all__ = ["RowTexts"]


class RowTexts:
    """The texts of one source, by the names of their rows.

    Rows are read when they are asked for; of very many, as many are taken as a suite would take.

    Args:
        source: Of the recipe.
        folder: Of the recipe's file; files of one's own lie beside or below it.
    """

    def __init__(self, source: RowsSource, folder: Path) -> None:
        self._source, self._folder = source, folder
        self._format = Format("texts", source.text, partial(_entries, source.text))

    def check_own_files(self) -> None:
        """See that files on this machine can be read.

        Raises:
            DataError: One cannot.
        """
        if self._source.hub is None:
            _ = self._files

    def prepare(self, progress: Progress | None = None) -> None:
        """Read all rows once, fetched if need be; tell how many there are, and what is wrong with others.

        Raises:
            DataError: No row has a text, or a file cannot be read.
            DownloadError: The hub cannot be reached.
            MissingDependency: The library that reads it is not installed.
        """
        index = self._index
        if progress is not None:
            names = ", ".join(plain.shown for plain in self._files)
            progress(f"{names}: {index.num_found:,} texts")
            if index.num_bad:
                progress(f"Left out: {index.told()}")

    @property
    def names(self) -> list[str]:
        """Of the rows that have a text."""
        return list(self._places)

    def read(self, name: str) -> str:
        """The text of a row.

        Raises:
            DataError: The file was changed meanwhile.
        """
        place = self._places[name]
        entry = row_at(self._files[place.file], place, self._format, self._labels[place.file])
        return entry.turns[0].text

    @cached_property
    def _files(self) -> list[Plain]:
        source = self._source
        if source.hub is None:
            return [plain_file(within(self._folder, self._folder / name, name)) for name in source.files]
        hub = HubSource(path=source.hub, name=source.config, split=source.split, revision=source.revision)
        return [hub.fetched("Or name its files under files: in the recipe.")]

    @cached_property
    def _labels(self) -> list[str]:
        return labels_of([Path(name) for name in self._source.files]) or [self._source.label]

    @cached_property
    def _index(self) -> Index:
        return index_of(self._files, self._labels, self._format, skip_bad_rows=True)

    @cached_property
    def _places(self) -> dict[str, Place]:
        return {place.item: place for place in self._index.places}


def _entries(key: str, row: Row) -> list[Entry]:
    return [Entry((UserTurn(row.filled(key)),))]
