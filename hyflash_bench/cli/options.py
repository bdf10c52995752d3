"""Options that several commands share, declared once: names, types and what they say of themselves.

Defaults live in the spec that a command fills, so an option's own default is mostly None and is only
shown here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from hyflash_bench.errors import UsageError

__all__ = [
    "PathType",
    "backend_option",
    "contexts_option",
    "devices_option",
    "draft_budget_option",
    "drafters_option",
    "dtype_option",
    "folder_option",
    "json_option",
    "kv_dtype_option",
    "memory_caps_option",
    "new_tokens_option",
    "option",
    "output_option",
    "taps_option",
    "target_option",
    "threads_option",
    "workers_option",
]

KV_DTYPES = ("auto", "float32", "bfloat16", "float16", "int8")
WEIGHT_DTYPES = ("auto", "float32", "bfloat16", "float16")

_F = TypeVar("_F", bound=Callable[..., Any])


class PathType(click.Path):
    """A file or folder to be named: an empty name, of a variable that is not set, is not taken for ``.``."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(path_type=Path, **kwargs)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See :class:`click.Path`."""
        if value == "":
            self.fail("An empty name was given. Name a file or folder, or . for this one.", param, ctx)
        return super().convert(value, param, ctx)


def option(*names: str, shown: str | None = None, **settings: Any) -> Callable[[_F], _F]:
    """An option whose default lives elsewhere (in the spec) and is only shown here.

    Args:
        names: As :func:`click.option`.
        shown: The default, as text.
        settings: As :func:`click.option`.
    """
    if shown is not None:
        settings["help"] += f" [default: {shown}]"
    return click.option(*names, **settings)


def target_option(
    help_text: str = "Model whose output is wanted: preset, hub id, local folder or GGUF file.",
    *,
    shown: str = "smollm2-135m",
) -> Callable[[_F], _F]:
    """``--target``."""
    return option("--target", metavar="ID", shown=shown, help=help_text)


def drafters_option(help_text: str, *, shown: str) -> Callable[[_F], _F]:
    """``--drafter``, as parameter ``drafters``."""
    return _repeated("drafter", "SPEC", shown, help_text)


def memory_caps_option(help_text: str) -> Callable[[_F], _F]:
    """``--memory-cap``, as parameter ``memory_caps``."""
    return _repeated("memory-cap", "SIZE", "none", f"{help_text}, e.g. 512MiB.")


def devices_option(help_text: str, *, shown: str) -> Callable[[_F], _F]:
    """``--device``, as parameter ``devices``."""
    return _repeated("device", "PROFILE", shown, help_text)


def contexts_option(help_text: str, *, shown: str, kind: Any = int) -> Callable[[_F], _F]:
    """``--context``, as parameter ``contexts``."""
    return _repeated("context", "TOKENS", shown, help_text, type=kind)


def _repeated(name: str, metavar: str, shown: str, help_text: str, **settings: Any) -> Callable[[_F], _F]:
    """One word an option, as often as wanted; the plural is taken too."""
    names = (f"--{name}", f"--{name}s", f"{name.replace('-', '_')}s")
    text = f"{help_text} Repeatable."
    return option(*names, metavar=metavar, multiple=True, shown=shown, help=text, **settings)


def new_tokens_option(*, shown: str, when: str = "") -> Callable[[_F], _F]:
    """``--max-new-tokens``."""
    text = "Most tokens of a reply."
    return option("--max-new-tokens", type=int, metavar="N", shown=shown, help=_when(when, text))


def draft_budget_option(kind: Any = int, **settings: Any) -> Callable[[_F], _F]:
    """``--draft-budget``."""
    text = "Most tokens a drafter may propose in one step."
    return option("--draft-budget", type=kind, metavar="N", shown="16", help=text, **settings)


def dtype_option(
    help_text: str = "Precision of weights and arithmetic; auto keeps the checkpoint's.",
    *,
    shown: str = "float32",
) -> Callable[[_F], _F]:
    """``--dtype`` of the target."""
    return option("--dtype", type=click.Choice(WEIGHT_DTYPES), shown=shown, help=help_text)


def kv_dtype_option(
    help_text: str, *, shown: str, name: str = "--kv-dtype", **settings: Any
) -> Callable[[_F], _F]:
    """``--kv-dtype`` of the target, or another cache by its name."""
    return option(name, type=click.Choice(KV_DTYPES), shown=shown, help=help_text, **settings)


def threads_option(*, when: str = "") -> Callable[[_F], _F]:
    """``--num-threads``."""
    text = _when(when, "CPU threads.")
    return option("--num-threads", type=int, metavar="N", shown="as torch chooses", help=text)


def workers_option(*, when: str = "", only: str = "") -> Callable[[_F], _F]:
    """``--workers``."""
    text = (
        "Processes that replay side by side, each with the target in memory and its share of the cores; "
        "nothing is gained where one keeps all cores or the memory bus busy, as on two cores."
    )
    return option("--workers", type=int, metavar="N", shown="1", help=_when(when, text) + only)


def backend_option(*, when: str = "", is_device_taken: bool = False) -> Callable[[_F], _F]:
    """``--backend``: what torch computes on.

    Args:
        when: Put before the help, as in ``With --run``.
        is_device_taken: Whether the command has a ``--device`` of its own. Elsewhere it gets one that
            only points here, since most tools mean the backend by it.
    """

    def refuse(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        if value is not None:
            raise UsageError(
                f"What torch computes on is called backend: --backend {value}. "
                "Device profiles (--device) belong to run and fit."
            )

    pointer = click.option("--device", hidden=True, expose_value=False, callback=refuse)
    text = _when(when, "Where torch computes: cpu, cuda, cuda:N or mps.")
    declared = option("--backend", metavar="BACKEND", shown="cpu", help=text)
    return declared if is_device_taken else lambda function: declared(pointer(function))


def taps_option(help_text: str) -> Callable[[_F], _F]:
    """``--taps``: numbers of layers, as a tuple."""

    def split(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
        if value is None:
            return None
        pieces = [piece.strip() for piece in value.split(",")]
        if not all(piece.isdecimal() for piece in pieces):
            raise UsageError(f"--taps {value!r} is no list of layers. Write for example --taps 9,19,28.")
        return tuple(map(int, pieces))

    return option("--taps", metavar="LAYER,...", callback=split, shown="three, spread out", help=help_text)


def folder_option(help_text: str, *, shown: str) -> Callable[[_F], _F]:
    """``--output-path``: the folder that a command writes."""
    kind = PathType(file_okay=False)
    return option("--output-path", type=kind, metavar="DIR", shown=shown, help=help_text)


def output_option(help_text: str, *, shown: str | None = None, **settings: Any) -> Callable[[_F], _F]:
    """``-o``: the file that a command writes."""
    kind = settings.pop("type", PathType(dir_okay=False))
    return option("-o", "--output", metavar="FILE", type=kind, shown=shown, help=help_text, **settings)


def json_option(function: _F) -> _F:
    """Add ``--json`` as parameter ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")(
        function
    )


def _when(when: str, text: str) -> str:
    """A help text behind its condition, as in ``With --run: most tokens``."""
    if not when:
        return text
    is_acronym = text[:2].isupper()
    return f"{when}: {text if is_acronym else text[0].lower() + text[1:]}"
