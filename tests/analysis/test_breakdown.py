"""By kind, category, turn and context length: every conversation somewhere, none twice."""

from __future__ import annotations

import pandas as pd
import pytest

from hyflash_bench.analysis.breakdown import breakdown
from hyflash_bench.errors import UnknownName, UsageError
from tests.analysis.tables import HandRun, turn, turns


def said(item: str, committed: int, at: int = 0, **values: object) -> dict[str, object]:
    counts = {"num_uncut_committed": committed, "num_uncut_steps": 10}
    return turn(item, turn=at, **{"kind": "question", "category": "x", **counts, **values})


def test_turns_are_told_apart() -> None:
    run = HandRun(
        turns(*(said(f"{i}", 20 + 10 * at, at) for i in range(6) for at in range(2)), said("6", 90))
    )
    found = breakdown(run, "turn").set_index("turn")
    assert found["acceptance_length"].to_dict() == {0: pytest.approx(210 / 70), 1: 3.0}
    assert found["num_conversations"].to_dict() == {0: 7, 1: 6}
    assert found.loc[1, ["acceptance_length_low", "acceptance_length_high"]].tolist() == [3.0, 3.0]
    assert found["interval_method"].tolist() == ["BCa", "percentile"]


@pytest.mark.parametrize("by", ["kind", "category"])
def test_kinds_and_categories_are_told_apart_with_their_reason(by: str) -> None:
    rows = [said("a", 20, **{by: "code"}), said("b", 40, **{by: "prose"}), said("c", 60, **{by: "prose"})]
    found = breakdown(HandRun(turns(*rows)), by).set_index(by)  # type: ignore[arg-type]
    assert found["acceptance_length"].to_dict() == {"code": 2.0, "prose": 5.0}
    assert found.loc["code", "reason"] == "1 conversation; an interval needs 5"
    assert found["acceptance_length_low"].isna().all()


def test_a_failure_stands_in_its_own_row() -> None:
    rows = [said("a", 20, kind="code", status="oom"), said("b", 40)]
    found = breakdown(HandRun(turns(*rows)), "kind").set_index("kind")
    assert found.loc["code", ["status", "reason"]].tolist() == ["oom", "oom"]
    assert pd.isna(found.loc["code", "acceptance_length"])
    assert found.loc["question", "acceptance_length"] == 4.0


def test_quality_of_retrieval_is_a_metric_like_others() -> None:
    rows = [said(str(i), 20, kind="retrieval", score=float(i % 2)) for i in range(8)]
    row = breakdown(HandRun(turns(*rows)), "kind", "score").iloc[0]
    assert row["score"] == 0.5
    assert row["score_low"] < 0.5 < row["score_high"]


def test_what_cannot_be_broken_down_is_refused() -> None:
    run = HandRun(turns(said("a", 20)))
    with pytest.raises(UnknownName, match="Unknown breakdown 'topic'"):
        breakdown(run, "topic")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no ratio"):
        breakdown(run, "kind", "drafter_bytes")
