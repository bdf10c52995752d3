"""Tables for other programs: CSV, Parquet, Markdown, LaTeX."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hyflash_bench.errors import MissingDependency, UnknownName
from hyflash_bench.results.atomic import replacing
from hyflash_bench.results.schema import TABLES

if TYPE_CHECKING:
    import pandas as pd

    from hyflash_bench.results.reader import Run

__all__ = ["FORMATS", "export_run", "export_table"]

NOT_MEASURED = "\N{EN DASH}"
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def export_table(frame: pd.DataFrame, path: Path | str) -> Path:
    """Write a frame in the format of the path's suffix, atomically.

    Args:
        frame: Any frame; its index is left out.
        path: ``.csv``, ``.parquet``, ``.md`` or ``.tex``; its folder is made if needed.

    Raises:
        UnknownName: Another suffix.
        MissingDependency: LaTeX without jinja2.
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
        file_format: csv, parquet, md or tex.
        tables: Which ones; all by default.

    Raises:
        UnknownName: No such format or table.
    """
    return [export_table(run.table(name), Path(folder) / f"{name}.{file_format}") for name in tables]


def _write_csv(frame: pd.DataFrame, path: Path) -> None:
    _without_formulas(frame).to_csv(path, index=False, encoding="utf-8", lineterminator="\n")


def _write_parquet(frame: pd.DataFrame, path: Path) -> None:
    frame.to_parquet(path, index=False)


def _write_markdown(frame: pd.DataFrame, path: Path) -> None:
    header = [_markdown_cell(name) for name in frame.columns]
    rules = ["---:" if _is_number(frame[name]) else "---" for name in frame.columns]
    rows = [[_markdown_cell(value) for value in row] for row in frame.itertuples(index=False)]
    lines = [f"| {' | '.join(cells)} |\n" for cells in (header, rules, *rows)]
    path.write_text("".join(lines), encoding="utf-8", newline="\n")


def _write_latex(frame: pd.DataFrame, path: Path) -> None:
    try:
        text = (
            frame.style.hide(axis="index")
            .format(_plain, escape="latex")
            .format_index(escape="latex", axis="columns")
        )
        path.write_text(text.to_latex(hrules=True), encoding="utf-8", newline="\n")
    except ImportError:
        raise MissingDependency(
            "LaTeX tables need jinja2, which is not installed. "
            "Run: pip install jinja2, or export csv, parquet or md."
        ) from None


FORMATS: Mapping[str, Callable[[pd.DataFrame, Path], None]] = {
    "csv": _write_csv,
    "parquet": _write_parquet,
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


def _markdown_cell(value: object) -> str:
    # Replies and error messages come from models; a table must not carry their markup.
    text = html.escape(_plain(value), quote=False)
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\r", " ").replace("\n", " ")


def _plain(value: object) -> str:
    import pandas as pd

    if value is None or value is pd.NA or value != value:  # noqa: PLR0124 - only NaN differs from itself
        return NOT_MEASURED
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _is_number(column: pd.Series) -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return is_numeric_dtype(column) and not is_bool_dtype(column)
