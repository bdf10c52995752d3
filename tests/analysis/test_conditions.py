"""Conditions: a small grammar, and verdicts that do not pass in silence."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from hyflash_bench.analysis.conditions import judge, parse_condition
from hyflash_bench.errors import UnknownName, UsageError
from hyflash_bench.results.schema import TABLES


def row(metric: str = "acceptance_length", **values: Any) -> dict[str, Any]:
    known = {
        "metric": metric, "run": "new", "drafter": "d", "suite": "s", "sampling": "greedy",
        "reference_run": "old", "reference": "d", "value": 2.0, "reference_value": 2.0,
        "ratio": 1.0, "ratio_low": 0.9, "ratio_high": 1.1, "reason": None,
    }  # fmt: skip
    return {**{column.name: None for column in TABLES["cells"]}, **known, **values}


def outcomes(text: str, *rows: dict[str, Any]) -> list[str]:
    return judge([parse_condition(text)], pd.DataFrame(rows))["outcome"].tolist()


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("acceptance_length<0.97", "does not hold"),
        ("acceptance_length<1", "does not hold"),
        ("acceptance_length<=1", "holds"),
        ("acceptance_length >= 1.0", "holds"),
        ("  acceptance_length.ratio>0.5 ", "holds"),
        ("acceptance_length.low<0.95", "holds"),
        ("acceptance_length.high>1.1", "does not hold"),
        ("acceptance_length.value<2.5", "holds"),
        ("acceptance_length.value>1e2", "does not hold"),
        ("acceptance_length<2 and acceptance_length.low>0.8", "holds"),
        ("acceptance_length<2 and acceptance_length.low>1", "does not hold"),
    ],
)
def test_conditions_say_what_they_mean(text: str, outcome: str) -> None:
    assert outcomes(text, row()) == [outcome]


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("acceptance_lenght<1", UnknownName, "Did you mean 'acceptance_length'"),
        ("acceptance_length.hihg<1", UnknownName, "Did you mean 'high'"),
        ("num_identical<1", UsageError, "does not compare drafters"),
        ("acceptance_length=1", UsageError, "is no comparison"),
        ("acceptance_length", UsageError, "is no comparison"),
        ("acceptance_length<1 or acceptance_rate<1", UsageError, "is no comparison"),
        ("acceptance_length<1 and", UsageError, "is no comparison"),
        ("acceptance_length<nan", UsageError, "is no number"),
        ("acceptance_length<3%", UsageError, "'3%' is no number"),
        ("", UsageError, "is no comparison"),
    ],
)
def test_what_is_no_condition_is_refused_with_an_example(text: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        parse_condition(text)


def test_all_comparisons_of_a_condition_meet_in_one_drafter_on_one_work() -> None:
    text = "acceptance_length<1 and decode_tok_per_s<1"
    rows = [
        row(ratio=0.9, drafter="a"),
        row("decode_tok_per_s", ratio=1.1, drafter="a"),
        row(ratio=1.1, drafter="b"),
        row("decode_tok_per_s", ratio=0.9, drafter="b"),
        row(ratio=0.9, drafter="c"),
        row("decode_tok_per_s", ratio=0.9, drafter="c"),
    ]
    found = judge([parse_condition(text)], pd.DataFrame(rows))
    assert dict(zip(found["drafter"], found["outcome"], strict=True)) == {
        "a": "does not hold",
        "b": "does not hold",
        "c": "holds",
    }
    assert found["numbers"].iloc[2] == "acceptance_length.ratio 0.9, decode_tok_per_s.ratio 0.9"


def test_a_number_that_was_lost_is_no_pass() -> None:
    nan = float("nan")
    lost = row(value=nan, ratio=nan, reason="oom")
    assert outcomes("acceptance_length<0.97", lost) == ["lost"]
    assert outcomes("acceptance_length<0.97", {**lost, "reference_value": nan}) == ["not judged"]
    few = row(ratio_low=nan, ratio_high=nan, reason="3 conversations; an interval needs 5")
    assert outcomes("acceptance_length.high<1", few) == ["lost"]
    # One comparison that fails decides, whatever the others would have said.
    assert outcomes("acceptance_length<0.5 and acceptance_length.high<1", few) == ["does not hold"]


def test_every_condition_is_held_against_every_row() -> None:
    conditions = [parse_condition("acceptance_length<1"), parse_condition("acceptance_length>1")]
    found = judge(conditions, pd.DataFrame([row(drafter="a", ratio=2.0), row(drafter="b", ratio=0.5)]))
    assert found["outcome"].tolist() == ["does not hold", "holds", "holds", "does not hold"]
    assert conditions[0].metrics == ("acceptance_length",)
