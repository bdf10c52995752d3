"""Builders by name: this package's, then those of installed packages.

Another package adds its own under the entry point group ``hyflash_bench.builders``.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from hyflash_bench.errors import DataError, UnknownName
from hyflash_bench.suites.builders.base import Builder, Package, TaskContext, conversation

__all__ = [
    "ENTRY_POINT_GROUP",
    "Builder",
    "Package",
    "TaskContext",
    "builder_names",
    "conversation",
    "make_builder",
]

ENTRY_POINT_GROUP = "hyflash_bench.builders"

_BUILT_IN = {
    "code": "hyflash_bench.suites.builders.code:Code",
    "dataset": "hyflash_bench.suites.builders.dataset:Dataset",
    "dialogues": "hyflash_bench.suites.builders.dialogues:Dialogues",
    "documents": "hyflash_bench.suites.builders.documents:Documents",
    "retrieval": "hyflash_bench.suites.builders.retrieval:Retrieval",
    "subset": "hyflash_bench.suites.builders.subset:Subset",
}


def builder_names() -> list[str]:
    """Names that a suite file may use."""
    plugins = {point.name for point in entry_points(group=ENTRY_POINT_GROUP)}
    return sorted(plugins | set(_BUILT_IN))


def make_builder(context: TaskContext) -> Builder[Any]:
    """The builder of a task, with its options checked.

    Raises:
        UnknownName: There is no such builder.
        SpecError: An option does not fit.
    """
    return _find(context)(context)


def _find(context: TaskContext) -> type[Builder[Any]]:
    name = context.task.builder
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        found = getattr(import_module(module), attribute)
    else:
        points = [p for p in entry_points(group=ENTRY_POINT_GROUP) if p.name == name]
        if not points:
            raise UnknownName("builder", name, builder_names(), f"Correct it in {context.where}.")
        found = points[0].load()
    if not (isinstance(found, type) and issubclass(found, Builder)):
        raise DataError(
            f"Builder {name!r} is {found!r}, which is no builder. "
            "Derive it from hyflash_bench.suites.builders.Builder."
        )
    return found
