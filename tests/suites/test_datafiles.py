"""Files of rows: every kind, every way to be broken, and what they cost in memory."""

import gzip
import json
import tracemalloc
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from hyflash_bench.errors import DataError, DownloadError, HyFlashError, MissingDependency, UsageError
from hyflash_bench.suites.datafiles import DataFiles, HubSource, index_of, plain_file, row_at, scan
from hyflash_bench.suites.datafiles import index as index_module
from hyflash_bench.suites.datafiles import plain as plain_module
from hyflash_bench.suites.datafiles.choice import labels_of
from hyflash_bench.suites.formats import format_named

QUESTIONS = format_named("questions")
ROWS = [{"question_id": number, "turns": [f"Say {number}.", 'Again: "]}{[\\']} for number in range(5)]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYFLASH_BENCH_CACHE", str(tmp_path / "cache"))


def lines(rows: list[object]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def written(tmp_path: Path, content: bytes, name: str = "rows.jsonl") -> Path:
    path = tmp_path / name
    path.write_bytes(content)
    return path


def indexed(path: Path, *, skip: bool = False):
    return index_of([plain_file(path)], ["rows"], QUESTIONS, skip_bad_rows=skip)


def told(path: Path) -> list[list[str]]:
    """Everything that the rows say, read again from their places."""
    plain = plain_file(path)
    places = indexed(path).places
    return [[turn.text for turn in row_at(plain, place, QUESTIONS, "rows").turns] for place in places]


def parquet(tmp_path: Path) -> Path:
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path, row_group_size=2)
    return path


def test_all_kinds_of_files_say_the_same(tmp_path):
    files = [
        written(tmp_path, lines(ROWS)),
        written(tmp_path, lines(ROWS).replace(b"\n", b"\r\n\r\n"), "windows.jsonl"),
        written(tmp_path, b"\xef\xbb\xbf" + lines(ROWS).rstrip(), "bom.jsonl"),
        written(tmp_path, gzip.compress(lines(ROWS)), "rows.jsonl.gz"),
        written(tmp_path, json.dumps(ROWS).encode(), "rows.json"),
        written(tmp_path, json.dumps(ROWS, indent=2).encode(), "indented.json"),
        written(tmp_path, gzip.compress(json.dumps(ROWS).encode()), "rows.json.gz"),
        parquet(tmp_path),
    ]
    wanted = [row["turns"] for row in ROWS]
    assert [told(path) for path in files] == [wanted] * len(files)


def test_rows_of_a_list_in_one_line_are_told_apart(tmp_path):
    """As ShareGPT and others are published: without ids to rely on."""
    rows = [{"turns": [f"Say {number}."]} for number in range(3)]
    path = written(tmp_path, json.dumps(rows).encode(), "rows.json")
    assert [place.item for place in indexed(path).places] == ["line-1", "line-1.2", "line-1.3"]
    assert told(path) == [row["turns"] for row in rows]
    rows = [{"question_id": key, "turns": ["x"]} for key in ("a", "b", "a", "c")] + [{"turns": 3}]
    path = written(tmp_path, json.dumps(rows).encode(), "rows.json")
    index = indexed(path, skip=True)
    assert [place.item for place in index.places] == ["a", "b", "c"]
    assert (index.num_rows, index.num_found, index.num_bad) == (5, 3, 2)
    assert "line 1 (3. row in it): its id comes up before, in line 1;" in index.told() + ";"
    assert "line 1 (5. row in it): key 'turns' is a number" in index.told()


def test_one_object_over_several_lines_is_one_row(tmp_path):
    assert told(written(tmp_path, json.dumps(ROWS[0], indent=1).encode(), "one.json")) == [ROWS[0]["turns"]]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_a_list_is_cut_the_same_wherever_chunks_end(tmp_path, monkeypatch, size):
    path = written(tmp_path, json.dumps(ROWS, indent=1).encode(), "rows.json")
    whole = list(scan.raw_rows(path))
    monkeypatch.setattr(scan, "_CHUNK", size)
    with path.open("rb") as file:
        assert list(scan._of_list(file)) == whole
    assert [json.loads(row.content) for row in whole] == ROWS
    assert [row.content for row in whole] == [
        path.read_bytes()[row.offset : row.offset + len(row.content)] for row in whole
    ]
    assert [row.line for row in whole] == [2 + 7 * number for number in range(5)]


GOOD = lines(ROWS[:2])


@pytest.mark.parametrize(
    ("bad", "line", "reason"),
    [
        (b'{"question_id": 9, "turns": ["cut', 3, "ends in the middle of a value"),
        (b'{"turns": ["x"]} extra\n', 3, "no JSON: Extra data"),
        (b"[1, 2]\n", 3, "no object with named fields"),
        (b"3\n", 3, "no object with named fields"),
        (b'\n\n{"turns": 3}\n', 5, "'turns' is a number, not a list of texts"),
        (b'{"turns": ["caf\xe9"]}\n', 3, "not UTF-8 text"),
        (b'{"turns": ["\\ud800"]}\n', 3, "half of a surrogate pair"),
        (b'{"turns": ' + b"[" * 100_000 + b"\n", 3, "it cannot be read|is no JSON|in the middle"),
        (b'{"turns": ["x"], "question_id": ' + b"9" * 5000 + b"}\n", 3, "it cannot be read"),
        (lines(ROWS[1:2]), 3, "its id comes up before, in line 2"),
    ],
)
def test_a_wrong_row_gives_file_line_and_reason_and_can_be_left_out(tmp_path, bad, line, reason):
    path = written(tmp_path, GOOD + bad)
    with pytest.raises(DataError, match=rf"rows\.jsonl, line {line}: .*({reason})"):
        indexed(path)
    index = indexed(path, skip=True)
    assert (index.num_rows, index.num_bad, len(index.places)) == (3, 1, 2)
    assert f"line {line}" in index.told()


def test_a_line_of_100_mb_is_refused_without_being_held(tmp_path):
    path = tmp_path / "long.jsonl"
    with path.open("wb") as file:
        file.write(GOOD + b'{"turns": ["')
        for _ in range(100):
            file.write(b"x" * 2**20)
        file.write(b'"]}\n' + lines(ROWS[2:3]))
    tracemalloc.start()
    index = indexed(path, skip=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (index.num_bad, [place.line for place in index.places]) == (1, [1, 2, 4])
    assert "line 3: it has 104,857,61" in index.told()
    assert peak < 2 * scan.MAX_ROW_BYTES


def test_an_element_of_100_mb_in_a_list_is_refused_too(tmp_path, monkeypatch):
    monkeypatch.setattr(scan, "MAX_ROW_BYTES", 2**16)
    monkeypatch.setattr(scan, "_CHUNK", 2**12)
    rows = [ROWS[0], {"turns": ["x" * 2**17]}, ROWS[1]]
    index = indexed(written(tmp_path, json.dumps(rows).encode(), "rows.json"), skip=True)
    assert (index.num_bad, len(index.places)) == (1, 2)
    assert "at most 65,536 are read" in index.told()


@pytest.mark.parametrize("tail", [b"", b"]"])
def test_memory_does_not_grow_with_the_file(tmp_path, monkeypatch, tail):
    monkeypatch.setattr(index_module, "MAX_CONVERSATIONS", 100)
    peaks = []
    for num_rows in (2500, 7500):
        path = tmp_path / f"{num_rows}.json"
        with path.open("wb") as file:
            file.write(b"[" if tail else b"")
            for number in range(num_rows):
                row = json.dumps({"question_id": f"q{number}", "turns": ["word " * 200]}).encode()
                file.write((b",\n" if number and tail else b"\n" if number else b"") + row)
            file.write(tail)
        tracemalloc.start()
        index = indexed(path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert (index.num_rows, index.num_found, len(index.places)) == (num_rows, num_rows, 100)
    # Five megabytes more of file; sixteen bytes a row tell ids apart.
    assert path.stat().st_size > 7 * 10**6
    assert peaks[1] - peaks[0] < 10**6


def test_what_is_taken_of_a_large_file_is_spread_and_stays_the_same(tmp_path, monkeypatch):
    path = written(tmp_path, lines([{"turns": [str(number)]} for number in range(1000)]))
    everything = indexed(path)
    monkeypatch.setattr(index_module, "MAX_CONVERSATIONS", 100)
    taken = indexed(path).places
    assert taken == indexed(path).places
    assert [place for place in everything.places if place in taken] == taken
    assert sum(place.line <= 500 for place in taken) in range(30, 70)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b" \n\n ", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty when unpacked"),
        (b"PK\x03\x04rest", "zip archive"),
        ('{"turns": ["x"]}'.encode("utf-16"), "UTF-16"),
        (b"\x80\x04\x95\0\0\0", "is no text"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git LFS"),
        (b"PAR1" + b"\1" * 50, "row 1: the Parquet file is damaged or cut short"),
        (b"[]", "no row can be used"),
        (b"turns,category\nx,y\n", "line 1: it is no JSON"),
        (b"[" + GOOD.splitlines()[0] + b", 3]", "line 1: b'3' in the list is no object"),
        (b"[" + GOOD.splitlines()[0] + b', {"turns": ["a', "the list is not closed"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json.gz", "rows.parquet"])
def test_a_wrong_file_gives_its_name_and_the_reason(tmp_path, content, reason, name):
    with pytest.raises(DataError, match=reason) as caught:
        indexed(written(tmp_path, content, name))
    assert name in str(caught.value)


def test_a_packed_file_cut_short_names_the_line(tmp_path):
    rows = lines([{"turns": [f"{number * 7919:x} " * 50]} for number in range(3000)])
    packed = gzip.compress(rows)
    with pytest.raises(
        DataError, match=r"rows\.jsonl\.gz, line \d{3,}: the packed file ends here, cut short"
    ):
        indexed(written(tmp_path, packed[: len(packed) // 2], "rows.jsonl.gz"))
    damaged = packed[:-8] + b"12345678"
    with pytest.raises(DataError, match="the packed file is damaged"):
        indexed(written(tmp_path, damaged, "rows.jsonl.gz"))
    assert not list((tmp_path / "cache").rglob("*.jsonl*"))


def test_a_packed_file_does_not_fill_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(plain_module, "MAX_UNPACKED_BYTES", 10**6)
    with pytest.raises(DataError, match="unpacks to more than 1,000,000 bytes"):
        indexed(written(tmp_path, gzip.compress(b"\n" * 10**8), "bomb.jsonl.gz"))


def test_a_parquet_file_cut_short_is_told(tmp_path):
    path = parquet(tmp_path)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match=r"rows\.parquet, row 1: the Parquet file is damaged or cut short"):
        indexed(path)


def test_rows_of_parquet_are_counted_as_rows(tmp_path):
    path = tmp_path / "bad.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"turns": ["x"]}, {"turns": None}]), path)
    with pytest.raises(DataError, match=r"bad\.parquet, row 2: key 'turns' is null"):
        indexed(path)


def test_a_file_that_changes_while_it_is_used_is_noticed(tmp_path):
    path = written(tmp_path, lines(ROWS))
    plain, place = plain_file(path), indexed(path).places[3]
    path.write_bytes(lines(ROWS)[5:])
    with pytest.raises(DataError, match="line 4: the row is another one than when the run was planned"):
        row_at(plain, place, QUESTIONS, "rows")


def test_ids_that_repeat_from_file_to_file_are_told_apart_by_the_file(tmp_path):
    for name in ("gsm8k", "qa"):
        (tmp_path / name).mkdir()
        written(
            tmp_path / name, lines([{"question_id": 0, "category": "", "turns": ["x"]}]), "question.jsonl"
        )
    files = DataFiles.of([tmp_path]).files()
    labels = labels_of(files)
    index = index_of([plain_file(file) for file in files], labels, QUESTIONS, skip_bad_rows=False)
    assert [place.item for place in index.places] == ["gsm8k/question/0", "qa/question/0"]
    assert [place.category for place in index.places] == ["gsm8k/question", "qa/question"]


def test_files_named_after_their_split_go_by_their_folder():
    assert labels_of([Path("d/niah_single_1/validation.jsonl"), Path("d/vt/validation.jsonl.gz")]) == [
        "niah_single_1", "vt",
    ]  # fmt: skip


def test_ids_become_names_that_can_be_typed(tmp_path):
    ids = ["HumanEval/0", "a b", "a-b", "ümlaut", "x" * 200]
    index = indexed(written(tmp_path, lines([{"question_id": key, "turns": ["x"]} for key in ids])))
    names = [place.item for place in index.places]
    assert [names[0], names[2]] == ["HumanEval/0", "a-b"]
    assert len(set(names)) == 5
    assert all(name.isascii() and " " not in name and len(name) < 100 for name in names)


def test_the_digest_follows_what_is_read_and_nothing_else(tmp_path):
    digest = indexed(written(tmp_path, lines(ROWS))).digest
    assert indexed(written(tmp_path, gzip.compress(lines(ROWS)), "other.gz")).digest == digest
    assert indexed(written(tmp_path, lines(ROWS[:4]))).digest != digest
    assert indexed(written(tmp_path, lines(ROWS).replace(b"Say 3", b"Say 4"))).digest != digest


def test_paths_that_are_not_there_are_told(tmp_path):
    with pytest.raises(UsageError, match="No file"):
        DataFiles.of([tmp_path / "none.jsonl"]).files()
    with pytest.raises(UsageError, match="has no data file"):
        DataFiles.of([tmp_path]).files()


class Hub:
    """Stands in for the library ``datasets``."""

    def __init__(self, rows: list[object] | Exception) -> None:
        self.rows = rows
        self.asked: list[object] = []

    def load_dataset(self, *args: object, **kwargs: object) -> list[object]:
        self.asked.append((args, kwargs))
        if isinstance(self.rows, Exception):
            raise self.rows
        return self.rows


def test_the_hub_is_asked_once(monkeypatch):
    hub = Hub(ROWS)
    monkeypatch.setitem(__import__("sys").modules, "datasets", hub)
    source = HubSource(path="someone/questions", name="main", split="train", revision="abc")
    plain = source.fetched("")
    assert index_of([plain], ["x"], QUESTIONS, skip_bad_rows=False).num_rows == 5
    assert source.fetched("") == plain
    asked = {"split": "train", "revision": "abc", "data_files": None}
    assert hub.asked == [(("someone/questions", "main"), asked)]


def test_the_hub_that_is_not_there_is_told_with_the_way_around(monkeypatch):
    source = HubSource(path="someone/questions")
    monkeypatch.setitem(__import__("sys").modules, "datasets", Hub(ConnectionError("no route\nmore")))
    with pytest.raises(DownloadError, match=r"ConnectionError: no route\. .*Or give FILE") as caught:
        source.fetched("Or give FILE.")
    assert "more" not in str(caught.value)
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(MissingDependency, match=r"pip install 'hyflash-bench\[data\]'"):
        source.fetched("Or give FILE.")


def test_every_error_is_the_users(tmp_path):
    """Noise of any kind is refused in words."""
    for seed in range(60):
        noise = bytes((seed * 31 + at * at * 7) % 256 for at in range(200))
        with pytest.raises(HyFlashError, match=r"noise"):
            indexed(written(tmp_path, noise if seed % 2 else b'[{"' + noise, f"noise{seed}.json"))
