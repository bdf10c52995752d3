"""What all commands share: lazy loading, one-message errors, exit codes.

Command modules import what they need inside the function, so that ``--help`` answers at once; a
test holds them to it.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import click

from hyflash_bench.errors import HyFlashError, UnknownName, UsageError

__all__ = [
    "CONTEXT",
    "EXIT_INTERRUPTED",
    "LazyGroup",
    "command",
    "debug_option",
    "foot",
    "typed",
]

EXIT_INTERRUPTED = 130
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

_DEBUG = "hyflash_bench.debug"
_TYPED = "hyflash_bench.typed"


class _UsageFailure(click.ClickException):
    """A message alone, without click's lines on usage: it says itself how to mend things."""

    exit_code = 2


class LazyGroup(click.Group):
    """A group that imports a command's module only when the command is asked for.

    Every error that is the user's to mend ends here: one message, no traceback unless ``--debug``.

    Args:
        args: As :class:`click.Group`.
        modules: Name of each command and the module whose ``command`` it is.
        kwargs: As :class:`click.Group`.
    """

    def __init__(self, *args: Any, modules: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.modules = dict(modules or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in order of use."""
        return list(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command, or None if there is no such name."""
        if cmd_name not in self.modules:
            return None
        found = import_module(self.modules[cmd_name]).command
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a mistyped name gets the nearest one offered."""
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            raise UnknownName("command", name, self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words as typed before click takes them apart."""
        for word in args:
            shown = word.encode(errors="backslashreplace").decode()
            if shown != word:  # it could be written neither to a run folder nor to a table
                raise _UsageFailure(f"{shown} is not UTF-8 text. Rename the file or folder, or link to it.")
        ctx.meta[_TYPED] = tuple(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command and turn what goes wrong into a message and an exit code."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(EXIT_INTERRUPTED)
        except BrokenPipeError:
            raise  # click ends quietly when the reader of a pipe is gone
        except (HyFlashError, OSError) as raised:
            error = _in_our_words(raised)
            if ctx.meta.get(_DEBUG):
                click.echo(traceback.format_exc(), err=True)
            kind = _UsageFailure if isinstance(error, UsageError) else click.ClickException
            from hyflash_bench.report.text import printable

            raise kind(printable(str(error))) from None


def _in_our_words(error: HyFlashError | OSError) -> HyFlashError | OSError:
    if not (isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG):
        return error
    name = str(error.filename or "")
    return UsageError(
        f"A name is longer than this system allows: {name[:40]!r}... ({len(name)} characters). "
        "Give a shorter one."
    )


def command(name: str, *, examples: Sequence[str]) -> Callable[[Callable[..., Any]], click.Command]:
    """Declare a command: its help is the docstring, its examples stand at the foot, line by line."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        made = click.command(name, epilog=foot(examples), context_settings=CONTEXT)(function)
        made.params.append(debug_option())
        return made

    return decorate


def foot(examples: Sequence[str]) -> str:
    """Examples for the foot of a help text."""
    return "\b\nExamples:\n" + "\n".join(f"  hyflash-bench {line}" for line in examples)


def debug_option() -> click.Option:
    """``--debug``, which works before and after the command's name."""

    def remember(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            ctx.meta[_DEBUG] = True  # click shares meta between a group and its commands

    return click.Option(
        ["--debug"],
        is_flag=True,
        expose_value=False,
        callback=remember,
        help="Show the traceback of an error.",
    )


def typed(ctx: click.Context) -> tuple[str, ...]:
    """The command line as typed, the program's name first."""
    return ("hyflash-bench", *ctx.meta.get(_TYPED, ()))
