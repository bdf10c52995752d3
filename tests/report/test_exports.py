"""Tables for other programs, and what their columns mean."""

from __future__ import annotations

import pandas as pd
import pytest

from hyflash_bench.analysis.metrics import METRICS
from hyflash_bench.analysis.summary import by_context, headline
from hyflash_bench.errors import UnknownName
from hyflash_bench.report.exports import ANALYSES, definitions_of, frames_of
from hyflash_bench.results.reader import Run
from hyflash_bench.results.schema import TABLES


@pytest.fixture(scope="module")
def frames(small: Run) -> dict[str, pd.DataFrame]:
    """All of its tables."""
    return frames_of(small)


def test_all_tables_come_with_their_definitions_last(small: Run, frames: dict[str, pd.DataFrame]) -> None:
    assert [*frames] == [*ANALYSES, *TABLES, "definitions"]
    pd.testing.assert_frame_equal(frames["headline"], headline(small))
    pd.testing.assert_frame_equal(frames["by_context"], by_context(small))


def test_every_column_of_every_table_is_explained(frames: dict[str, pd.DataFrame]) -> None:
    """Nobody has to guess what a number is."""
    definitions = frames["definitions"]
    missing = definitions[definitions["definition"].isna()]

    assert missing[["table", "column"]].to_numpy().tolist() == []


def test_metrics_explain_their_columns(frames: dict[str, pd.DataFrame]) -> None:
    definitions = definitions_of({"headline": frames["headline"]}).set_index("column")

    for name in ("acceptance_length", "speedup", "drafter_bytes"):
        for attribute in ("unit", "better", "definition", "formula", "source"):
            assert definitions.loc[name, attribute] == getattr(METRICS[name], attribute)
    assert definitions.loc["acceptance_length_low", "unit"] == "tokens per step"
    assert "interval" in str(definitions.loc["acceptance_length_low", "definition"])


def test_an_unknown_table_is_named(small: Run) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'turns'"):
        frames_of(small, ["turn"])
