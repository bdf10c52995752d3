"""Metrics on tables small enough to work out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyflash_bench.analysis.metrics import METRICS, QUANTILES, definitions_of, metric_named
from hyflash_bench.errors import UnknownName, UsageError
from hyflash_bench.results.reader import load_run
from tests.analysis.tables import turn, turns
from tests.results.factory import DRAFTERS, make_run


def over(name: str, frame: pd.DataFrame) -> float:
    values = METRICS[name].over(frame)
    return float(values.iloc[0]) if len(values) else math.nan


def uncut(item: str, committed: int, steps: int, **values: object) -> dict[str, object]:
    return turn(item, num_uncut_committed=committed, num_uncut_steps=steps, **values)


def test_acceptance_length_is_pooled_and_its_mean_is_not() -> None:
    frame = turns(uncut("long", 30, 10), uncut("long", 10, 10, turn=1), uncut("short", 4, 1))
    assert over("acceptance_length", frame) == pytest.approx(44 / 21)
    assert over("acceptance_length_mean", frame) == pytest.approx((40 / 20 + 4 / 1) / 2)


def test_steps_cut_by_the_limit_are_left_out() -> None:
    frame = turns(uncut("one", 6, 2, num_committed=7, num_steps=3))
    assert over("acceptance_length", frame) == 3.0


def test_a_reply_without_a_step_says_nothing() -> None:
    frame = turns(uncut("one", 6, 2), uncut("empty", 0, 0))
    assert over("acceptance_length", frame) == 3.0
    assert over("acceptance_length_mean", frame) == 3.0


def test_live_turns_are_not_counted_beside_their_replay() -> None:
    frame = turns(uncut("one", 6, 2), uncut("one", 60, 2, mode="live", is_scored=False))
    assert over("acceptance_length", frame) == 3.0


def test_acceptance_rate_leaves_the_bonus_out() -> None:
    assert over("acceptance_rate", turns(turn(num_uncut_accepted=3, num_uncut_drafted=12))) == 0.25


def test_nothing_drafted_is_no_rate() -> None:
    assert math.isnan(over("acceptance_rate", turns(turn(num_uncut_accepted=0, num_uncut_drafted=0))))


def test_speed_is_of_live_turns_that_were_timed() -> None:
    frame = turns(
        turn("a", mode="live", num_committed=30, decode_s=2.0),
        turn("b", mode="live", num_committed=10, decode_s=2.0),
        turn("c", mode="live", num_committed=99, decode_s=None),
        turn("d", mode="replay", num_committed=99, decode_s=None),
    )
    assert over("decode_tok_per_s", frame) == 10.0


def test_shares_add_up() -> None:
    parts = {"draft_s": 1.0, "verify_s": 2.0, "observe_s": 0.5, "overhead_s": 0.5}
    frame = turns(turn(mode="live", decode_s=4.0, **parts))
    shares = [over(f"{part}_share", frame) for part in ("draft", "verify", "observe", "overhead")]
    assert shares == [0.25, 0.5, 0.125, 0.125]


def test_times_to_the_first_token_are_means_over_turns() -> None:
    frame = turns(
        turn("a", mode="live", ttft_s=1.0),
        turn("b", mode="live", ttft_s=4.0),
        turn("b", mode="live", ttft_s=4.0),
    )
    assert over("ttft_s", frame) == 3.0


def test_bytes_are_the_largest() -> None:
    frame = turns(
        turn("a", drafter_kv_bytes=5), turn("b", drafter_kv_bytes=9), turn("c", drafter_kv_bytes=None)
    )
    assert over("drafter_kv_bytes", frame) == 9.0


def test_not_measured_is_null_and_never_zero() -> None:
    frame = turns(turn())
    for metric in METRICS.values():
        if metric.above and metric.pooling != "count":
            values = metric.over(frame)
            assert values.empty or values.isna().all(), metric.name


def test_lossless_turns_are_counted_mismatches_included() -> None:
    words = ["identical", "identical", "near_tie", "mismatch", "not_judged"]
    frame = turns(
        *(turn(str(i), mode="live", lossless=word) for i, word in enumerate(words)),
        turn("bad", mode="live", lossless="mismatch", status="mismatch"),
        turn("replayed", lossless="not_judged"),
    )
    counts = {word: over(f"num_{word}", frame) for word in dict.fromkeys(words)}
    assert counts == {"identical": 2, "near_tie": 1, "mismatch": 2, "not_judged": 1}


def test_failed_conversations_do_not_count() -> None:
    failed = [uncut(s, 100, 1, status=s) for s in ("oom", "error", "timeout", "interrupted", "mismatch")]
    assert over("acceptance_length", turns(uncut("one", 6, 2), *failed)) == 3.0


def test_scores_and_degenerate_turns() -> None:
    frame = turns(
        turn("a", score=1.0, degenerate=False),
        turn("b", score=0.5, degenerate=True),
        turn("c", score=None, degenerate=False),
        turn("d", score=None, degenerate=None),
    )
    assert over("score", frame) == 0.75
    assert over("degenerate_share", frame) == pytest.approx(1 / 3)


def test_groups_with_a_missing_key_are_groups_too() -> None:
    frame = turns(uncut("a", 6, 2, memory_cap_bytes=None), uncut("a", 8, 2, memory_cap_bytes=10))
    assert sorted(METRICS["acceptance_length"].over(frame, ["memory_cap_bytes"])) == [3.0, 4.0]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(0, 5)), min_size=1, max_size=30))
def test_pooling_does_not_depend_on_the_cut_into_turns(rows: list[tuple[int, int, int]]) -> None:
    frame = turns(*(uncut(str(item), steps + accepted, steps) for item, steps, accepted in rows))
    expected = sum(s + a for _, s, a in rows) / sum(s for _, s, _ in rows)
    assert over("acceptance_length", frame) == pytest.approx(expected)
    assert over("acceptance_length", frame) >= 1.0
    whole = METRICS["acceptance_length"].per_conversation(frame)
    assert len(whole) == len({item for item, _, _ in rows})


def test_every_metric_can_be_read_by_people() -> None:
    for name, metric in METRICS.items():
        assert metric.name == name
        assert metric.unit
        assert metric.formula
        assert metric.definition.endswith(".")


def test_time_per_token_is_the_inverse_of_speed() -> None:
    frame = turns(turn("a", mode="live", num_committed=30, decode_s=2.0))
    assert over("time_per_output_token_s", frame) == pytest.approx(1 / over("decode_tok_per_s", frame))


def test_energy_is_per_token_of_the_reply_where_it_was_measured() -> None:
    frame = turns(
        turn("a", mode="live", energy_j=30.0, num_output_tokens=10),
        turn("b", mode="live", energy_j=None, num_output_tokens=99),
    )
    assert over("energy_j_per_token", frame) == 3.0


def test_rungs_of_one_document_carry_its_name() -> None:
    frame = turns(
        *(uncut(f"t/7/{rung}", 6, 2, context_rung=rung) for rung in (512, 2048)),
        uncut("t/7", 6, 2, context_rung=None),
        uncut("t/8/512", 6, 2, context_rung=None),  # ends in a number that is no rung
    )
    sums = METRICS["acceptance_length"].per_conversation(frame)
    assert list(sums["document"]) == ["s/t/7", "s/t/7", "s/t/7", "s/t/8/512"]
    assert list(sums) == ["suite", "item_id", "document", "above", "below"]


def test_conversations_about_one_document_carry_its_name() -> None:
    """Whatever they are called; where a run does not say, by the item's name."""
    frame = turns(
        *(uncut(f"t/{name}", 6, 2, document=about) for name, about in [("a", "x"), ("b", "x"), ("c", "y")]),
        uncut("t/d", 6, 2),
    )
    sums = METRICS["acceptance_length"].per_conversation(frame)
    assert list(sums["document"]) == ["s/x", "s/x", "s/y", "s/t/d"]


def test_definitions_of_a_table_are_those_of_its_metrics() -> None:
    found = definitions_of(["drafter", "acceptance_length", "acceptance_length", "acceptance_length_low"])
    assert [each["name"] for each in found] == ["acceptance_length"]
    assert set(found[0]) == {"name", "unit", "better", "definition", "formula", "source"}
    assert all(found[0].values())


def test_every_percentile_is_a_metric() -> None:
    for name in ("ttft", "time_per_output_token", "step"):
        for percent in QUANTILES:
            metric = METRICS[f"{name}_p{percent}_s"]
            assert (metric.better, metric.table) == ("lower", "latency.latency")


def test_unknown_metrics_are_named() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'acceptance_length'"):
        metric_named("acceptance_lenght")


def test_metrics_that_need_more_than_turns_say_so() -> None:
    with pytest.raises(UsageError, match="position_acceptance"):
        METRICS["position_acceptance"].over(turns())


def test_numbers_of_many_groups_at_once_are_those_of_each(tmp_path: Path) -> None:
    """The quick way gives what the plain one does, for every metric that follows from turns."""
    made = load_run(make_run(tmp_path / "run", DRAFTERS[:3], num_per_group=1)).turns
    numbers, labels = pd.factorize(made["drafter"])
    for metric in METRICS.values():
        if metric.pooling == "table":
            continue
        expected = metric.over(made, ["drafter"]).reindex(labels).to_numpy(dtype="float64")
        got = metric.by_number(made, numbers, len(labels))
        np.testing.assert_allclose(got, expected, rtol=1e-12, err_msg=metric.name)
    assert np.isnan(METRICS["acceptance_length"].by_number(made, numbers, len(labels) + 1)[-1])
