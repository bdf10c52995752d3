"""What is printed, and where."""

from __future__ import annotations

import json
import math

import pandas as pd
import pytest

from hyflash_bench import console
from hyflash_bench.engine.tally import Tally
from hyflash_bench.runner import events

RUN = [
    events.Log("Fetching Django 5.2.8"),
    events.TargetLoaded({"name": "tiny"}, 2.0),
    events.Planned(num_work=3, num_done=1),
    events.WorkStarted("quick/chat/[a]", ("suffix",)),
    events.PhaseStarted("quick/chat/[a]", "replay", "suffix"),
    events.TurnFinished("quick/chat/[a]", "suffix", "replay", 0, Tally(10, 30, 31, 0.0)),
    events.TurnFinished("quick/chat/[a]", "suffix", "replay", 1, Tally(30, 64, 64, 0.0)),
    events.TurnFinished("quick/chat/[a]", "suffix", "live", 0, Tally(10, 30, 31, 0.5)),
    events.TurnFinished("quick/chat/[a]", "suffix", "live", 1, Tally(30, 64, 64, 1.5)),
    events.TurnFinished("quick/chat/[a]", "quiet", "live", 0, Tally(0, 0, 0, 0.0)),
    events.ConversationFinished("quick/chat/[a]", "suffix", "ok", None),
    events.ConversationFinished("quick/chat/[a]", "big", "oom", "past the cap"),
    events.WorkFinished("quick/chat/[a]", 2, 3, 600.0),
    events.WorkerRestarted("it died"),
]


def test_without_a_terminal_progress_is_plain_lines_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """A log file reads like the run: no control codes, no markup taken from names."""
    with console.Progress() as progress:
        for event in RUN:
            progress(event)
    shown = capsys.readouterr()

    assert shown.out == ""
    assert shown.err.splitlines() == [
        "Fetching Django 5.2.8",
        "Target loaded in 2 s.",
        "3 conversations, 1 already done.",
        "  big on quick/chat/[a]: oom: past the cap",
        "[2/3] quick/chat/[a], about 10 min left",
        "  suffix, replay: 2.35 tokens/step",
        "  suffix, live: 2.35 tokens/step, 47.5 tok/s",
        "Worker restarted: it died",
    ]


def test_on_a_terminal_progress_shows_what_is_going_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Conversation, phase, drafter, its latest numbers and what is left."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    with console.Progress() as progress:
        for event in RUN[:9]:
            progress(event)
    shown = capsys.readouterr().err

    assert "quick/chat/[a] · replay · suffix" in shown
    assert "2.35 tokens/step, 47.5 tok/s" in shown
    assert "1 of 3 conversations" in shown


def test_no_color_is_respected(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """https://no-color.org"""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    console.checks([console.Check("pip", True, "present")])

    assert "\x1b[3" not in capsys.readouterr().out


def test_tables_show_every_row_and_say_when_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    """Names are never taken for markup; what was not measured is a dash."""
    console.table([{"drafter": "[red]x", "decode_tok_per_s": None}], "Speed")
    console.table([], "Failures")
    shown = capsys.readouterr().out

    assert "[red]x" in shown
    assert "decode tok/s" in shown
    assert "\u2013" in shown
    assert "Failures: nothing" in shown


def test_rows_are_plain_data() -> None:
    """NaN and NA become null, numbers stay numbers."""
    frame = pd.DataFrame(
        {"a": pd.array([1, None], dtype="Int64"), "b": [0.1 + 0.2, math.nan], "c": ["x", None]}
    )

    rows = console.rows_of(frame)

    assert rows == [{"a": 1, "b": pytest.approx(0.3), "c": "x"}, {"a": None, "b": None, "c": None}]
    json.dumps(rows, allow_nan=False)


def test_a_check_that_fails_shows_the_fix(capsys: pytest.CaptureFixture[str]) -> None:
    """Only then."""
    console.checks(
        [
            console.Check("pip", True, "present", "install pip"),
            console.Check("npm", False, "not found", "install npm"),
        ]
    )

    assert capsys.readouterr().out.splitlines() == [
        "ok    pip: present",
        "warn  npm: not found",
        "      install npm",
    ]


def test_names_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b[31mred\x1b]0;title\x07"
    with console.Progress() as progress:
        progress(events.ConversationFinished(evil, evil, "error", evil))
    console.note(evil)
    console.table([{"name": evil}], f"[red] {evil}")
    console.checks([console.Check(evil, False, evil, evil)])
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert "[red]" in shown.out
