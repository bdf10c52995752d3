"""Suites over data sets: from a file to conversations, and the shipped ones."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from hyflash_bench.errors import DataError, MissingDependency, UsageError
from hyflash_bench.suites import DataFiles, list_suites, load_suite, score, validate_suite
from hyflash_bench.suites.conversation import Expected
from hyflash_bench.suites.formats import FORMATS

SAID = {"role": "user", "content": "Hello"}
PUBLIC = {
    "spec-bench": {"question_id": 1, "category": "qa", "turns": ["Why?"]},
    "mt-bench": {"question_id": 81, "category": "writing", "turns": ["Write.", "Shorter."]},
    "mt-bench-101": {"task": "CM", "id": 1, "history": [{"user": "Hi", "bot": "Hello"}]},
    "questions": {"turns": ["Why?"]},
    "speed-bench": {"question_id": "a", "category": "qa", "messages": [SAID]},
    "longbench": {"input": "Who?", "context": "Ann.", "answers": ["Ann"], "dataset": "qasper", "_id": "x"},
    "longbench-v2": {
        **{f"choice_{letter}": letter for letter in "ABCD"},
        "_id": "x", "domain": "Code", "question": "Which?", "context": "Text", "answer": "A",
    },
    "ruler": {"index": 3, "input": "The number is 7. Which?", "outputs": ["7"]},
    "qmsum": {
        "general_query_list": [{"query": "What?", "answer": "x"}],
        "meeting_transcripts": [{"speaker": "Al", "content": "Hm."}],
    },
    "l-eval": {"input": "Text.", "instructions": ["Why?"], "outputs": ["x"]},
    "locomo": {
        "sample_id": "c",
        "conversation": {"session_1": [{"speaker": "Al", "text": "Hm."}]},
        "qa": [{"question": "What?", "answer": 3, "category": 1}],
    },
    "sharegpt": {"id": "x", "conversations": [{"from": "human", "value": "Hello"}]},
    "messages": {"messages": [SAID]},
    "gsm8k": {"question": "How many?", "answer": "#### 4"},
    "humaneval": {"task_id": "Test/0", "prompt": "def f():\n"},
}  # fmt: skip
"""A row of each, as short as it can be."""


def data(tmp_path: Path, rows: list[dict[str, Any]], name: str = "rows.jsonl", **choice: bool) -> DataFiles:
    path = tmp_path / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return DataFiles.of([path], **choice)


def test_every_format_and_every_data_suite_is_tried_here():
    assert set(PUBLIC) == {name for name in list_suites() if load_suite(name).is_external}
    assert {load_suite(name).spec.tasks[0].options["format"] for name in PUBLIC} == set(FORMATS)


@pytest.mark.parametrize("name", list(PUBLIC))
def test_a_shipped_suite_reads_its_rows(tmp_path, words, name):
    suite = load_suite(name, data(tmp_path, [PUBLIC[name]]))
    (item,) = suite.items()
    built = suite.build(item, words)
    assert len(built.turns) == item.num_turns
    assert item.item_id.startswith(f"{name}/{name}/")
    assert item.kind


@pytest.mark.parametrize("name", list(PUBLIC))
def test_a_shipped_suite_passes_its_own_validation(tmp_path, words, name):
    assert validate_suite(name, words, data=data(tmp_path, [PUBLIC[name]])) == []


@pytest.mark.parametrize("name", [n for n in PUBLIC if not load_suite(n).spec.tasks[0].options.get("hub")])
def test_without_a_file_a_suite_says_where_to_get_it(name):
    with pytest.raises(MissingDependency, match="--data FILE"):
        load_suite(name).items()


HUB = [name for name in PUBLIC if load_suite(name).spec.tasks[0].options.get("hub")]


@pytest.mark.parametrize("name", HUB)
def test_the_library_itself_reads_a_data_set_by_its_name(tmp_path, monkeypatch, words, name):
    """A folder that is named as on the hub, with the configuration and split that the suite asks for."""
    datasets = pytest.importorskip("datasets")
    asked = load_suite(name).spec.tasks[0].options["hub"]
    row = {**PUBLIC[name], "prompt": PUBLIC[name]["turns"]} if name == "mt-bench" else PUBLIC[name]
    folder = tmp_path / asked["path"]
    folder.mkdir(parents=True)
    (folder / "rows.jsonl").write_text(json.dumps(row) + "\n")
    files = [{"split": asked["split"], "path": "rows.jsonl"}]
    configs = [{"config_name": asked.get("name", "default"), "data_files": files}]
    (folder / "README.md").write_text(f"---\n{yaml.safe_dump({'configs': configs})}---\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYFLASH_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "library")
    suite = load_suite(name)
    (item,) = suite.items()
    given = load_suite(name, data(tmp_path, [row]))
    fetched, read = suite.build(item, words), given.build(given.items()[0], words)
    assert (fetched.turns, fetched.system) == (read.turns, read.system)


def test_rows_are_found_again_in_any_order(tmp_path, words):
    rows = [{"question_id": number, "turns": [f"Say {number}.", "Again."]} for number in range(20)]
    suite = load_suite("mt-bench", data(tmp_path, rows))
    for item in reversed(suite.items()):
        number = item.item_id.rsplit("/", 1)[-1]
        assert suite.build(item, words).turns[0].text == f"Say {number}."


QUERIES = [{"query": "What?"}, {"query": "Who?"}]
MEETING = {"meeting_transcripts": [{"speaker": "Al", "content": "Hm."}], "general_query_list": QUERIES}
TALK = {
    "sample_id": "c", "conversation": {"session_1": [{"speaker": "Al", "text": "Hm."}]},
    "qa": [{"question": "What?", "category": 1}, {"question": "Who?", "category": 2}],
}  # fmt: skip
PAGE = {"input": "Text.", "instructions": ["Why?", "When?"], "outputs": ["x", "y"]}
ASKED = [PUBLIC["longbench"] | {"_id": str(number), "input": f"{number}?"} for number in range(2)]
CHOSEN = [PUBLIC["longbench-v2"] | {"_id": str(number), "question": f"{number}?"} for number in range(2)]


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("qmsum", [MEETING]),
        ("locomo", [TALK]),
        ("l-eval", [PAGE]),
        ("longbench", ASKED),
        ("longbench-v2", CHOSEN),
    ],
)
def test_conversations_about_one_document_carry_its_name(tmp_path, name, rows):
    """Whether they stand in one row or in several; another text has another name."""
    other = json.loads(
        json.dumps(rows[0]).replace("Hm.", "Oh.").replace("Text", "Book").replace("Ann.", "Bob.")
    )
    other |= {"_id": "y"} if "_id" in other else {"sample_id": "d"} if "sample_id" in other else {}
    items = load_suite(name, data(tmp_path, [*rows, other])).items()
    about = [item.document for item in items]
    assert None not in about
    assert len(set(about[:2])) == 1
    assert len(set(about)) == 2


def test_conversations_of_their_own_text_share_no_document(tmp_path):
    items = load_suite("mt-bench", data(tmp_path, [PUBLIC["mt-bench"]])).items()
    assert {item.document for item in items} == {None}


def test_the_hash_follows_the_rows_not_their_file(tmp_path):
    one = load_suite("mt-bench", data(tmp_path, [PUBLIC["mt-bench"]]))
    again = load_suite("mt-bench", data(tmp_path, [PUBLIC["mt-bench"]], "other.jsonl"))
    other = load_suite(
        "mt-bench", data(tmp_path, [{**PUBLIC["mt-bench"], "turns": ["x", "y"]}], "third.jsonl")
    )
    assert one.suite_hash == again.suite_hash != other.suite_hash


def test_wrong_rows_are_refused_or_left_out_and_counted(tmp_path):
    rows = [PUBLIC["mt-bench"], {"turns": 3}, {"question_id": 5, "turns": ["Fine."]}]
    with pytest.raises(DataError, match=r"1 of 3 rows are wrong\. .*line 2: .*--skip-bad-rows"):
        load_suite("mt-bench", data(tmp_path, rows)).items()
    suite = load_suite("mt-bench", data(tmp_path, rows, skip_bad_rows=True))
    told: list[str] = []
    suite.prepare(told.append)
    assert len(suite.items()) == 2
    assert "3 rows, 2 conversations" in told[0]
    assert "1 of 3 rows are wrong" in told[1]


def test_a_suite_with_texts_of_its_own_takes_no_file(tmp_path):
    with pytest.raises(UsageError, match="brings its own texts"):
        load_suite("quick", data(tmp_path, [PUBLIC["questions"]])).items()


def test_a_suite_of_ones_own_reads_files_beside_it_and_nowhere_else(tmp_path, words):
    data(tmp_path, [PUBLIC["questions"]])
    options = {"format": "questions", "files": ["rows.jsonl"]}
    values = {
        "name": "mine", "version": 1, "title": "Mine", "description": "x", "licence": "CC0-1.0",
        "tasks": [{"name": "asked", "builder": "dataset", "options": options}],
    }  # fmt: skip
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(values))
    suite = load_suite(path)
    assert [item.item_id for item in suite.items()] == ["mine/asked/line-1"]
    options["files"] = ["../rows.jsonl"]
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(DataError, match="leads out of the suite's folder"):
        load_suite(path).items()


@pytest.mark.parametrize(
    ("rule", "answers", "reply", "wanted"),
    [
        ("contains_any", ("Paris", "Rome"), "It is rome.", 1.0),
        ("contains_any", ("Paris", "Rome"), "It is Romeo.", 0.0),
        ("choice", ("B",), "The answer is (B).", 1.0),
        ("choice", ("B",), "A. No, B", 0.0),
        ("choice", ("B",), "I don't know", 0.0),
        ("last_number", ("1200",), "First 3, then 1,200 in all.", 1.0),
        ("last_number", ("-4",), "x = -4", 1.0),
        ("last_number", ("12",), "from 10-12", 1.0),
        ("last_number", ("4.50",), "It costs $4.5", 1.0),
        ("last_number", ("4",), "none", 0.0),
    ],
)
def test_scores_of_data_sets(rule, answers, reply, wanted):
    assert score(Expected(rule, answers), reply) == wanted
