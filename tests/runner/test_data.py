"""A data set through a whole run, in a real worker process."""

from __future__ import annotations

import json
from pathlib import Path

from hyflash_bench.results.reader import load_run
from hyflash_bench.runner.events import Event, Log
from hyflash_bench.runner.run import run
from tests.runner.requests import request_for
from tests.tiny import save_tiny_target


def test_a_file_of_questions_is_measured_wrong_rows_left_out_long_ones_shortened(tmp_path):
    target = save_tiny_target(tmp_path / "target", max_positions=256)
    rows = [
        {"question_id": 1, "category": "writing", "turns": ["Say one.", "Again."]},
        {"question_id": 2, "turns": "no list"},
        {"question_id": 3, "category": "maths", "turns": ["Count the words: " + "word " * 2000]},
    ]
    path = tmp_path / "question.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    told: list[Event] = []
    spec = request_for(
        target, Path("mt-bench"), data=[str(path)], skip_bad_rows=True, max_new_tokens=4,
        drafters=["autoregressive", "prompt-lookup"], mode="replay",
    )  # fmt: skip
    outcome = run(spec, output_path=tmp_path / "run", listener=told.append)

    assert outcome.exit_code == 0
    found = load_run(outcome.path)
    assert set(found.cells["status"]) == {"ok"}
    assert set(found.turns["item_id"]) == {"mt-bench/mt-bench/1", "mt-bench/mt-bench/3"}
    assert set(found.turns["category"]) == {"writing", "maths"}
    said = "\n".join(event.message for event in told if isinstance(event, Log))
    assert "line 2: key 'turns' is a text, not a list of texts" in said
    assert "mt-bench/mt-bench/3: the middle of its prompt is left out" in said
    assert found.manifest.request["data"] == [str(path)]
