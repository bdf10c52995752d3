"""The front: who is beaten in nothing."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyflash_bench.analysis.pareto import pareto


def frame_of(*rows: tuple[str, float | None, float | None], **values: object) -> pd.DataFrame:
    names = ("drafter", "acceptance_length", "drafter_bytes")
    return pd.DataFrame([dict(zip(names, row, strict=True)) for row in rows]).assign(
        suite="s", status="ok", **values
    )


def fronts(frame: pd.DataFrame, **asked: str) -> dict[str, str | bool]:
    """True for those on the front, and who beats the others."""
    found = pareto(frame, **asked).dropna(subset=["is_on_front"]).to_dict("records")
    return {row["drafter"]: True if row["is_on_front"] else row["dominated_by"] for row in found}


def test_who_is_beaten_in_both_is_off_the_front() -> None:
    frame = frame_of(("small", 2.0, 10), ("large", 3.0, 90), ("worse", 1.9, 20), ("slower", 2.5, 90))
    assert fronts(frame) == {"small": True, "large": True, "worse": "small", "slower": "large"}


def test_equals_do_not_beat_each_other() -> None:
    assert fronts(frame_of(("a", 2.0, 10), ("b", 2.0, 10), ("c", 2.0, 11))) == {
        "a": True,
        "b": True,
        "c": "a",
    }


def test_a_drafter_without_a_number_is_kept_and_not_judged() -> None:
    frame = frame_of(("a", 2.0, 10), ("oom", None, 5), ("uncounted", 9.0, None))
    found = pareto(frame)
    assert found["drafter"].tolist() == ["a", "oom", "uncounted"]
    assert found["is_on_front"].tolist() == [True, pd.NA, pd.NA]


def test_groups_compete_apart_and_missing_caps_are_a_group() -> None:
    frame = pd.concat(
        [frame_of(("a", 2.0, 10), memory_cap_bytes=None), frame_of(("b", 3.0, 5), memory_cap_bytes=512)]
    )
    assert fronts(frame) == {"a": True, "b": True}


def test_directions_are_those_of_the_metrics() -> None:
    frame = frame_of(("a", 1.0, 10), ("b", 1.0, 20)).assign(ttft_s=[2.0, 1.0])
    assert fronts(frame, metric="ttft_s") == {"a": True, "b": True}
    assert fronts(frame.assign(ttft_s=[1.0, 2.0]), metric="ttft_s") == {"a": True, "b": "a"}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), min_size=1, max_size=12))
def test_the_front_is_what_a_comparison_of_all_with_all_leaves(rows: list[tuple[int, int]]) -> None:
    frame = frame_of(*((str(at), float(length), float(size)) for at, (length, size) in enumerate(rows)))
    expected = [
        not any(l >= length and s <= size and (l, s) != (length, size) for l, s in rows)  # noqa: E741
        for length, size in rows
    ]
    assert pareto(frame)["is_on_front"].tolist() == expected


def test_no_rows_no_front() -> None:
    found = pareto(frame_of(("a", 2.0, 10)).iloc[:0])
    assert found.empty
    assert {"is_on_front", "dominated_by"} <= set(found)


@pytest.mark.parametrize("length", [1024, None])
def test_context_lengths_can_be_told_apart(length: int | None) -> None:
    frame = pd.concat(
        [frame_of(("a", 2.0, 10), context_length=512), frame_of(("b", 3.0, 5), context_length=length)]
    )
    assert set(pareto(frame, by=("suite", "context_length"))["is_on_front"]) == {True}
