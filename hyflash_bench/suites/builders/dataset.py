"""Conversations of a public data set, from a file of the user's, beside the suite, or from the hub."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from pydantic import Field

from hyflash_bench.errors import MissingDependency
from hyflash_bench.spec.base import Spec
from hyflash_bench.suites.builders.base import Builder, conversation
from hyflash_bench.suites.chat import ChatTokenizer
from hyflash_bench.suites.conversation import Conversation, Item
from hyflash_bench.suites.datafiles.choice import DataFiles, labels_of
from hyflash_bench.suites.datafiles.hub import HubSource
from hyflash_bench.suites.datafiles.index import MAX_CONVERSATIONS, Index, Place, index_of, row_at
from hyflash_bench.suites.datafiles.plain import Plain, plain_file
from hyflash_bench.suites.fitting import fitted
from hyflash_bench.suites.formats import format_named
from hyflash_bench.suites.sources import Progress, within

__all__ = ["Dataset"]

logger = logging.getLogger(__name__)


class DatasetOptions(Spec):
    """Options of the builder ``dataset``."""

    format: str = Field(description="How its rows look, see suites/README.md.")
    files: tuple[str, ...] = Field((), description="Files beside or below the suite file.")
    hub: HubSource | None = Field(None, description="Where it is on the hub, if nothing else is given.")
    obtain: str = Field("", description="Where people find the file to give with --data.")


class Dataset(Builder[DatasetOptions]):
    """Reads a data set row by row; only places are held."""

    name = "dataset"
    is_external = True
    Options = DatasetOptions

    def items(self) -> tuple[Item, ...]:
        """Plan the conversations."""
        return tuple(
            Item(
                item_id=item_id,
                suite=self.context.suite,
                task=self.context.task.name,
                kind=place.category or self.context.task.name,
                category=place.category or self.context.task.name,
                context_length=None,
                num_turns=place.num_turns,
                document=place.document or None,
            )
            for item_id, place in self._places.items()
        )

    def build(self, item: Item, chat: ChatTokenizer) -> Conversation:
        """Build one conversation."""
        place = self._places[item.item_id]
        plain = self._files[place.file]
        entry = row_at(plain, place, self._format, self._labels[place.file])
        fit = fitted(entry.turns, entry.system, chat)
        if fit.remark:
            logger.info("%s: %s", item.item_id, fit.remark)
        used = f"{self._labels[place.file]} {plain.unit} {place.line}"
        return conversation(item, fit.turns, system=entry.system, sources=[used])

    def prepare(self, items: Iterable[Item], progress: Progress | None = None) -> None:
        """Tell what was read and what was left out; the rows are there already."""
        index = self._index
        if progress is None:
            return
        names = ", ".join(plain.shown for plain in self._files)
        progress(f"{names}: {index.num_rows:,} rows, {index.num_found:,} conversations")
        if index.num_bad:
            progress(f"Left out by --skip-bad-rows: {index.told()}")
        if index.num_found > MAX_CONVERSATIONS:
            progress(f"Taken of these, spread by hash: {len(index.places):,} conversations")

    def fingerprint(self) -> Any:
        """Stand for the rows, wherever they come from."""
        return {"rows": self._index.digest, "num_bad": self._index.num_bad}

    @cached_property
    def _format(self) -> Any:
        return format_named(self.options.format, f"Correct it in {self.context.where}.")

    @cached_property
    def _given(self) -> DataFiles:
        return self.context.data or DataFiles()

    @cached_property
    def _files(self) -> list[Plain]:
        if self._given.paths:
            return [plain_file(path) for path in self._given.files()]
        if self.options.files:
            folder = self.context.folder
            return [plain_file(within(folder, folder / name, name)) for name in self.options.files]
        if self.options.hub:
            return [self.options.hub.fetched(f"Or give its file: --data FILE ({self._obtain}).")]
        raise MissingDependency(
            f"Suite {self.context.suite} needs its data set, which does not come with it. "
            f"Give its file: --data FILE ({self._obtain})."
        )

    @property
    def _obtain(self) -> str:
        return self.options.obtain or f"format {self._format.name}: {self._format.fields}"

    @cached_property
    def _labels(self) -> list[str]:
        if self._given.paths:
            return labels_of(self._given.files())
        return labels_of([self.context.folder / name for name in self.options.files]) or [self.context.suite]

    @cached_property
    def _index(self) -> Index:
        skip = self._given.skip_bad_rows
        return index_of(self._files, self._labels, self._format, skip_bad_rows=skip)

    @cached_property
    def _places(self) -> dict[str, Place]:
        before = f"{self.context.suite}/{self.context.task.name}/"
        return {before + place.item: place for place in self._index.places}
