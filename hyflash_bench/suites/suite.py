"""A suite: its items, and the conversations built from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hyflash_bench.errors import DataError, UnknownName, UsageError
from hyflash_bench.spec.plan import content_id
from hyflash_bench.spec.suite import SuiteSpec
from hyflash_bench.suites import selection
from hyflash_bench.suites.builders import Builder, Package, TaskContext, make_builder
from hyflash_bench.suites.chat import ChatTokenizer
from hyflash_bench.suites.conversation import Conversation, Item
from hyflash_bench.suites.datafiles.choice import DataFiles
from hyflash_bench.suites.sources import Library, Progress

__all__ = ["BUILDER_VERSION", "Suite"]

BUILDER_VERSION = 1
"""Raised whenever the builders make other conversations from the same suite file."""


@dataclass(frozen=True)
class Suite:
    """A suite of tasks.

    Attributes:
        spec: What its file says.
        path: The file.
        data: Files given for it, in place of its own source.
    """

    spec: SuiteSpec
    path: Path
    data: DataFiles | None = None

    @property
    def name(self) -> str:
        """The suite's name."""
        return self.spec.name

    @cached_property
    def suite_hash(self) -> str:
        """Name of the suite's content: its file, its data files, its texts and the builders."""
        identity = {
            "builder_version": BUILDER_VERSION,
            "spec": self.spec.model_dump(mode="json"),
            "texts": {name: self.library.fingerprint(name) for name in self.spec.sources},
            "data": {name: builder.fingerprint() for name, builder in self._builders.items()},
        }
        return content_id(identity)

    @cached_property
    def library(self) -> Library:
        """The suite's texts."""
        return Library(self.spec.sources, self.path.parent)

    @property
    def is_external(self) -> bool:
        """Whether its conversations come from a data set that users give or fetch themselves."""
        return any(builder.is_external for builder in self._builders.values())

    def max_new_tokens(self, task: str) -> int:
        """Token limit of a reply in a task."""
        found = {one.name: one.max_new_tokens for one in self.spec.tasks}
        if task not in found:
            raise UnknownName(f"task of suite {self.name}", task, found)
        return found[task] or self.spec.max_new_tokens

    def items(
        self,
        *,
        contexts: Iterable[int] | None = None,
        kinds: Iterable[str] | None = None,
        limit: int | None = None,
        max_positions: int | None = None,
        max_new_tokens: int | None = None,
    ) -> tuple[Item, ...]:
        """The planned conversations, in the order of the file; no text is read.

        Args:
            contexts: Only these context lengths.
            kinds: Only these kinds of work.
            limit: At most so many per task, spread evenly over kinds and context lengths.
            max_positions: Positions of the target; longer items are left out, see :meth:`too_long`.
            max_new_tokens: Token limit of a reply, if not the suite's.

        Raises:
            UsageError: A context length or kind that the suite has not got.
        """
        chosen = list(self._items.values())
        if contexts is not None:
            chosen = selection.only_contexts(chosen, contexts, self.name)
        if kinds is not None:
            chosen = selection.only_kinds(chosen, kinds, self.name)
        if max_positions is not None:
            left_out = set(self.too_long(max_positions, max_new_tokens))
            chosen = [item for item in chosen if item not in left_out]
        if limit is None:
            return tuple(chosen)
        tasks = {task.name: [item for item in chosen if item.task == task.name] for task in self.spec.tasks}
        return tuple(item for of_task in tasks.values() for item in selection.spread(of_task, limit))

    def too_long(self, max_positions: int, max_new_tokens: int | None = None) -> tuple[Item, ...]:
        """Items whose prompt and longest reply do not fit ``max_positions``."""
        return tuple(
            item
            for item in self._items.values()
            if not selection.fits(item, max_positions, max_new_tokens or self.max_new_tokens(item.task))
        )

    def build(self, item: Item, tokenizer: ChatTokenizer) -> Conversation:
        """Build one conversation; the first time, its texts are fetched.

        Raises:
            UnknownName: The item is not of this suite.
            DataError: The texts do not give what the suite asks for.
            DownloadError: A text cannot be fetched.
        """
        if item.item_id not in self._items:
            raise UnknownName(f"item of suite {self.name}", item.item_id, self._items)
        return self._builders[item.task].build(item, tokenizer)

    def prepare(self, progress: Progress | None = None, items: Iterable[Item] | None = None) -> None:
        """Fetch and verify all texts that the items need, so that nothing is fetched later.

        Args:
            progress: Called with one line about each fetch.
            items: Those to prepare; all by default.

        Raises:
            MissingDependency: pip, npm or a local file is missing.
            DownloadError: A text cannot be fetched, or it is not the expected one.
        """
        wanted = list(self._items.values() if items is None else items)
        for name, builder in self._builders.items():
            builder.prepare([item for item in wanted if item.task == name], progress)

    def packages(self, items: Iterable[Item] | None = None) -> list[Package]:
        """Packages that the texts of the items come from, each once; of all items by default."""
        wanted = list(self._items.values() if items is None else items)
        found = {
            package.sha256: package
            for name, builder in self._builders.items()
            for package in builder.packages([item for item in wanted if item.task == name])
        }
        return list(found.values())

    @cached_property
    def _builders(self) -> Mapping[str, Builder[Any]]:
        builders = {
            task.name: make_builder(TaskContext(self.name, task, self.library, self.path.parent, self.data))
            for task in self.spec.tasks
        }
        if self.data and self.data.paths and not any(b.is_external for b in builders.values()):
            raise UsageError(
                f"Suite {self.name} brings its own texts; {self.data.paths[0]} has no place in it. "
                "Leave --data out, or name a suite that reads data sets (ls suites)."
            )
        return builders

    @cached_property
    def _items(self) -> Mapping[str, Item]:
        found: dict[str, Item] = {}
        for builder in self._builders.values():
            for item in builder.items():
                if item.item_id in found:
                    raise DataError(
                        f"Suite {self.name}: item {item.item_id!r} comes up twice. "
                        "Rename a task or a document."
                    )
                found[item.item_id] = item
        return found
