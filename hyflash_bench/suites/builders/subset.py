"""A few conversations of other suites under a name of their own, maybe shortened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field

from hyflash_bench.errors import SpecError, UnknownName
from hyflash_bench.spec.base import Spec
from hyflash_bench.suites.builders.base import Builder, Package, conversation
from hyflash_bench.suites.catalog import load_suite
from hyflash_bench.suites.chat import ChatTokenizer
from hyflash_bench.suites.conversation import Conversation, Item
from hyflash_bench.suites.sources import Progress, within
from hyflash_bench.suites.suite import Suite

__all__ = ["Subset"]


_open: ContextVar[tuple[Path, ...]] = ContextVar("open", default=())
"""Files of the suites whose items are being looked up, to notice when they lead back."""


@contextmanager
def _opened(path: Path) -> Iterator[None]:
    token = _open.set((*_open.get(), path.resolve()))
    try:
        yield
    finally:
        _open.reset(token)


class SubsetOptions(Spec):
    """Options of the builder ``subset``."""

    suite: str = Field(description="Name of the suite, or a file relative to this one.")
    items: tuple[str, ...] = Field(
        min_length=1, description="Item ids of that suite, without its name in front."
    )
    max_turns: int | None = Field(None, ge=1, description="Leave out the turns after these.")


class Subset(Builder[SubsetOptions]):
    """Takes items of another suite as they are."""

    name = "subset"
    Options = SubsetOptions

    def items(self) -> tuple[Item, ...]:
        """Plan the conversations."""
        return tuple(self._renamed(item) for item in self._originals.values())

    def build(self, item: Item, chat: ChatTokenizer) -> Conversation:
        """Build one conversation."""
        original = self._suite.build(self._originals[item.item_id], chat)
        turns = original.turns[: item.num_turns]
        return conversation(item, turns, system=original.system, sources=original.sources)

    def prepare(self, items: Iterable[Item], progress: Progress | None = None) -> None:
        """Fetch the texts of some items."""
        self._suite.prepare(progress, [self._originals[item.item_id] for item in items])

    def packages(self, items: Iterable[Item]) -> list[Package]:
        """Packages that the texts of some items come from."""
        return self._suite.packages([self._originals[item.item_id] for item in items])

    def fingerprint(self) -> Any:
        """Stand for the files beside the suite file."""
        return self._suite.suite_hash

    @cached_property
    def _suite(self) -> Suite:
        name = self.options.suite
        if name == self.context.suite:
            raise SpecError(f"{self.context.where}: a suite cannot be a subset of itself.")
        beside = self.context.folder / (name if name.endswith(".yaml") else f"{name}.yaml")
        is_file = beside.is_file() or "/" in name or name.endswith(".yaml")
        suite = load_suite(within(self.context.folder, beside, name) if is_file else name)
        if suite.path.resolve() in _open.get():
            raise SpecError(
                f"{self.context.where}: {name} is itself, by way of others, a subset of this suite. "
                "Take the items from the suite that has them."
            )
        return suite

    @cached_property
    def _originals(self) -> dict[str, Item]:
        """Items of the other suite, by the ids that they have here."""
        name = self._suite.spec.name
        with _opened(self._suite.path):
            items = self._suite.items()
        known = {item.item_id.removeprefix(f"{name}/"): item for item in items}
        unknown = [given for given in self.options.items if given not in known]
        if unknown:
            raise UnknownName(f"item of suite {name}", unknown[0], known)
        return {f"{self.context.suite}/{given}": known[given] for given in self.options.items}

    def _renamed(self, item: Item) -> Item:
        rest = item.item_id.removeprefix(f"{item.suite}/")
        return replace(
            item,
            item_id=f"{self.context.suite}/{rest}",
            suite=self.context.suite,
            task=self.context.task.name,
            num_turns=min(item.num_turns, self.options.max_turns or item.num_turns),
        )
