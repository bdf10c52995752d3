"""Which drafters there are, known by name before any of them is imported.

A drafter can be asked for by

* a name of this package (``prompt-lookup``),
* ``package/name`` of an installed package with an entry point in ``hyflash_bench.drafters``,
* ``path/to/file.py:Class`` for a class of one's own.

Listing names and summaries imports neither torch nor a drafter; the rest of this module does.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, get_origin

from hyflash_bench.data import expanded
from hyflash_bench.errors import DrafterError, HyFlashError, UnknownName, UsageError
from hyflash_bench.spec.drafter import DrafterSpec

if TYPE_CHECKING:
    from hyflash_bench.drafters.base import Drafter

__all__ = [
    "ENTRY_POINT_GROUP",
    "DrafterDetail",
    "OptionDetail",
    "build_drafter",
    "can_shrink",
    "describe_drafter",
    "drafter_names",
    "drafter_summaries",
    "keeps_kv",
    "require_drafter",
    "resolve_drafter",
]

ENTRY_POINT_GROUP = "hyflash_bench.drafters"
LIST_HINT = "List them with: hyflash-bench ls drafters"


class _Entry(NamedTuple):
    path: str
    summary: str
    keeps_kv: bool = False
    can_shrink: bool = False


_BUILT_IN = {
    "autoregressive": _Entry(
        "hyflash_bench.drafters.autoregressive:Autoregressive",
        "Proposes nothing: the plain decoding that speedups are measured against.",
    ),
    "prompt-lookup": _Entry(
        "hyflash_bench.drafters.prompt_lookup:PromptLookup",
        "Copies what followed an earlier occurrence of the last few tokens.",
        can_shrink=True,
    ),
    "suffix": _Entry(
        "hyflash_bench.drafters.suffix:Suffix",
        "Continues the longest repeated suffix by how often each token followed it.",
        can_shrink=True,
    ),
    "small-model": _Entry(
        "hyflash_bench.drafters.small_model:SmallModel",
        "A smaller language model with the target's vocabulary.",
        keeps_kv=True,
    ),
    "hyflash": _Entry(
        "hyflash_bench.drafters.hyflash:HyFlash",
        "Trained block drafter: a window of attention, and a memory of fixed size for all before it.",
        keeps_kv=True,
    ),
    "full-context": _Entry(
        "hyflash_bench.drafters.full_context:FullContext",
        "Trained block drafter that attends to the whole context, as DFlash does.",
        keeps_kv=True,
        can_shrink=True,
    ),
    "window": _Entry(
        "hyflash_bench.drafters.window:Window",
        "Trained block drafter that attends to a window only: hyflash without its memory.",
        keeps_kv=True,
    ),
    "memory-only": _Entry(
        "hyflash_bench.drafters.memory_only:MemoryOnly",
        "Trained block drafter that reads its memory only: hyflash without its window.",
        keeps_kv=True,
    ),
    "eagle": _Entry(
        "hyflash_bench.drafters.eagle:Eagle",
        "One trained layer that runs ahead token by token, with keys and values of the whole context.",
        keeps_kv=True,
        can_shrink=True,
    ),
    "dflash": _Entry(
        "hyflash_bench.drafters.dflash:DFlash",
        "DFlash checkpoints of others: a block of tokens in one pass over the target's features.",
        keeps_kv=True,
    ),
    "medusa": _Entry(
        "hyflash_bench.drafters.medusa:Medusa",
        "Trained heads on the target's last hidden state, one for each proposed token.",
    ),
    "scripted": _Entry(
        "hyflash_bench.drafters.scripted:Scripted",
        "Proposes a script, right or wrong on purpose: for tests and plugin authors.",
    ),
}


@dataclass(frozen=True, slots=True)
class OptionDetail:
    """One option of a drafter, as the command line shows it."""

    name: str
    type: str
    default: Any
    description: str


@dataclass(frozen=True, slots=True)
class DrafterDetail:
    """A drafter with its options."""

    name: str
    summary: str
    documentation: str
    options: tuple[OptionDetail, ...]


def drafter_names() -> list[str]:
    """Names that can be asked for: this package's first, then installed plugins'."""
    return [*_BUILT_IN, *sorted(_plugins())]


def drafter_summaries() -> dict[str, str]:
    """Each name with one line about it."""
    built_in = {name: entry.summary for name, entry in _BUILT_IN.items()}
    plugins = {name: _plugin_summary(point) for name, point in sorted(_plugins().items())}
    return built_in | plugins


def keeps_kv(spec: DrafterSpec) -> bool:
    """Whether a drafter has keys and values of its own, whose precision is its option ``kv_dtype``."""
    return spec.name in _BUILT_IN and _BUILT_IN[spec.name].keeps_kv


def can_shrink(spec: DrafterSpec) -> bool:
    """Whether a drafter may be able to keep less of the context; unknown ones may."""
    return spec.name not in _BUILT_IN or _BUILT_IN[spec.name].can_shrink


def require_drafter(spec: DrafterSpec) -> None:
    """Check that a name can be asked for, without importing anything.

    Raises:
        UnknownName: Nothing has that name.
        UsageError: There is no such file.
    """
    if _is_file(spec.name):
        _existing_file(spec.name)
    elif spec.name not in drafter_names():
        raise UnknownName("drafter", spec.name, drafter_names(), LIST_HINT)


def resolve_drafter(spec: DrafterSpec) -> type[Drafter]:
    """Import the class behind a name.

    Raises:
        UnknownName: Nothing has that name, or the file has no such class.
        UsageError: There is no such file, or no class was named.
        DrafterError: The code cannot be imported or is not a usable drafter.
    """
    name = spec.name
    if _is_file(name):
        return _from_file(name)
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].path.partition(":")
        return _checked(getattr(importlib.import_module(module), attribute), name)
    plugins = _plugins()
    if name in plugins:
        return _from_plugin(name, plugins[name])
    raise UnknownName("drafter", name, drafter_names(), LIST_HINT)


def build_drafter(spec: DrafterSpec) -> Drafter:
    """Make a drafter with its options; it still has to be loaded.

    Raises:
        SpecError: An option is unknown or has a value that is not allowed.
        UsageError: See :func:`resolve_drafter`.
        DrafterError: See :func:`resolve_drafter`.
    """
    drafter = resolve_drafter(spec)
    options = drafter.Options.parse(spec.options, where=f"drafter {spec.name!r}")
    try:
        return drafter(options)
    except HyFlashError:
        raise
    except Exception as error:
        raise DrafterError(
            f"Drafter {spec.name!r} cannot be made: {_described(error)}. "
            "Its __init__ must accept its Options and nothing else."
        ) from error


def describe_drafter(spec: DrafterSpec) -> DrafterDetail:
    """A drafter's documentation and options.

    Raises:
        UsageError: See :func:`resolve_drafter`.
        DrafterError: See :func:`resolve_drafter`.
    """
    drafter = resolve_drafter(spec)
    documentation = (drafter.__doc__ or "").strip()
    first_line = documentation.partition("\n")[0]
    options = tuple(
        OptionDetail(
            name=name,
            type=_type_text(field.annotation),
            default=field.get_default(call_default_factory=True, validated_data={}),
            description=field.description or "",
        )
        for name, field in drafter.Options.model_fields.items()
    )
    summary = drafter_summaries().get(spec.name, first_line)
    return DrafterDetail(spec.name, summary, documentation, options)


def _plugins() -> dict[str, EntryPoint]:
    points = entry_points(group=ENTRY_POINT_GROUP)
    return {f"{_distribution(point)}/{point.name}": point for point in points}


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "plugin"


def _plugin_summary(point: EntryPoint) -> str:
    if point.dist is None or "Summary" not in point.dist.metadata:
        return f"Plugin {point.value}."
    return point.dist.metadata["Summary"]


def _from_plugin(name: str, point: EntryPoint) -> type[Drafter]:
    try:
        found = point.load()
    except Exception as error:
        raise DrafterError(
            f"Drafter {name!r}: {point.value} cannot be imported: {_described(error)}. "
            f"Repair or uninstall the package {_distribution(point)!r}."
        ) from error
    return _checked(found, name)


def _is_file(name: str) -> bool:
    return ".py:" in name or name.endswith(".py")


def _from_file(name: str) -> type[Drafter]:
    path = _existing_file(name)
    class_name = name.rpartition(":")[2] if ".py:" in name else ""
    module = _run_file(path)
    offered = _drafters_in(module)
    if not class_name:
        example = offered[0] if offered else "Class"
        raise UsageError(f"Drafter {name!r}: name the class too, for example {path}:{example}.")
    if not hasattr(module, class_name):
        raise UnknownName(f"drafter class in {path}", class_name, offered)
    return _checked(getattr(module, class_name), name)


def _existing_file(name: str) -> Path:
    path = expanded(name.rpartition(":")[0] if ".py:" in name else name)
    if not path.is_file():
        raise UsageError(f"Drafter {name!r}: there is no file {path}. Check the path.")
    return path


def _run_file(path: Path) -> ModuleType:
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
    module_name = f"hyflash_bench_user_{path.stem}_{digest}"
    found = importlib.util.spec_from_file_location(module_name, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    # pydantic looks a class's module up here to read its annotations.
    sys.modules[module_name] = module
    try:
        found.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[module_name]
        if isinstance(error, SyntaxError):
            raise DrafterError(
                f"{path}, line {error.lineno}: not valid Python ({error.msg}). Correct that line."
            ) from None
        if isinstance(error, Exception):
            raise DrafterError(
                f"{path} cannot be imported: {_described(error)}. "
                f"Make `python {path}` run without an error first."
            ) from error
        raise
    return module


def _drafters_in(module: ModuleType) -> list[str]:
    from hyflash_bench.drafters.base import Drafter

    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Drafter) and value.__module__ == module.__name__
    ]


def _checked(found: Any, name: str) -> type[Drafter]:
    from hyflash_bench.drafters.base import Drafter, DrafterOptions

    def refuse(problem: str) -> DrafterError:
        return DrafterError(f"Drafter {name!r}: {problem}")

    if not isinstance(found, type) or not issubclass(found, Drafter):
        raise refuse(
            f"{getattr(found, '__name__', found)!r} is not a drafter. "
            "Derive the class from hyflash_bench.drafters.Drafter."
        )
    missing = sorted(found.__abstractmethods__)
    if missing:
        raise refuse(f"{found.__name__} lacks {', '.join(missing)}. Write the missing methods.")
    if not isinstance(getattr(found, "name", None), str):
        example = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", found.__name__).lower()
        raise refuse(f"{found.__name__} has no name. Add to the class: name = {example!r}.")
    if not isinstance(found.Options, type) or not issubclass(found.Options, DrafterOptions):
        raise refuse(
            f"{found.__name__}.Options is not a set of options. "
            "Derive it from hyflash_bench.drafters.DrafterOptions."
        )
    for option, field in found.Options.model_fields.items():
        if field.is_required():
            raise refuse(
                f"option {option!r} has no default. "
                f"Give it one: {option}: ... = Field(default, description=...)."
            )
    return found


def _type_text(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " | ".join(str(value) for value in get_args(annotation))
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _described(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
