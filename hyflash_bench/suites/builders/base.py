"""What a builder is: the maker of one task's conversations."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from hyflash_bench.spec.base import Spec
from hyflash_bench.spec.suite import FileSource, NpmSource, PypiSource, TaskSpec
from hyflash_bench.suites.chat import ChatTokenizer
from hyflash_bench.suites.conversation import Conversation, Item, UserTurn
from hyflash_bench.suites.datafiles.choice import DataFiles
from hyflash_bench.suites.sources import Library, Progress

__all__ = ["Builder", "Package", "TaskContext", "conversation"]


OptionsT = TypeVar("OptionsT", bound=Spec)

Package = PypiSource | NpmSource


@dataclass(frozen=True, slots=True)
class TaskContext:
    """Where a builder works.

    Attributes:
        suite: Name of the suite.
        task: What the suite file says about the task.
        library: The suite's texts.
        folder: Folder of the suite file.
        data: Files that the user gives for it.
    """

    suite: str
    task: TaskSpec
    library: Library
    folder: Path
    data: DataFiles | None = None

    @property
    def where(self) -> str:
        """The task, for messages."""
        return f"suite {self.suite}, task {self.task.name}"


class Builder(ABC, Generic[OptionsT]):
    """Plans and builds the conversations of a task.

    The plan (:meth:`items`) comes from the suite file and its data files alone; texts are read and
    tokenised in :meth:`build` only. Both give the same result each time.
    """

    name: ClassVar[str]
    is_external: ClassVar[bool] = False
    """Whether its texts are a data set that users give or fetch themselves."""
    Options: type[OptionsT]

    def __init__(self, context: TaskContext) -> None:
        self.context = context
        self.options = self.Options.parse(
            context.task.options, where=f"{context.where} (builder {self.name!r})"
        )

    @abstractmethod
    def items(self) -> tuple[Item, ...]:
        """All conversations of the task, planned."""

    @abstractmethod
    def build(self, item: Item, chat: ChatTokenizer) -> Conversation:
        """Build one of :meth:`items`."""

    def sources(self, item: Item) -> frozenset[str]:
        """Names of the sources that the item's text comes from."""
        return frozenset()

    def prepare(self, items: Iterable[Item], progress: Progress | None = None) -> None:
        """Fetch and verify the texts of some items."""
        needed = {name for item in items for name in self.sources(item)}
        self.context.library.prepare(needed, progress)

    def packages(self, items: Iterable[Item]) -> list[Package]:
        """Packages that the texts of some items come from; a text of one's own is in none."""
        needed = sorted({name for item in items for name in self.sources(item)})
        sources = [self.context.library.source(name) for name in needed]
        return [source for source in sources if not isinstance(source, FileSource)]

    def fingerprint(self) -> Any:
        """Plain data that changes whenever files beside the suite file change the task."""
        return None


def conversation(
    item: Item,
    turns: Sequence[UserTurn],
    *,
    system: str | None = None,
    sources: Sequence[str] = (),
) -> Conversation:
    """A conversation with its content hash."""
    read = json.dumps([system, [turn.text for turn in turns]], ensure_ascii=False)
    digest = hashlib.sha256(read.encode()).hexdigest()
    return Conversation(item, tuple(turns), system, digest, tuple(sources))
