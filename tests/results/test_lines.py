"""JSON lines: whole lines or nothing."""

from __future__ import annotations

import errno
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyflash_bench.errors import DataError
from hyflash_bench.results.lines import LineFile, decode, encode, read_line_at, read_lines
from hyflash_bench.spec.base import Spec


class Note(Spec):
    """The smallest record."""

    text: str = ""
    number: float | None = None


class FullDisk:
    """A file that takes some bytes and then says that the disk is full."""

    def __init__(self, file, room: int) -> None:
        self.file, self.room = file, room

    def write(self, data) -> int:
        part = bytes(data[: self.room])
        if not part:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= len(part)
        return self.file.write(part)

    def __getattr__(self, name: str):
        return getattr(self.file, name)


def write(path: Path, notes: list[Note]) -> None:
    lines = LineFile(path)
    for note in notes:
        lines.append(note)
    lines.close()


def texts(path: Path) -> list[str]:
    return [line.value["text"] for line in read_lines(path)]


@settings(max_examples=30, deadline=None)
@given(notes=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, notes: list[str]) -> None:
    path = tmp_path_factory.mktemp("lines") / "notes.jsonl"
    write(path, [Note(text=text) for text in notes])
    assert texts(path) == notes


def test_offsets_find_lines_again(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    lines = LineFile(path)
    offsets = [lines.append(Note(text=text)) for text in ("é", "b", "c")]
    lines.close()
    assert offsets == [line.offset for line in read_lines(path)]
    assert [read_line_at(path, offset)["text"] for offset in offsets] == ["é", "b", "c"]


def test_a_line_torn_at_any_byte_is_ignored_and_then_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    write(path, [Note(text="first"), Note(text="lást")])
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first, len(whole)):
        path.write_bytes(whole[:length])
        assert texts(path) == ["first"]
        write(path, [Note(text="lást")])
        assert path.read_bytes() == whole


def test_a_long_torn_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    write(path, [Note(text="first")])
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"text": "' + b"x" * 200_000)
    LineFile(path).close()
    assert path.read_bytes() == whole


def test_damage_in_the_middle_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text('{"text": "a"}\n{"text": \n{"text": "c"}\n')
    with pytest.raises(DataError, match=r"notes\.jsonl, line 2 is not valid JSON"):
        texts(path)


@pytest.mark.parametrize("line", ["[1]", "3", '{"number": NaN}', '{"number": -Infinity}', "", "\x00\x00"])
def test_lines_that_are_no_records_are_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(DataError, match="line 1"):
        texts(path)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_lacks_are_refused_and_named(tmp_path: Path, number: float) -> None:
    path = tmp_path / "notes.jsonl"
    lines = LineFile(path)
    lines.append(Note(number=1.0))
    with pytest.raises(DataError, match="Note: number is NaN or infinite"):
        lines.append(Note(number=number))
    lines.append(Note(number=2.0))
    lines.close()
    assert [line.value["number"] for line in read_lines(path)] == [1.0, 2.0]


@pytest.mark.parametrize("room", range(0, 40, 3))
def test_a_full_disk_leaves_whole_lines_and_says_what_to_do(tmp_path: Path, room: int) -> None:
    path = tmp_path / "notes.jsonl"
    write(path, [Note(text="kept")])
    before = path.read_bytes()
    lines = LineFile(path, lambda path: FullDisk(path.open("ab+", buffering=0), room))  # type: ignore[arg-type,return-value]
    with pytest.raises(DataError, match=r"Disk full .* run the same command again; nothing .* is lost"):
        lines.append(Note(text="x" * 50))
    assert path.read_bytes() == before
    lines.close()
    assert path.read_bytes() == before


def test_encode_keeps_null_for_not_measured() -> None:
    assert encode(Note()) == '{"text": "", "number": null}'


def test_nesting_without_end_is_a_damaged_line() -> None:
    with pytest.raises(DataError, match="not valid JSON"):
        decode("[" * 100_000, "x")


def test_a_file_taken_away_while_it_is_written_is_told(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    lines = LineFile(path)
    lines.append(Note(text="kept"))
    path.unlink()
    with pytest.raises(DataError, match="removed or replaced"):
        lines.append(Note(text="lost"))
    lines.close()
