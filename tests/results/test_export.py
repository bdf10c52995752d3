"""Exports: the same numbers in other programs, and no formulas."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from hyflash_bench.errors import DataError, UnknownName
from hyflash_bench.results import load_run
from hyflash_bench.results.export import FORMATS, content_hash, export_run, export_table
from hyflash_bench.results.schema import TABLES
from tests.results.factory import DRAFTERS, FAILING, make_run

EVIL = pd.DataFrame(
    {
        "text": pd.Series(["=1+1", "+2", "-3", "@x", "\tx", "fine", None], dtype="str"),
        "number": [-1.0, 2.0, float("nan"), -4.5, 0.0, 1e-9, 3.0],
    }
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("results") / "demo", [*DRAFTERS, *FAILING], num_per_group=1)


@pytest.mark.parametrize("file_format", FORMATS)
def test_every_table_in_every_format(tmp_path: Path, folder: Path, file_format: str) -> None:
    paths = export_run(load_run(folder), tmp_path / "deep" / "out", file_format)
    assert [path.name for path in paths] == [f"{name}.{file_format}" for name in TABLES]
    assert sorted(paths) == sorted((tmp_path / "deep" / "out").iterdir())
    assert all(path.stat().st_size for path in paths)


@pytest.mark.parametrize("name", TABLES)
def test_parquet_and_csv_come_back(tmp_path: Path, folder: Path, name: str) -> None:
    frame = load_run(folder).table(name)
    parquet = pd.read_parquet(export_table(frame, tmp_path / "x.parquet"))
    pd.testing.assert_frame_equal(parquet, frame)
    dtypes = dict(frame.dtypes)
    csv = pd.read_csv(export_table(frame, tmp_path / "x.csv"), dtype=dtypes, keep_default_na=True)
    pd.testing.assert_frame_equal(csv, frame)


def test_csv_text_is_never_a_formula_and_numbers_stay_numbers(tmp_path: Path) -> None:
    back = pd.read_csv(export_table(EVIL, tmp_path / "x.csv"))
    assert back["text"].tolist()[:6] == ["'=1+1", "'+2", "'-3", "'@x", "'\tx", "fine"]
    assert back["number"].tolist()[:2] == [-1.0, 2.0]
    assert EVIL["text"].iloc[0] == "=1+1"


def test_json_is_a_list_of_rows_without_nan(tmp_path: Path) -> None:
    """What is missing, or no number that JSON has, is null; floats keep all their digits."""
    frame = pd.DataFrame(
        {
            "count": pd.Series([3, None], dtype="Int64"),
            "ratio": [1 / 3, float("nan")],
            "endless": [float("inf"), -1.0],
            "flag": pd.Series([True, None], dtype="boolean"),
            "text": pd.Series(['<"\u20ac', None], dtype="str"),
        }
    )

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    rows = json.loads(export_table(frame, tmp_path / "x.json").read_text(), parse_constant=refuse)
    assert rows == [
        {"count": 3, "ratio": 1 / 3, "endless": None, "flag": True, "text": '<"\u20ac'},
        {"count": None, "ratio": None, "endless": -1.0, "flag": None, "text": None},
    ]
    assert json.loads(export_table(frame.iloc[:0], tmp_path / "none.json").read_text()) == []


@pytest.mark.parametrize("name", TABLES)
def test_json_holds_the_table(tmp_path: Path, folder: Path, name: str) -> None:
    frame = load_run(folder).table(name)
    rows = json.loads(export_table(frame, tmp_path / "x.json").read_text())
    back = pd.DataFrame(rows, columns=frame.columns, dtype=object).astype(dict(frame.dtypes))
    pd.testing.assert_frame_equal(back, frame)


def test_a_run_has_another_hash_when_anything_of_it_changes(tmp_path: Path) -> None:
    """Its name or place is not part of its content."""
    one = make_run(tmp_path / "one", DRAFTERS[:2], num_per_group=1)
    other = make_run(tmp_path / "other", DRAFTERS[:2], num_per_group=1)
    before = content_hash(load_run(one))
    assert before == content_hash(load_run(other))
    for name in ("manifest.json", "traces.jsonl", "conversations.jsonl"):
        run = load_run(other)
        with (other / name).open("a", encoding="utf-8") as file:
            file.write(" ")
        assert content_hash(run) != before
        before = content_hash(run)


def test_markdown_shows_text_as_text(tmp_path: Path) -> None:
    frame = pd.DataFrame({"message": ["<script>|x|\nnext", None], "n": [1.25, None]})
    lines = export_table(frame, tmp_path / "x.md").read_text().splitlines()
    assert lines == [
        "| message | n |",
        "| --- | ---: |",
        r"| &lt;script&gt;\|x\| next | 1.25 |",
        "| -- | -- |",
    ]


def test_latex_escapes(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a_b": ["50 % & $x^2$ \\ {y}"]})
    text = export_table(frame, tmp_path / "x.tex").read_text()
    assert r"a\_b \\" in text
    assert r"50 \% \& \$x\textasciicircum{}2\$ \textbackslash{} \{y\} \\" in text


@pytest.mark.parametrize("suffix", ["md", "tex"])
def test_control_characters_are_spelt_out_in_documents(tmp_path: Path, suffix: str) -> None:
    frame = pd.DataFrame({"text": ["a\x00b\x1b[31m\u202ec\x0bd"]})
    text = export_table(frame, tmp_path / f"x.{suffix}").read_text()
    assert not set(text) & {"\x00", "\x1b", "\u202e", "\x0b"}
    assert "x1b[31m" in text


def test_unknown_formats_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"export format '\.xlsx'"):
        export_table(EVIL, tmp_path / "x.xlsx")


def test_a_failed_export_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = export_table(EVIL, tmp_path / "x.csv")
    before = path.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_csv", full)
    with pytest.raises(DataError, match="Disk full"):
        export_table(EVIL, path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["x.csv"]
