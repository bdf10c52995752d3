"""Tables for other programs: CSV, Parquet, JSON, Markdown, LaTeX."""

from __future__ import annotations

import hashlib
import html
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyflash_bench.atomic import replacing
from hyflash_bench.errors import DataError, UnknownName
from hyflash_bench.results.layout import Layout
from hyflash_bench.results.schema import TABLES

if TYPE_CHECKING:
    import pandas as pd

    from hyflash_bench.results.reader import Run

__all__ = ["FORMATS", "content_hash", "export_frames", "export_run", "export_table", "rows_of"]

NOT_MEASURED = "--"
_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
)
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069]")
"""What a text must not bring into a document: models write all that their vocabulary has."""
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def export_table(frame: pd.DataFrame, path: Path | str) -> Path:
    """Write a frame in the format of the path's suffix, atomically.

    Args:
        frame: Any frame; its index is left out.
        path: ``.csv``, ``.parquet``, ``.json`` (a list of rows), ``.md`` or ``.tex`` (needs booktabs);
            its folder is made if needed.

    Raises:
        UnknownName: Another suffix.
        DataError: The disk is full or the path cannot be written.
    """
    path = Path(path)
    write = FORMATS.get(path.suffix.removeprefix("."))
    if write is None:
        raise UnknownName("export format", path.suffix, (f".{name}" for name in FORMATS))
    with replacing(path) as temporary:
        write(frame, temporary)
    return path


def export_run(
    run: Run, folder: Path | str, file_format: str = "csv", tables: Iterable[str] = tuple(TABLES)
) -> list[Path]:
    """Write tables of a run as ``<folder>/<table>.<format>``.

    Args:
        run: The run.
        folder: Where to; made if needed.
        file_format: csv, parquet, json, md or tex.
        tables: Which ones; all by default.

    Raises:
        UnknownName: No such format or table.
    """
    return export_frames({name: run.table(name) for name in tables}, folder, file_format)


def export_frames(
    frames: Mapping[str, pd.DataFrame], folder: Path | str, file_format: str = "csv"
) -> list[Path]:
    """Write frames as ``<folder>/<name>.<format>``; see :func:`export_run`."""
    return [export_table(frame, Path(folder) / f"{name}.{file_format}") for name, frame in frames.items()]


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A frame's rows as plain values, floats as they are; what is missing is None."""
    columns = [_values(frame[name]) for name in frame]
    names = [str(name) for name in frame.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def content_hash(run: Run) -> str:
    """SHA-256 over the files that a run is read from: another hash, other content.

    Raises:
        DataError: A file cannot be read.
    """
    digest = hashlib.sha256()
    for path in Layout(run.folder).sources:
        digest.update(f"{path.name}\n".encode())
        try:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except FileNotFoundError:
            continue  # a run that was never begun has no lines
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror or error}.") from None
    return digest.hexdigest()


def _write_csv(frame: pd.DataFrame, path: Path) -> None:
    _without_formulas(frame).to_csv(path, index=False, encoding="utf-8", lineterminator="\n")


def _write_parquet(frame: pd.DataFrame, path: Path) -> None:
    frame.to_parquet(path, index=False)


def _write_json(frame: pd.DataFrame, path: Path) -> None:
    lines = (json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows_of(frame))
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8", newline="\n")


def _write_markdown(frame: pd.DataFrame, path: Path) -> None:
    rules = ["---:" if _is_number(frame[name]) else "---" for name in frame.columns]
    rows = [map(_markdown, frame.columns), rules, *_texts(frame, _markdown)]
    text = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    path.write_text(text, encoding="utf-8", newline="\n")


def _write_latex(frame: pd.DataFrame, path: Path) -> None:
    columns = "".join("r" if _is_number(frame[name]) else "l" for name in frame.columns)
    header, *rows = (" & ".join(row) + r" \\" for row in [map(_latex, frame.columns), *_texts(frame, _latex)])
    begin, end = rf"\begin{{tabular}}{{{columns}}}", r"\end{tabular}"
    lines = [begin, r"\toprule", header, r"\midrule", *rows, r"\bottomrule", end, ""]
    path.write_text("\n".join(lines), encoding="utf-8", newline="\n")


FORMATS: Mapping[str, Callable[[pd.DataFrame, Path], None]] = {
    "csv": _write_csv,
    "parquet": _write_parquet,
    "json": _write_json,
    "md": _write_markdown,
    "tex": _write_latex,
}


def _without_formulas(frame: pd.DataFrame) -> pd.DataFrame:
    """Put an apostrophe before text that a spreadsheet would run."""
    from pandas.api.types import is_object_dtype, is_string_dtype

    def neutral(value: object) -> object:
        return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_STARTS) else value

    texts = [name for name in frame if is_string_dtype(frame[name]) or is_object_dtype(frame[name])]
    return frame.assign(**{str(name): frame[name].map(neutral) for name in texts})


def _values(column: pd.Series[Any]) -> list[Any]:
    """A column as plain values; what is missing, or no number that JSON knows, is None."""
    known = column.notna() & ~column.isin([math.inf, -math.inf])
    return column.astype(object).where(known, None).tolist()


def _texts(frame: pd.DataFrame, escaped: Callable[[str], str]) -> Iterable[tuple[str, ...]]:
    """Rows as text."""
    columns = [[escaped(_plain(value)) for value in frame[name].astype(object)] for name in frame]
    return zip(*columns, strict=True)


def _markdown(text: str) -> str:
    # Replies and error messages come from models; a table must not carry their markup.
    text = html.escape(_spelt_out(text), quote=False).replace("\\", "\\\\").replace("|", "\\|")
    return " ".join(text.splitlines())


def _latex(text: str) -> str:
    return " ".join(_spelt_out(text).translate(_LATEX).splitlines())


def _spelt_out(text: str) -> str:
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _plain(value: object) -> str:
    import pandas as pd

    if value is None or value is pd.NA or value != value:  # noqa: PLR0124 - NaN alone differs from itself
        return NOT_MEASURED
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _is_number(column: pd.Series[Any]) -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return bool(is_numeric_dtype(column)) and not is_bool_dtype(column)
