"""Claims on runs made by hand, in which the truth is known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from hyflash_bench.analysis import budgets
from hyflash_bench.analysis.claims import evaluate, judge, require_claimable
from hyflash_bench.analysis.compare import compare
from hyflash_bench.analysis.intervals import Interval
from hyflash_bench.errors import UnknownName, UsageError
from hyflash_bench.results import load_run
from hyflash_bench.spec.claims import Claim, ClaimFile
from tests.analysis.tables import HandRun, table, turn
from tests.results.factory import DRAFTERS, FAILING, make_run

NUM_STEPS = 100


@dataclass
class ClaimRun(HandRun):
    """A run from turns, with a step for every hundredth of a turn's committed tokens."""

    pending: int = 0

    @property
    def steps(self) -> pd.DataFrame:
        """One row a turn: its steps taken together, where the turn began."""
        rows = [
            {**row, "committed": row["num_uncut_committed"], "accepted": 0, "drafted": 4, "limit_cut": False}
            for row in self.turns.to_dict("records")
        ]
        return table("steps", rows)

    @property
    def manifest(self) -> Any:
        """What says which drafters ran."""
        labels = dict.fromkeys(self.turns["drafter"])
        cells = [
            SimpleNamespace(
                drafter=label,
                drafter_name=label.partition(":")[0],
                drafter_options={"checkpoint": label.partition("checkpoint=")[2]},
                target="tiny",
            )
            for label in labels
        ]
        return SimpleNamespace(cells=cells)

    @property
    def cells(self) -> pd.DataFrame:
        """One row a cell, with what is still to be done."""
        return super().cells.assign(num_pending=self.pending)


def run_of(*rows: dict[str, Any], **values: Any) -> ClaimRun:
    return ClaimRun(table("turns", list(rows)), **values)


def said(drafter: str, item: int, length: float, context: int = 4096, **values: Any) -> dict[str, Any]:
    """A turn of 100 steps with this acceptance length."""
    known = {
        "suite": "longctx", "task": "t", "kind": "question", "cell_id": f"{drafter}-cell",
        "context_rung": context, "context_length": context,
        "num_uncut_steps": NUM_STEPS, "num_uncut_committed": round(NUM_STEPS * length),
    }  # fmt: skip
    return {**turn(f"t/question/{item}/{context}", drafter=drafter), **known, **values}


def drafts(
    drafter: str, length: float, context: int = 4096, *, num: int = 20, spread: float = 0.3
) -> list[Any]:
    """Conversations around an acceptance length. Easy texts are easy for every drafter."""
    easy = [Random(item).uniform(-spread, spread) for item in range(num)]
    own = [Random(f"{drafter}{item}{context}").uniform(-0.02, 0.02) for item in range(num)]
    return [said(drafter, item, length * (1 + easy[item] + own[item]), context) for item in range(num)]


def claim(**changes: Any) -> Claim:
    values = {
        "id": "c", "statement": "HyFlash is better.", "source": "paper", "metric": "acceptance_length",
        "drafter": "hyflash", "against": "full-context", "relation": "higher",
        "strata": {"suites": ["longctx"]},
    }  # fmt: skip
    return Claim.parse({**values, **changes}, "claim")


def verdict(run: Any, **changes: Any) -> pd.Series:
    frame = evaluate(ClaimFile(title="t", claims=(claim(**changes),)), run)
    assert len(frame) == 1
    return frame.iloc[0]


def test_a_clear_gain_is_reproduced_with_its_numbers() -> None:
    row = verdict(run_of(*drafts("hyflash", 2.4), *drafts("full-context", 2.0)))
    assert row["verdict"] == "reproduced"
    assert row["ratio"] == pytest.approx(row["value"] / row["reference_value"])
    assert 1.15 < row["ratio_low"] <= row["ratio"] <= row["ratio_high"] < 1.25
    assert (row["num_conversations"], row["wanted"], row["source"]) == (20, "above 1", "paper")
    assert pd.isna(row["reason"])


def test_a_clear_loss_is_not_reproduced() -> None:
    assert (
        verdict(run_of(*drafts("hyflash", 1.8), *drafts("full-context", 2.0)))["verdict"] == "not reproduced"
    )


def test_an_interval_around_the_threshold_is_inconclusive() -> None:
    row = verdict(run_of(*drafts("hyflash", 2.0), *drafts("full-context", 2.0)))
    assert row["ratio_low"] < 1 < row["ratio_high"]
    assert row["verdict"] == "inconclusive"


def test_pairing_shows_a_gain_smaller_than_the_spread_of_the_texts() -> None:
    rows = [*drafts("hyflash", 2.06, spread=0.6), *drafts("full-context", 2.0, spread=0.6)]
    assert verdict(run_of(*rows))["verdict"] == "reproduced"


def test_only_conversations_that_both_had_count() -> None:
    lost = [said("hyflash", item, 9.0) for item in range(100, 120)]
    row = verdict(run_of(*drafts("hyflash", 2.4), *lost, *drafts("full-context", 2.0)))
    assert row["num_conversations"] == 20
    assert row["ratio"] < 1.3


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (drafts("hyflash", 2.0), "full-context: not run"),
        (
            [*drafts("hyflash", 2.0), *drafts("full-context", 2.0, 512)],
            "full-context: no conversation there",
        ),
        (
            [
                *drafts("hyflash", 2.0),
                *drafts("full-context", 2.0),
                said("full-context", 99, 2.0, status="oom"),
            ],
            "full-context: oom on 1 of 21 conversations",
        ),
        (
            [*drafts("hyflash", 2.0), *[said("full-context", 50 + item, 2.0) for item in range(9)]],
            "no conversation in common",
        ),
    ],
)
def test_what_is_missing_is_not_tested_and_says_why(rows: list[dict[str, Any]], why: str) -> None:
    row = verdict(run_of(*rows), strata={"suites": ["longctx"], "contexts": [4096]})
    assert row["verdict"] == "not tested"
    assert pd.isna(row["ratio"])
    assert row["reason"] == why


def test_a_mismatch_anywhere_in_the_cell_voids_the_claim() -> None:
    rows = [*drafts("hyflash", 2.4), *drafts("full-context", 2.0)]
    for row in rows[20:]:
        row["cell_status"] = "mismatch"
    row = verdict(run_of(*rows))
    assert row["verdict"] == "not tested"
    assert "mismatch" in row["reason"]


def test_few_conversations_have_numbers_and_no_verdict() -> None:
    row = verdict(run_of(*drafts("hyflash", 3.0, num=3), *drafts("full-context", 2.0, num=3)))
    assert row["verdict"] == "inconclusive"
    assert row["ratio"] == pytest.approx(1.5, abs=0.05)
    assert pd.isna(row["ratio_low"])
    assert "3 conversations" in row["reason"]


def test_what_has_not_run_yet_is_told_beside_the_verdict() -> None:
    row = verdict(run_of(*drafts("hyflash", 2.4), *drafts("full-context", 2.0), pending=4))
    assert row["verdict"] == "reproduced"
    assert "conversations not run yet" in row["reason"]


def test_one_text_at_many_lengths_is_one_text() -> None:
    """Five lengths of one document say little more than one of them, however many rows they are."""
    lengths = (512, 1024, 2048, 4096, 7680)
    rows = [
        said(drafter, item, length * (1 + item * 0.05), context)
        for drafter, length in (("hyflash", 2.4), ("full-context", 2.0))
        for item in range(3)
        for context in lengths
    ]
    row = verdict(run_of(*rows))
    assert row["num_conversations"] == 15
    assert row["verdict"] == "inconclusive"
    assert pd.isna(row["ratio_low"])


@pytest.mark.parametrize(
    ("relation", "changes", "interval", "expected"),
    [
        ("higher", {}, (1.01, 1.2), "reproduced"),
        ("higher", {}, (1.0, 1.2), "inconclusive"),
        ("higher", {}, (1.0, 1.0), "not reproduced"),
        ("higher", {"threshold": 1.1}, (1.01, 1.09), "not reproduced"),
        ("lower", {}, (0.8, 0.99), "reproduced"),
        ("lower", {}, (0.8, 1.01), "inconclusive"),
        ("lower", {}, (1.0, 1.2), "not reproduced"),
        ("at-least", {}, (1.0, 1.0), "reproduced"),
        ("at-least", {}, (0.9, 1.2), "inconclusive"),
        ("at-least", {}, (0.8, 0.9), "not reproduced"),
        ("at-most", {"threshold": 0.1}, (0.02, 0.1), "reproduced"),
        ("at-most", {"threshold": 0.1}, (0.02, 0.2), "inconclusive"),
        ("at-most", {"threshold": 0.1}, (0.11, 0.2), "not reproduced"),
        ("equal", {}, (1.0, 1.0), "reproduced"),
        ("equal", {}, (0.99, 1.01), "inconclusive"),
        ("equal", {"tolerance": 0.02}, (0.99, 1.01), "reproduced"),
        ("equal", {"tolerance": 0.02}, (1.01, 1.05), "inconclusive"),
        ("equal", {"tolerance": 0.02}, (1.03, 1.05), "not reproduced"),
        ("equal", {"tolerance": 0.02}, (0.9, 0.97), "not reproduced"),
    ],
)
def test_the_whole_interval_has_to_lie_on_one_side(
    relation: str, changes: dict[str, Any], interval: tuple[float, float], expected: str
) -> None:
    ends = Interval(sum(interval) / 2, *interval, 20)
    assert judge(claim(relation=relation, **changes), ends) == expected


def test_the_same_numbers_are_equal_without_tolerance() -> None:
    rows = [
        said(drafter, item, 2 + item / 10)
        for drafter in ("hyflash", "hyflash:memory=zero")
        for item in range(8)
    ]
    row = verdict(run_of(*rows), against="hyflash:memory=zero", relation="equal")
    assert (row["verdict"], row["ratio"], row["ratio_low"], row["ratio_high"]) == ("reproduced", 1, 1, 1)


def bytes_of(drafter: str, context: int, size: int, num: int = 6) -> list[dict[str, Any]]:
    rows = drafts(drafter, 2.0, context, num=num)
    return [{**row, "drafter_peak_bytes": size + at * (drafter != "hyflash")} for at, row in enumerate(rows)]


def test_bytes_are_compared_by_a_factor() -> None:
    run = run_of(*bytes_of("hyflash", 7680, 1000), *bytes_of("full-context", 7680, 20_000))
    asked = {"metric": "drafter_peak_bytes", "relation": "at-most", "threshold": 0.1}
    row = verdict(run, **asked)
    assert row["verdict"] == "reproduced"
    assert (row["value"], row["reference_value"]) == (1000, 20_005)
    assert row["ratio_high"] == 1000 / 20_000
    assert verdict(run, **{**asked, "threshold": 0.01})["verdict"] == "not reproduced"
    # One conversation above and one below the factor: neither.
    assert verdict(run, **{**asked, "threshold": 1000 / 20_003})["verdict"] == "inconclusive"


def test_bytes_of_one_drafter_at_two_lengths() -> None:
    asked = {
        "metric": "drafter_peak_bytes", "relation": "equal",
        "strata": {"suites": ["longctx"], "contexts": [7680]},
        "against_strata": {"suites": ["longctx"], "contexts": [1024]},
    }  # fmt: skip
    rows = [*bytes_of("hyflash", 1024, 1000), *bytes_of("hyflash", 7680, 1000)]
    row = verdict(run_of(*rows), against="hyflash", **asked)
    assert row["verdict"] == "reproduced"
    assert row["strata"] == "longctx, at 7,680 tokens; against longctx, at 1,024 tokens"
    rows[-1]["drafter_peak_bytes"] += 1
    assert verdict(run_of(*rows), against="hyflash", **asked)["verdict"] == "inconclusive"
    grown = [*bytes_of("full-context", 1024, 1000), *bytes_of("full-context", 7680, 8000)]
    row = verdict(run_of(*grown), drafter="full-context", against="full-context", **asked)
    assert row["verdict"] == "not reproduced"


def test_bytes_that_nobody_counted_are_not_tested() -> None:
    row = verdict(run_of(*drafts("hyflash", 2.0), *drafts("full-context", 2.0)), metric="drafter_peak_bytes")
    assert (row["verdict"], row["reason"]) == ("not tested", "not measured")


GROWS = {
    "strata": {"suites": ["longctx"], "contexts": {"from": 2048}},
    "than": {"strata": {"suites": ["longctx"], "contexts": {"below": 2048}}},
}


@pytest.mark.parametrize(
    ("long_gain", "expected"), [(1.3, "reproduced"), (1.1, "inconclusive"), (1.0, "not reproduced")]
)
def test_a_gain_that_grows_with_context(long_gain: float, expected: str) -> None:
    rows = [
        *drafts("hyflash", 2.2, 512), *drafts("full-context", 2.0, 512),
        *drafts("hyflash", 1.8 * long_gain, 4096), *drafts("full-context", 1.8, 4096),
    ]  # fmt: skip
    row = verdict(run_of(*rows), **GROWS)
    assert row["verdict"] == expected
    assert row["value"] == pytest.approx(long_gain, rel=0.02)
    assert row["reference_value"] == pytest.approx(1.1, rel=0.02)
    assert row["ratio"] == pytest.approx(row["value"] / row["reference_value"])
    assert row["drafter"] == row["reference"] == "hyflash / full-context"
    assert row["strata"] == "longctx, from 2,048 tokens; against longctx, below 2,048 tokens"


@pytest.mark.parametrize(("deep_gain", "expected"), [(1.05, "reproduced"), (1.4, "not reproduced")])
def test_a_gain_that_is_larger_for_shallow_drafters(deep_gain: float, expected: str) -> None:
    deep, rival = "hyflash:checkpoint=hyflash-l3", "full-context:checkpoint=full-context-l3"
    rows = [
        *drafts("hyflash", 2.4), *drafts("full-context", 2.0),
        *drafts(deep, 2.5 * deep_gain), *drafts(rival, 2.5),
    ]  # fmt: skip
    row = verdict(run_of(*rows), than={"drafter": deep, "against": rival})
    assert row["verdict"] == expected
    assert row["reference"] == f"{deep} / {rival}"
    missing = verdict(run_of(*rows[:60]), than={"drafter": deep, "against": rival})
    assert (missing["verdict"], missing["reason"]) == ("not tested", f"{rival}: not run")


def test_a_range_cuts_conversations_that_grow() -> None:
    """By the context of each step, where a step is what the metric counts."""
    rows = [
        said(drafter, item, length, context, context_rung=None, item_id=f"talk/{item}", turn=at)
        for drafter, lengths in (("hyflash", (2.0, 3.0)), ("full-context", (2.0, 2.0)))
        for item in range(6)
        for at, (context, length) in enumerate(zip((100, 3000), lengths, strict=True))
    ]
    early = verdict(run_of(*rows), strata={"suites": ["longctx"], "contexts": {"below": 2048}})
    late = verdict(run_of(*rows), strata={"suites": ["longctx"], "contexts": {"from": 2048}})
    assert (early["ratio"], late["ratio"]) == (1.0, 1.5)
    assert (early["verdict"], late["verdict"]) == ("not reproduced", "reproduced")


def test_contexts_told_apart_get_a_row_each() -> None:
    rows = [*drafts("hyflash", 2.4, 512), *drafts("full-context", 2.0, 512)]
    strata = {"suites": ["longctx"], "contexts": {"only": [512, 1024], "apart": True}}
    frame = evaluate(ClaimFile(title="t", claims=(claim(strata=strata),)), run_of(*rows))
    assert list(frame["strata"]) == ["longctx, at 512 tokens", "longctx, at 1,024 tokens"]
    assert list(frame["verdict"]) == ["reproduced", "not tested"]


def test_kinds_and_samplings_are_kept_apart() -> None:
    rows = [*drafts("hyflash", 2.4), *drafts("full-context", 2.0)]
    other = [{**row, "kind": "code"} for row in rows]
    sampled = [{**row, "sampling": "T=0.7"} for row in rows]
    for changed, strata in ((other, {"kinds": ["code"]}), (sampled, {"sampling": "T=0.7"})):
        run = run_of(*changed)
        assert verdict(run)["verdict"] == ("reproduced" if changed is other else "not tested")
        assert verdict(run, strata={"suites": ["longctx"], **strata})["verdict"] == "reproduced"


def test_metrics_that_nothing_can_be_claimed_of_are_refused_at_once() -> None:
    for changes, kind, words in (
        ({"metric": "acceptance_lenght"}, UnknownName, "Did you mean 'acceptance_length'"),
        ({"metric": "position_acceptance"}, UsageError, "does not compare drafters"),
        ({"metric": "drafter_kv_bytes", "than": GROWS["than"]}, UsageError, "has no gain"),
    ):
        with pytest.raises(kind, match=words):
            require_claimable(ClaimFile(title="t", claims=(claim(**changes),)))


def test_numbers_are_those_of_compare_on_a_stored_run(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "run", [*DRAFTERS, FAILING[1]]))
    label = "hyflash:window=256"
    row = verdict(run, drafter=label)
    table = compare((run, "full-context"), metric="acceptance_length")
    same = table[
        (table["drafter"] == label) & (table["suite"] == "longctx") & table["memory_cap_bytes"].isna()
    ].iloc[0]
    for name in ("ratio", "value", "reference_value", "num_conversations"):
        assert row[name] == pytest.approx(same[name])
    assert row["verdict"] == "reproduced"
    assert (
        "too-big: oom on 12 of 18 conversations (made up: oom"
        in (verdict(run, drafter=label, against="too-big")["reason"])
    )
    assert verdict(run, strata={"suites": ["longctx"]}, against="prompt-lookup", drafter=label)["ratio"] > 1


@pytest.fixture
def baselines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Shipped checkpoints that say how they were trained."""
    for name, training in (
        (
            "hyflash-l1",
            '{"steps": 1500, "planned_steps": 1500, "tokens_seen": 2000000, "seed": 0, "seconds": 9.5}',
        ),
        ("full-context-l1", '{"steps": 1500, "tokens_seen": 2000000, "seed": 0, "num_parameters": 7}'),
        ("hyflash-l3", '{"steps": 40, "planned_steps": 1500, "corpus": "0123456789abcdef"}'),
        ("broken", "["),
    ):
        (tmp_path / "tiny" / name).mkdir(parents=True)
        (tmp_path / "tiny" / name / "config.json").write_text(f'{{"training": {training}}}')
    monkeypatch.setenv("HYFLASH_BENCH_BASELINES_DIR", str(tmp_path))
    return tmp_path


def test_the_training_behind_the_drafters_stands_beside_the_verdict(baselines: Path) -> None:
    del baselines
    row = verdict(run_of(*drafts("hyflash", 2.4), *drafts("full-context", 2.0)))
    assert row["budget"] == "hyflash, full-context: 1,500 steps, 2,000,000 tokens, seed 0"
    deep = "hyflash:checkpoint=hyflash-l3"
    row = verdict(run_of(*drafts("hyflash", 2.4), *drafts(deep, 2.0)), against=deep)
    assert row["budget"] == (
        f"hyflash: 1,500 steps, 2,000,000 tokens, seed 0; {deep}: 40 of 1,500 steps, corpus 01234567"
    )


def test_a_checkpoint_that_is_not_there_has_no_known_training(baselines: Path) -> None:
    del baselines
    for name in ("nowhere", "broken", "../tiny/hyflash-l1"):
        label = f"hyflash:checkpoint={name}"
        row = verdict(run_of(*drafts(label, 2.4), *drafts("full-context", 2.0)), drafter=label)
        assert row["budget"].startswith(f"{label}: training not known")
    assert budgets.is_shipped("tiny", "hyflash:checkpoint=hyflash-l3,memory=zero")
    assert budgets.is_shipped("tiny", "prompt-lookup:max_ngram=2")
    assert not budgets.is_shipped("tiny", "window:checkpoint=window-equal-bytes")
    assert not budgets.is_shipped("elsewhere", "hyflash:checkpoint=hyflash-l3")
