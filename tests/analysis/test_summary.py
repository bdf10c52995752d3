"""Headline, by context, failures: nothing hidden, nothing made up."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pandas as pd
import pytest

from hyflash_bench.analysis.metrics import METRICS
from hyflash_bench.analysis.summary import by_context, failures, headline, summary
from hyflash_bench.errors import UnknownName
from hyflash_bench.results import Run, RunWriter, load_run
from tests.analysis.tables import HandRun, turn, turns
from tests.results.factory import DRAFTERS, FAILING, make_run, manifest_of, records


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load_run(make_run(tmp_path_factory.mktemp("results") / "demo"))


@pytest.fixture(scope="module")
def head(run: Run) -> pd.DataFrame:
    return headline(run)


def row(frame: pd.DataFrame, **keys: object) -> pd.Series:
    for name, value in keys.items():
        frame = frame[frame[name].isna() if value is None else frame[name] == value]
    assert len(frame) == 1
    return frame.iloc[0]


def live(item: str, drafter: str, committed: int, decode_s: float, **values: object) -> dict[str, object]:
    reference = drafter == "plain"
    return turn(
        item, drafter=drafter, cell_id=drafter, is_reference=reference, mode="live",
        num_committed=committed, decode_s=decode_s, **values,
    )  # fmt: skip


def test_every_group_has_a_row(run: Run, head: pd.DataFrame) -> None:
    keys = ["drafter", "suite", "sampling", "memory_cap_bytes"]
    expected = run.cells[keys].drop_duplicates()
    assert len(head) == len(expected)
    assert len(head.merge(expected, on=keys)) == len(expected)
    assert set(head["status"]) == {
        "ok", "oom", "incompatible", "mismatch", "timeout", "error", "interrupted",
    }  # fmt: skip


def test_numbers_stand_only_where_the_status_allows(head: pd.DataFrame) -> None:
    sound = head["status"].isin(["ok", "interrupted"])
    for name in ("acceptance_length", "acceptance_length_low", "decode_tok_per_s", "drafter_bytes", "ttft_s"):
        assert head.loc[sound, name].notna().all(), name
        assert head.loc[~sound, name].isna().all(), name
    assert head.loc[~sound, "message"].notna().all()
    assert head.loc[~sound, "reason"].notna().all()


def test_headline_agrees_with_cells(run: Run, head: pd.DataFrame) -> None:
    keys = ["drafter", "suite", "sampling", "memory_cap_bytes"]
    both = head.merge(run.cells, on=keys, suffixes=("", "_cell"))
    assert len(both) == len(run.cells)
    for name in ("acceptance_length", "acceptance_rate", "decode_tok_per_s"):
        pd.testing.assert_series_equal(both[name], both[f"{name}_cell"], check_names=False)
    assert both["drafter_bytes"].equals(both["drafter_bytes_cell"])
    assert both["status"].equals(both["status_cell"])


def test_numbers_lie_in_their_intervals(head: pd.DataFrame) -> None:
    for name in ("acceptance_length", "decode_tok_per_s", "speedup"):
        known = head.dropna(subset=[f"{name}_low"])
        assert len(known)
        assert (known[f"{name}_low"] <= known[name] + 1e-9).all()
        assert (known[name] <= known[f"{name}_high"] + 1e-9).all()


def test_plain_decoding_is_the_reference(head: pd.DataFrame) -> None:
    plain = row(head, drafter="autoregressive", suite="quick", sampling="greedy")
    assert pd.isna(plain["speedup"])
    assert plain["reason"] == "this is the reference"
    fast = row(head, drafter="hyflash:window=256", suite="quick", sampling="greedy")
    assert fast["speedup"] == pytest.approx(fast["decode_tok_per_s"] / plain["decode_tok_per_s"])
    assert fast["verdict"] == "higher"
    assert pd.isna(fast["reason"])


def test_verdicts_are_corrected_for_all_comparisons_of_the_table() -> None:
    """A difference that one comparison would show is drowned by nineteen more."""
    rng = Random(0)
    gains = [1 + 0.04 * rng.gauss(0.9, 1.0) for _ in range(12)]

    def run_of(num_others: int) -> HandRun:
        rows = [
            *(live(str(i), "plain", 10, 10.0) for i in range(12)),
            *(live(str(i), "fast", 10, 10.0 / gain) for i, gain in enumerate(gains)),
            *(
                live(str(i), f"other{each}", 10, 10.0 + rng.uniform(-1, 1))
                for each in range(num_others)
                for i in range(12)
            ),
        ]
        return HandRun(turns(*rows))

    alone, among = (row(headline(run_of(num)), drafter="fast") for num in (0, 19))
    assert alone["p_holm"] < 0.05 < among["p_holm"]
    assert (alone["verdict"], among["verdict"]) == ("higher", "no clear difference")
    assert alone["speedup_low"] == among["speedup_low"] > 1
    assert alone["interval_method"] == "BCa"


def test_speedup_is_taken_on_the_same_conversations() -> None:
    frame = turns(
        *(live(str(i), "plain", 10, 10.0) for i in range(6)),
        *(live(str(i), "fast", 10, 5.0) for i in range(5)),
        live("only here", "fast", 1000, 1.0),
    )
    fast = row(headline(HandRun(frame)), drafter="fast")
    assert fast["speedup"] == 2.0
    assert fast["verdict"] == "higher"


def test_rungs_of_one_document_are_one_measurement() -> None:
    """In the headline's intervals and speedups; a number at the end that is no rung is a name."""

    def both(item: str, speed: float, rung: int | None) -> list[dict[str, object]]:
        return [
            live(item, "plain", 10, 10.0, context_rung=rung),
            live(item, "fast", 10, 10.0 / speed, context_rung=rung),
        ]

    rungs = (512, 1024, 2048)
    few = [row for d in range(3) for rung in rungs for row in both(f"s/t/{d}/{rung}", 2 + d, rung)]
    talks = [row for d in range(9) for row in both(f"s/t/{d}", 2 + d % 3, None)]

    clustered = row(headline(HandRun(turns(*few))), drafter="fast")
    apart = row(headline(HandRun(turns(*talks))), drafter="fast")

    assert clustered["num_conversations"] == apart["num_conversations"] == 9
    assert clustered["speedup"] == pytest.approx(apart["speedup"])
    assert pd.isna(clustered["verdict"])
    assert clustered["decode_tok_per_s"] == pytest.approx(apart["decode_tok_per_s"])
    assert apart["verdict"] == "higher"


def test_questions_about_one_document_are_one_measurement() -> None:
    """In the headline: nine questions about three texts are three, about nine are nine."""

    def asked(num_documents: int) -> HandRun:
        rows = []
        for number in range(9):
            about = {"document": f"text {number % num_documents}"}
            rows.append(live(f"s/t/{number}", "plain", 10, 10.0, **about))
            rows.append(live(f"s/t/{number}", "fast", 10, 10.0 / (2 + number % 3), **about))
        return HandRun(turns(*rows))

    few, many = (row(headline(asked(num)), drafter="fast") for num in (3, 9))
    assert few["speedup"] == many["speedup"]
    assert few["num_conversations"] == many["num_conversations"] == 9
    assert pd.isna(few["verdict"])
    assert many["verdict"] == "higher"


def test_few_conversations_give_no_verdict() -> None:
    frame = turns(live("a", "plain", 10, 10.0), live("a", "fast", 10, 5.0))
    fast = row(headline(HandRun(frame)), drafter="fast")
    assert fast["speedup"] == 2.0
    assert pd.isna(fast["speedup_low"])
    assert pd.isna(fast["verdict"])


def test_without_plain_decoding_there_is_no_speedup() -> None:
    fast = row(headline(HandRun(turns(live("a", "fast", 10, 5.0)))), drafter="fast")
    assert pd.isna(fast["speedup"])
    assert fast["decode_tok_per_s"] == 2.0


def test_a_mismatch_voids_its_whole_cell_and_no_other() -> None:
    def scored(item: str, cell: str, **values: object) -> dict[str, object]:
        counts = {"num_uncut_committed": 6, "num_uncut_steps": 2}
        return turn(item, cell_id=cell, drafter=cell, **counts, **values)

    frame = turns(
        scored("a", "bad", cell_status="mismatch", kind="x"),
        scored("b", "bad", cell_status="mismatch", status="mismatch", kind="y"),
        scored("a", "good", kind="x"),
    )
    table = summary(HandRun(frame), ["drafter", "kind"])
    assert set(table.loc[table["drafter"] == "bad", "status"]) == {"mismatch"}
    assert table.loc[table["drafter"] == "bad", "acceptance_length"].isna().all()
    assert row(table, drafter="good")["acceptance_length"] == 3.0


def test_degenerate_turns_are_kept_and_can_be_shown_apart() -> None:
    def scored(item: str, committed: int, degenerate: bool | None) -> dict[str, object]:
        return turn(item, num_uncut_committed=committed, num_uncut_steps=1, degenerate=degenerate)

    hand = HandRun(turns(scored("a", 2, False), scored("b", 8, True), scored("c", 2, None)))
    lengths = {
        which: summary(hand, ["drafter"], degenerate=which)["acceptance_length"].iloc[0]
        for which in ("all", "exclude", "only")
    }
    assert lengths == {"all": 4.0, "exclude": 2.0, "only": 8.0}
    with pytest.raises(UnknownName, match="degenerate"):
        summary(hand, ["drafter"], degenerate="none")


def test_by_context_keeps_what_was_reached(run: Run) -> None:
    table = by_context(run)
    assert set(table["context_length"]) == {512, 2048, 8192}
    plain = {"suite": "longctx", "sampling": "greedy", "memory_cap_bytes": None}
    big = [row(table, drafter="too-big", context_length=rung, **plain) for rung in (512, 2048, 8192)]
    assert [each["status"] for each in big] == ["ok", "oom", "oom"]
    assert [pd.notna(each["acceptance_length"]) for each in big] == [True, False, False]
    full = [row(table, drafter="full-context", context_length=rung, **plain) for rung in (512, 2048, 8192)]
    sizes = [each["drafter_kv_bytes"] for each in full]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 3


def test_any_grouping_pools_the_same_turns(run: Run) -> None:
    kinds = summary(run, ["drafter", "kind"])
    turns_of = run.turns[run.turns["drafter"] == "prompt-lookup"]
    expected = METRICS["acceptance_length"].over(turns_of, ["kind"])
    for kind, value in expected.items():
        found = row(kinds, drafter="prompt-lookup", kind=kind)
        if found["status"] == "ok":
            assert found["acceptance_length"] == pytest.approx(value)
    with pytest.raises(UnknownName, match="column to group by"):
        summary(run, ["drafters"])


def test_failures_name_every_conversation_that_failed(run: Run) -> None:
    table = failures(run)
    assert table["num_conversations"].sum() == (run.conversations["status"] != "ok").sum()
    assert table["message"].notna().all()
    oom = table[table["status"] == "oom"]
    assert oom["peak_bytes"].notna().all()


def partial(folder, share: float, drafters: Sequence = DRAFTERS) -> Run:
    manifest, traces, conversations = records(drafters)
    with RunWriter(folder) as writer:
        writer.write_manifest(manifest)
        for trace in traces:
            writer.append_trace(trace)
        for conversation in conversations[: int(len(conversations) * share)]:
            writer.append_conversation(conversation)
    return load_run(folder)


def test_a_run_that_was_stopped_shows_what_it_has(tmp_path) -> None:
    run = partial(tmp_path / "run", 0.3)
    table = headline(run)
    assert len(table) == len(run.cells)
    assert "interrupted" in set(table["status"])
    half = table[(table["num_conversations"] > 0) & (table["status"] == "interrupted")]
    assert half["acceptance_length"].notna().all()
    assert half["message"].str.contains("not run yet").all()
    unstarted = table[table["num_conversations"] == 0]
    assert unstarted["acceptance_length"].isna().all()
    waiting = failures(run)
    assert waiting["num_conversations"].sum() == run.cells["num_pending"].sum()


def test_an_empty_run_has_tables_without_rows(tmp_path) -> None:
    with RunWriter(tmp_path / "run") as writer:
        writer.write_manifest(manifest_of([]))
    run = load_run(tmp_path / "run")
    full = headline(load_run(make_run(tmp_path / "full", DRAFTERS[:2], num_per_group=1)))
    assert list(headline(run)) == list(full)
    for table in (headline(run), by_context(run), failures(run), summary(run, ["drafter"])):
        assert table.empty


def test_seconds_of_a_failing_run_are_null(tmp_path) -> None:
    run = load_run(make_run(tmp_path / "run", FAILING[1:2], num_per_group=1))
    assert headline(run)[["speedup", "decode_tok_per_s"]].isna().all(axis=None)
