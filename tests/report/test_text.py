"""Numbers and names as people read them."""

from __future__ import annotations

import pandas as pd
import pytest

from hyflash_bench.report.text import (
    NOT_MEASURED,
    cell_text,
    duration_text,
    heading,
    printable,
    visible,
    without_paths,
)


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("peak_bytes", 1536, "1.5 KiB"),
        ("decode_tok_per_s", 1234.56, "1,234.6"),
        ("decode_s", 0.01234, "0.0123"),
        ("num_steps", 12345.0, "12,345"),
        ("context_length", 8192, "8,192"),
        ("acceptance_length", 2.3456, "2.35"),
        ("acceptance_rate", 0.0012, "0.0012"),
        ("is_reference", True, "yes"),
        ("drafter", "hyflash", "hyflash"),
        ("tasks", ["a", "b"], "a, b"),
        ("num_conversations", {"ok": 3, "oom": 1}, "ok=3, oom=1"),
        ("decode_s", float("nan"), NOT_MEASURED),
        ("peak_bytes", pd.NA, NOT_MEASURED),
        ("peak_bytes", None, NOT_MEASURED),
    ],
)
def test_a_value_reads_as_its_column_says(column: str, value: object, expected: str) -> None:
    """The unit comes from the column's name, and nothing measured is never zero."""
    assert cell_text(column, value) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"), [(45, "45 s"), (600, "10 min"), (12_000, "3 h 20 min"), (None, NOT_MEASURED)]
)
def test_durations_are_rounded_for_people(seconds: float | None, expected: str) -> None:
    """Seconds, then minutes, then hours."""
    assert duration_text(seconds) == expected


def test_headings_name_the_unit() -> None:
    """A unit in a column's name becomes a unit in its heading."""
    assert heading("decode_tok_per_s") == "decode tok/s"
    assert heading("peak_bytes") == "peak bytes"
    assert heading("num_steps") == "steps"
    assert heading("ttft_s") == "ttft (s)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--output-path /home/ada/runs/x --limit 2", "--output-path .../x --limit 2"),
        ("cannot open '/srv/model.gguf': gone", "cannot open '.../model.gguf': gone"),
        ("~/models/a.gguf", ".../a.gguf"),
        (r"C:\Users\Ada\run", ".../run"),
        ("org/name@main and results/run", "org/name@main and results/run"),
        ("https://example.org/a/b", "https://example.org/a/b"),
        ("32 tok/s, 1/2", "32 tok/s, 1/2"),
        ("--config=/srv/ada/run.yaml", "--config=.../run.yaml"),
    ],
)
def test_folders_of_absolute_paths_are_left_out(text: str, expected: str) -> None:
    """They name people and machines; relative paths and addresses do not."""
    assert without_paths(text) == expected


def test_what_commands_a_page_is_seen() -> None:
    assert visible("\x1b[2J\x00\r\x7f") == "\u241b[2J\u2400\u240d\u2421"
    assert visible("a\u202eb\x9b") == "a\\u202eb\\x9b"
    assert visible("two\nlines\tand ü 語") == "two\nlines\tand ü 語"


def test_what_commands_a_terminal_is_spelt_out():
    assert printable("\x1b]0;title\x07a\r\u202eb\x9b") == "\\x1b]0;title\\x07a\\r\\u202eb\\x9b"
    assert printable("two\nlines\tand ü 語") == "two\nlines\tand ü 語"
