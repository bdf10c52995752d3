"""Rows made into frames with the same columns and dtypes whether or not there are any rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hyflash_bench.results.schema import IDENTITY

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COUNT", "FLAG", "FLOAT", "TEXT", "frame_of", "identity_dtypes"]

TEXT, COUNT, FLOAT, FLAG = "str", "Int64", "float64", "boolean"


def frame_of(rows: Iterable[Mapping[str, Any]], dtypes: Mapping[str, str]) -> pd.DataFrame:
    """Make a frame.

    Args:
        rows: Each with all the columns, or missing where it lacks one.
        dtypes: Of every column, in order.
    """
    import pandas as pd

    listed = list(rows)
    return pd.DataFrame(
        {name: pd.Series([row.get(name) for row in listed], dtype=dtype) for name, dtype in dtypes.items()}
    )


def identity_dtypes(names: Iterable[str]) -> dict[str, str]:
    """Dtypes of columns that name a cell."""
    known = {column.name: column.dtype for column in IDENTITY}
    return {name: known[name] for name in names}
