"""The only module that prints: results on stdout, everything else on stderr.

``NO_COLOR`` and dumb terminals are respected by rich; without a terminal the progress of a run is
plain lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hyflash_bench.report.text import cell_text, duration_text, heading, printable
from hyflash_bench.runner import events

if TYPE_CHECKING:
    import pandas as pd

    from hyflash_bench.engine.tally import Tally

__all__ = ["Check", "Progress", "checks", "line", "note", "rows_of", "table", "write_json"]

PLAIN_WIDTH = 200
"""Columns of a table that goes to a file or a pipe."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What was looked at.
        ok: Whether it is as it should be.
        detail: What was found.
        fix: What to do when it is not ok.
    """

    name: str
    ok: bool
    detail: str
    fix: str = ""


def line(text: object) -> None:
    """Print one line of the result on stdout."""
    click.echo(str(text))


def note(text: object) -> None:
    """Print one line about the result on stderr."""
    click.echo(printable(str(text)), err=True)


def write_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False, default=str))


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A frame's rows as plain data; what was not measured is None."""
    rows = json.loads(frame.to_json(orient="records", double_precision=15, date_format="iso"))
    return list(rows)


def table(
    rows: Sequence[dict[str, Any]],
    title: str,
    columns: Sequence[str] | None = None,
    *,
    err: bool = False,
) -> None:
    """Print rows as a table.

    Args:
        rows: Plain data, all with the same keys.
        title: Stands above the table.
        columns: Which keys, in which order; those without any value are left out. All by default.
        err: Print on stderr, beside the result and not as part of it.
    """
    shown = list(rows[0]) if rows else []
    if columns is not None:
        shown = [name for name in columns if any(row.get(name) is not None for row in rows)]
    title = printable(title)
    grid = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name in shown:
        is_text = any(isinstance(row[name], str | list | dict) for row in rows)
        grid.add_column(heading(name), justify="left" if is_text else "right", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(printable(cell_text(name, row[name]))) for name in shown))
    _console(err=err).print(grid if rows else Text(f"{title}: nothing"))


def checks(found: Iterable[Check]) -> None:
    """Print a line per check, with the fix where there is something to mend."""
    out = _console()
    for check in found:
        word = Text("ok  ", style="green") if check.ok else Text("warn", style="yellow")
        out.print(Text.assemble(word, printable(f"  {check.name}: {check.detail}")), soft_wrap=True)
        if not check.ok and check.fix:
            out.print(Text(printable(f"      {check.fix}")), soft_wrap=True)


def _console(*, err: bool = False) -> Console:
    console = Console(stderr=err, highlight=False)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    return console


class Progress:
    """Shows the events of a run as they come: a listener for :func:`hyflash_bench.runner.run.run`."""

    def __init__(self) -> None:
        self._console = _console(err=True)
        self._live: Live | None = None
        self._done = 0
        self._work = 0
        self._unit = ""
        self._eta_s: float | None = None
        self._doing = "Loading the target ..."
        self._tallies: dict[str, dict[str, Tally]] = {}

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(
                get_renderable=self._render,
                console=self._console,
                refresh_per_second=4,
                transient=True,
            )
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, event: events.Event) -> None:
        """Take in one event."""
        match event:
            case events.Log(message=message):
                self._say(message)
            case events.TargetLoaded(seconds=seconds):
                self._say(f"Target loaded in {duration_text(seconds)}.")
            case events.Planned(num_work=num_work, num_done=num_done, unit=unit):
                self._work, self._done, self._unit = num_work, num_done, unit
                before = f", {num_done} already done" if num_done else ""
                self._say(f"{num_work} {unit}{before}.")
            case events.WorkStarted(item_id=item_id):
                self._doing = item_id
                self._tallies.pop(item_id, None)
            case events.PhaseStarted(item_id=item_id, phase=phase, drafter=drafter):
                self._doing = " · ".join(filter(None, (item_id, phase, drafter)))
            case events.TurnFinished():
                self._note_turn(event)
            case events.ConversationFinished(status=status) if status != "ok":
                why = f": {event.message}" if event.message else ""
                self._say(f"  {event.drafter} on {event.item_id}: {status}{why}")
            case events.WorkFinished():
                self._finish_work(event)
            case events.WorkerRestarted(reason=reason):
                self._say(f"Worker restarted: {reason}")

    def _note_turn(self, event: events.TurnFinished) -> None:
        tallies, who = self._tallies.setdefault(event.item_id, {}), f"{event.drafter}, {event.mode}"
        tallies[who] = tallies[who] + event.tally if who in tallies else event.tally

    def _finish_work(self, event: events.WorkFinished) -> None:
        self._done, self._work, self._eta_s = event.num_done, event.num_work, event.eta_s
        self._say(f"[{event.num_done}/{event.num_work}] {event.item_id}{self._left()}")
        for text in _numbers(self._tallies.pop(event.item_id, {})):
            self._say(text)

    def _left(self) -> str:
        return "" if self._eta_s is None else f", about {duration_text(self._eta_s)} left"

    def _say(self, text: str) -> None:
        self._console.print(Text(printable(text)), soft_wrap=True)

    def _render(self) -> RenderableType:
        lines: list[RenderableType] = []
        if self._work:
            lines.append(ProgressBar(total=self._work, completed=self._done, width=40))
            lines.append(Text(f"{self._done} of {self._work} {self._unit}{self._left()}"))
        lines.append(Text(printable(self._doing), style="bold", overflow="ellipsis", no_wrap=True))
        for tallies in self._tallies.values():
            lines.extend(Text(printable(text)) for text in _numbers(tallies))
        return Group(*lines)


def _numbers(tallies: Mapping[str, Tally]) -> Iterator[str]:
    """A line for each drafter: over all turns of a conversation so far, as the tables count them."""
    for who, tally in tallies.items():
        parts = []
        if tally.acceptance_length is not None:
            parts.append(f"{tally.acceptance_length:.2f} tokens/step")
        if tally.tok_per_s is not None:
            parts.append(f"{tally.tok_per_s:.1f} tok/s")
        if parts:
            yield f"  {who}: {', '.join(parts)}"
