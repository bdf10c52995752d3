"""Other programs' numbers under this project's definitions, each worked out by hand."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from hyflash_bench.analysis.positions import position_acceptance
from hyflash_bench.analysis.summary import headline, summary
from hyflash_bench.errors import DataError, UnknownName, UsageError
from hyflash_bench.results import load_run
from hyflash_bench.results.importers import Labels, read_results, write_imported
from hyflash_bench.results.importers.engine import accepted_per_step
from tests.results.factory import make_run
from tests.results.importers.files import answer, bench, medusa, metrics, request, write

LOST = ("ttft_s", "decode_tok_per_s", "speedup", "drafter_bytes", "target_kv_bytes", "ledger_bytes")


def imported(tmp_path: Path, rows: Any, *, name: str = "results.jsonl", labels: Labels | None = None):
    path = write(tmp_path, rows, name)
    write_imported(tmp_path / "run", [(path, read_results(path), labels or Labels())], fresh=True)
    return load_run(tmp_path / "run")


def numbers(run) -> dict[str, Any]:
    (row,) = summary(run).to_dict("records")
    return {key: None if value != value else value for key, value in row.items()}


def test_spec_bench_counts_the_bonus_token_and_pools_over_steps(tmp_path):
    run = imported(tmp_path, [answer(81), answer(82, accept_lengths=[1, 1, 1, 1, 1])])
    found = numbers(run)
    assert found["acceptance_length"] == pytest.approx((15 + 5) / 10)
    assert found["acceptance_length_mean"] == pytest.approx((3 + 1) / 2)
    assert all(found.get(name) is None for name in (*LOST, "acceptance_rate"))
    assert list(run.steps["committed"]) == [3, 2, 1, 4, 5, 1, 1, 1, 1, 1]
    assert list(run.turns["num_steps"]) == [3, 2, 3, 2]
    assert run.turns["category"].unique().tolist() == ["writing"]
    assert run.cells["sampling"].tolist() == ["greedy"]


def test_speeds_that_hold_the_prompt_are_kept_apart_under_their_own_name(tmp_path):
    run = imported(tmp_path, [answer(81), answer(82, wall_time=[4.0, 4.0])])
    (entry,) = run.manifest.imported
    assert entry["reported"]["wall_tok_per_s"] == pytest.approx(34 / 10)
    assert entry["reported"]["wall_tok_per_s_mean_over_questions"] == pytest.approx((17 / 2 + 17 / 8) / 2)


def test_a_length_of_0_shows_that_the_bonus_token_was_left_out(tmp_path):
    run = imported(tmp_path, [answer(accept_lengths=[2, 1, 0, 3, 4])])
    assert numbers(run)["acceptance_length"] == pytest.approx(3.0)
    assert any("one was added" in note for note in run.manifest.imported[0]["notes"])


def test_answers_that_were_appended_again_or_failed_do_not_count_twice(tmp_path):
    rows = [answer(81), answer(81, accept_lengths=[1] * 5), answer(82, turns=["ERROR", "x"])]
    run = imported(tmp_path, rows)
    assert numbers(run)["status"] == "error"
    assert run.conversations["status"].tolist() == ["ok", "error"]
    assert run.turns["num_committed"].sum() == 5


def test_steps_that_cannot_be_told_apart_by_turn_are_pooled(tmp_path):
    run = imported(tmp_path, [answer(decoding_steps=[3, 3])])
    found = numbers(run)
    assert (found["acceptance_length"], found["acceptance_length_mean"]) == (3.0, None)


def test_several_choices_are_repeats(tmp_path):
    row = answer()
    row["choices"].append({**row["choices"][0], "index": 1})
    assert imported(tmp_path, [row]).cells["repeat"].tolist() == [0, 1]


def test_medusas_idxs_count_from_0_and_only_sums_are_known(tmp_path):
    run = imported(tmp_path, [medusa(81), medusa(82, idxs=[0], new_tokens=[2])])
    assert numbers(run)["acceptance_length"] == pytest.approx(12 / 5)
    assert len(run.steps) == 0
    assert run.manifest.imported[0]["format"] == "fastchat"
    assert run.cells["temperature"].isna().all()


def test_plain_decoding_is_the_reference_of_the_others(tmp_path):
    plain = write(
        tmp_path, [answer(n, model="m-vanilla", accept_lengths=[1] * 5) for n in range(9)], "v.jsonl"
    )
    other = write(tmp_path, [answer(n) for n in range(9)], "e.jsonl")
    labels = Labels(target="m", suite="spec-bench", temperature=0)
    files = [(path, read_results(path), labels) for path in (plain, other)]
    write_imported(tmp_path / "run", files)
    table = headline(load_run(tmp_path / "run")).set_index("drafter")
    assert table.loc["m-vanilla", "acceptance_length"] == 1.0
    assert table.loc["m-eagle2-temperature-0.0", "acceptance_length"] == 3.0
    cells = load_run(tmp_path / "run").cells.set_index("drafter")
    assert cells["is_reference"].to_dict() == {"m-vanilla": True, "m-eagle2-temperature-0.0": False}


def test_files_can_be_added_one_after_the_other(tmp_path):
    for model in ("m-one", "m-two", "m-one"):
        path = write(tmp_path, [answer(model=model)], f"{model}.jsonl")
        write_imported(tmp_path / "run", [(path, read_results(path), Labels())])
    run = load_run(tmp_path / "run")
    assert run.cells["drafter"].tolist() == ["m-one", "m-two"]
    assert [one["file"] for one in run.manifest.imported] == ["m-two.jsonl", "m-one.jsonl"]


def test_imported_results_stay_apart_from_measured_ones(tmp_path):
    make_run(tmp_path / "run", num_per_group=1)
    path = write(tmp_path, [answer()])
    with pytest.raises(UsageError, match="measured here"):
        write_imported(tmp_path / "run", [(path, read_results(path), Labels())])
    twice = [(path, read_results(path), Labels())] * 2
    with pytest.raises(UsageError, match="--drafter"):
        write_imported(tmp_path / "other", twice)


def test_vllms_sums_give_the_steps_behind_them(tmp_path):
    run = imported(tmp_path, [bench()], name="bench.json", labels=Labels(drafter="eagle3"))
    found = numbers(run)
    assert found["acceptance_length"] == pytest.approx((62 - 2) / 20)
    assert found["acceptance_rate"] == pytest.approx(40 / 60)
    assert found["acceptance_length_mean"] is None
    assert found["ttft_s"] == pytest.approx(0.15)
    assert found["decode_tok_per_s"] == pytest.approx(60 / 3)
    # The engine's rates are joint; those here are conditional.
    rates = position_acceptance(run.steps)["position_acceptance"].tolist()
    assert rates == pytest.approx([1.0, 0.7, 0.3 / 0.7])
    assert run.manifest.imported[0]["reported"]["spec_decode_acceptance_rate"] == 66.7


@pytest.mark.parametrize(
    ("total", "length", "note"),
    [
        (62, 60 / 20, "acceptance_length"),
        (60, 58 / 20, "2 tokens that the engine counted lie behind the ends"),
        (72, 70 / 30, "10 tokens came from steps without a draft"),
        (5, 60 / 20, "cannot be"),
        (None, None, None),
    ],
)
def test_output_tokens_set_the_engines_count_right(tmp_path, total, length, note):
    if total is None:
        with pytest.raises(DataError, match="no format that is known"):
            imported(tmp_path, [bench(total_output_tokens=total)])
        return
    run = imported(tmp_path, [bench(total_output_tokens=total)])
    assert numbers(run)["acceptance_length"] == pytest.approx(length)
    assert any(note in line for line in run.manifest.imported[0]["notes"])


@pytest.mark.parametrize("concurrency", [None, 8])
def test_times_of_requests_that_shared_the_server_are_left_out(tmp_path, concurrency):
    found = numbers(imported(tmp_path, [bench(max_concurrency=concurrency)]))
    assert (found["ttft_s"], found["decode_tok_per_s"]) == (None, None)
    assert found["acceptance_length"] == pytest.approx(3.0)


def test_a_server_without_drafts_has_times_but_no_acceptance(tmp_path):
    nothing = {f"spec_decode_{name}": None for name in ("num_drafts", "draft_tokens", "accepted_tokens")}
    run = imported(tmp_path, [bench(**nothing)])
    found = numbers(run)
    assert found["acceptance_length"] is None
    assert found["decode_tok_per_s"] == pytest.approx(20.0)
    with pytest.raises(DataError, match="nothing in it has a counterpart"):
        imported(tmp_path, [bench(**nothing, max_concurrency=4)])


def test_a_failed_request_is_an_error_and_appended_results_are_repeats(tmp_path):
    run = imported(tmp_path, [bench(errors=["", "refused"]), bench()])
    assert run.cells["status"].tolist() == ["error", "ok"]
    assert run.cells["repeat"].tolist() == [0, 1]
    assert "refused" in run.cells["message"][0]


def test_metrics_are_taken_as_they_grew(tmp_path):
    before, after = write(tmp_path, metrics(1), "a.txt"), write(tmp_path, metrics(3), "b.txt")
    (told,) = read_results(after, before=before).conversations
    (turn,) = told.turns
    assert (turn.num_steps, turn.num_drafted, turn.num_accepted, turn.num_committed) == (40, 120, 80, 120)
    assert turn.accepted.count(3) == 12
    assert turn.is_pooled
    with pytest.raises(DataError, match="started anew"):
        read_results(before, before=after)
    assert any("since the server's start" in note for note in read_results(after).notes)


def test_a_counter_that_is_missing_is_not_zero(tmp_path):
    path = write(tmp_path, metrics(without="num_drafts_total"), "m.txt")
    with pytest.raises(DataError, match="missing is not zero"):
        read_results(path, "vllm-metrics")
    path = write(tmp_path, metrics(without="num_draft_tokens"), "m.txt")
    assert read_results(path).conversations[0].turns[0].num_drafted is None


def test_counters_of_two_models_are_not_added_up_but_engines_are(tmp_path):
    two = metrics(labels='engine="0",model_name="m"') + metrics(labels='engine="1",model_name="m"')
    assert read_results(write(tmp_path, two, "m.txt")).conversations[0].turns[0].num_steps == 40
    with pytest.raises(DataError, match="several models: m, other"):
        read_results(write(tmp_path, metrics() + metrics(labels='model_name="other"'), "m.txt"))
    with pytest.raises(DataError, match=r"m\.txt, line 3: 'not a sample' is no sample"):
        read_results(write(tmp_path, "# HELP vllm:x y\nvllm:x 1.0\nnot a sample\n", "m.txt"))


def test_aiperfs_record_is_exact_for_each_request(tmp_path):
    run = imported(tmp_path, [request(0, phase="warmup"), request(1), request(2)])
    found = numbers(run)
    assert found["acceptance_length"] == pytest.approx(11 / 4)
    assert found["acceptance_rate"] == pytest.approx(7 / 12)
    assert found["ttft_s"] == pytest.approx(0.1)
    assert found["decode_tok_per_s"] == pytest.approx(11 / 0.4)
    assert found["num_conversations"] == 2
    assert run.turns["context_length"].isna().all()


def test_aiperfs_tokens_behind_the_end_come_off_the_last_step(tmp_path):
    # 11 counted, 10 - 1 in the reply: the last step accepted 3 and its bonus, of which 2 were thrown away.
    ordered = {"per_step_accepted": [0, 1, 3, 3], "completion_tokens": 10}
    run = imported(tmp_path, [request(**ordered)])
    assert run.steps["committed"].tolist() == [1, 2, 4, 2]
    assert run.steps["accepted"].tolist() == [0, 1, 3, 2]
    assert run.turns["num_accepted"].tolist() == [6]
    histogram = imported(tmp_path, [request(completion_tokens=10)])
    assert numbers(histogram)["acceptance_length"] == pytest.approx(9 / 4)
    assert len(histogram.steps) == 0


def test_aiperfs_requests_at_once_have_no_times_of_their_own(tmp_path):
    found = numbers(imported(tmp_path, [request(1, start=0), request(2, start=10**8)]))
    assert (found["ttft_s"], found["decode_tok_per_s"]) == (None, None)
    assert found["acceptance_length"] == pytest.approx(11 / 4)


def test_aiperfs_turns_of_a_conversation_stand_together(tmp_path):
    second = request(1, start=9 * 10**9)
    second["metadata"]["turn_index"] = 1
    failed = request(2)
    failed.update(error={"code": 500, "message": "boom"}, metrics={}, spec_decode_acceptance=None)
    run = imported(tmp_path, [request(1), second, failed])
    assert run.turns["turn"].tolist() == [0, 1]
    assert run.conversations.set_index("status").loc["error", "message"] == "boom"


def test_histogram_of_positions_by_hand():
    assert accepted_per_step([3, 2, 0], 4) == [0, 1, 2, 2]
    assert accepted_per_step([], 2) == [0, 0]
    assert accepted_per_step([5], 4) is None


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (answer(accept_lengths=[1, "x", 1, 1, 1]), "line 2: key 'accept_lengths': number 2 is 'x'"),
        (answer(accept_lengths=None), "line 2: neither accept_lengths nor idxs"),
        (medusa(idxs=[20]), "line 2: 21 steps gave 10 tokens"),
        (medusa(idxs=[1, 2]), "line 2: 2 idxs have 1 new_tokens"),
        ({**answer(), "model_id": "other"}, "mixes the models"),
        ({**answer(), "model_id": 3}, "line 2: key 'model_id' is a number, not a text"),
        ("no object", "line 2: it is no object"),
    ],
)
def test_a_wrong_answer_gives_file_line_and_reason(tmp_path, row, reason):
    path = write(tmp_path, [answer(), row])
    with pytest.raises(DataError, match=reason) as caught:
        read_results(path)
    assert "results.jsonl" in str(caught.value)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (bench(spec_decode_accepted_tokens=61), "61 accepted of 60 drafted"),
        (bench(spec_decode_num_drafts=2.5), "'spec_decode_num_drafts' is '2.5', not a whole number"),
        (request(num_spec_steps=5), r"its steps \(4 with 7 accepted\) do not add up to 5 with 7"),
        (request(num_draft_tokens=3), "7 accepted of 3 drafted"),
        (request(acceptance_histogram={"x": 4}), "'x' is no number of tokens"),
        (request(per_step_accepted=[7]), "do not add up"),
        (bench(completed=float("inf")), "'completed' is 'inf'"),
        (bench(total_output_tokens=float("nan")), "'total_output_tokens' is 'nan'"),
        (bench(spec_decode_num_drafts=10**40), "'spec_decode_num_drafts' is '1000"),
        (answer(accept_lengths=[1, 1, 1, 1, 10**40]), "number 5 is '1000"),
        ({"a": 1}, "no format that is known"),
        ([], "no object|no format"),
    ],
)
def test_contradictions_are_refused(tmp_path, row, reason):
    with pytest.raises(DataError, match=reason):
        read_results(write(tmp_path, [row]))


def test_a_format_can_be_named(tmp_path):
    path = write(tmp_path, [answer()])
    with pytest.raises(UnknownName, match="Did you mean 'spec-bench'"):
        read_results(path, "specbench")
    with pytest.raises(DataError, match="no result of vllm bench serve"):
        read_results(path, "vllm-bench")
    with pytest.raises(UsageError, match="belongs to vllm-metrics"):
        read_results(path, before=path)


@pytest.mark.parametrize(
    "content", ["", "{", "[1, 2", "\x00\x01", '{"question_id": 1, "choices": [3]}', "# HELP"]
)
@pytest.mark.parametrize("name", [None, "spec-bench", "vllm-bench", "vllm-metrics", "aiperf"])
def test_damaged_files_are_told_whatever_they_are_taken_for(tmp_path, content, name):
    with pytest.raises(DataError, match="results"):
        read_results(write(tmp_path, content), name)


@pytest.mark.parametrize("name", ["spec-bench", "vllm-bench", "vllm-metrics", "aiperf"])
def test_bad_bytes_are_told_with_their_line(tmp_path, monkeypatch, name):
    monkeypatch.setenv("HYFLASH_BENCH_CACHE", str(tmp_path / "cache"))
    first = {
        "spec-bench": json.dumps(answer()), "vllm-bench": json.dumps(bench()),
        "vllm-metrics": "vllm:x 1.0", "aiperf": json.dumps(request()),
    }[name]  # fmt: skip
    good = first.encode() + b"\n"

    def said(content: bytes, *, ending: str = "jsonl") -> str:
        path = tmp_path / f"results.{ending}"
        path.write_bytes(content)
        with pytest.raises(DataError) as caught:
            read_results(path, name)
        return str(caught.value)

    assert "line 2: it is not UTF-8 text" in said(good + b"vllm:caf\xe9 1.0\n")
    assert "the packed file ends here, cut short" in said(gzip.compress(good)[:-9], ending="gz")
    monkeypatch.setattr("hyflash_bench.suites.datafiles.scan.MAX_ROW_BYTES", 10_000)
    assert "line 2: it has 20,001 bytes; at most 10,000 are read" in said(good + b"x" * 20_000 + b"\n")


def test_what_is_imported_is_marked_with_its_source(tmp_path):
    manifest = imported(tmp_path, [answer()]).manifest
    (entry,) = manifest.imported
    assert (entry["file"], entry["format"]) == ("results.jsonl", "spec-bench")
    assert len(entry["sha256"]) == 64
    assert entry["cells"] == [cell.cell_id for cell in manifest.cells]
    assert json.dumps(manifest.model_dump())
    assert manifest.cells[0].target_id.startswith("imported-")


def test_numbers_that_are_none_are_left_out(tmp_path):
    wild = bench(
        ttfts=[float("nan"), "soon"], itls=[[float("inf")], [-1.0]], mean_ttft_ms=float("nan"),
        spec_decode_per_position_acceptance_rates=[float("nan")], errors=["", "\ud800"],
    )  # fmt: skip
    run = imported(tmp_path, [wild])
    assert run.turns[["ttft_s", "decode_s"]].isna().all().all()
    assert run.turns["num_committed"].max() == 60
    wild = request(acceptance_histogram=None)
    wild["metrics"] = {"time_to_first_token": {"value": float("inf"), "unit": "ms"}, "request_latency": 3}
    assert imported(tmp_path, [wild]).turns["ttft_s"].isna().all()
    assert imported(tmp_path, [answer(wall_time=[float("inf"), -1])]).manifest.imported[0]["reported"] == {}
