"""Every format with its oddities. All texts are written here."""

from contextlib import suppress
from typing import Any

import pytest

from hyflash_bench.errors import UnknownName
from hyflash_bench.suites.formats import FORMATS, BadRow, Row, format_named


def read(name: str, fields: dict[str, Any], file: str = "file") -> list[Any]:
    return list(format_named(name).read(Row(fields, file)))


def texts(entry: Any) -> list[str]:
    return [turn.text for turn in entry.turns]


def test_an_unknown_format_offers_the_nearest():
    with pytest.raises(UnknownName, match="Did you mean 'ruler'"):
        format_named("rulers")


@pytest.mark.parametrize("reference", [None, ["one", "two"], [["nested"], ["lists"]], "text"])
def test_questions_take_any_reference_and_any_number_of_turns(reference):
    row = {
        "question_id": 81,
        "category": "roleplay",
        "turns": ["Be a fox.", "Now a hen."],
        "reference": reference,
    }
    (entry,) = read("questions", row)
    assert (entry.key, entry.category, texts(entry)) == ("81", "roleplay", ["Be a fox.", "Now a hen."])
    (entry,) = read("questions", {**row, "turns": ["Only one."]})
    assert texts(entry) == ["Only one."]


def test_questions_of_the_hub_call_their_turns_prompt():
    (entry,) = read(
        "questions", {"prompt": ["A?", "B?"], "prompt_id": 7, "category": "maths", "reference": []}
    )
    assert (entry.key, texts(entry)) == ("7", ["A?", "B?"])


def test_questions_may_have_neither_id_nor_category():
    (entry,) = read("questions", {"turns": ["Count to three."]})
    assert (entry.key, entry.category) == (None, "")
    (entry,) = read("questions", {"question_id": 0, "category": "", "turns": ["x"]})
    assert (entry.key, entry.category) == ("0", "")


def test_questions_of_arena_hard_are_objects_or_one_text():
    (entry,) = read("questions", {"question_id": "x1", "cluster": "c", "turns": [{"content": "Sort it."}]})
    assert (entry.key, texts(entry)) == ("x1", ["Sort it."])
    (entry,) = read("questions", {"uid": "y2", "category": "hard_prompt", "prompt": "Sort it."})
    assert (entry.key, entry.category, texts(entry)) == ("y2", "hard_prompt", ["Sort it."])
    with pytest.raises(BadRow, match="'turns' 1, key 'content' is missing"):
        read("questions", {"turns": [{"text": "Sort it."}]})
    with pytest.raises(BadRow, match="'turns': number 2 is a text, not an object"):
        read("questions", {"turns": [{"content": "Sort it."}, "Again."]})


def test_speed_bench_takes_turns_or_messages_and_refuses_placeholders():
    (entry,) = read("speed-bench", {"question_id": "ab12", "category": "rag", "turns": ["Read this."]})
    assert (entry.key, entry.category) == ("ab12", "rag")
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Read this."}]
    (entry,) = read("speed-bench", {"question_id": "cd34", "category": "rag", "messages": messages})
    assert (entry.system, texts(entry)) == ("Be brief.", ["Read this."])
    placeholder = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"
    for row in ({"turns": ["fine", placeholder]}, {"messages": [{"role": "user", "content": placeholder}]}):
        with pytest.raises(BadRow, match="placeholder"):
            read("speed-bench", {"question_id": "e", "category": "qa", **row})


def test_sharegpt_leaves_replies_out_and_joins_what_one_says_in_a_row():
    said = [
        {"from": "gpt", "value": "left over from a split"},
        {"from": "system", "value": "Be kind."},
        {"from": "human", "value": "Hello"},
        {"from": "human", "value": "again"},
        {"from": "gpt", "value": "Hi!"},
        {"from": "human", "value": "Bye"},
    ]
    (entry,) = read("sharegpt", {"id": "x_0", "conversations": said})
    assert (entry.key, entry.system, texts(entry)) == (None, "Be kind.", ["Hello\n\nagain", "Bye"])
    with pytest.raises(BadRow, match="the user says nothing"):
        read("sharegpt", {"conversations": said[:1]})
    with pytest.raises(BadRow, match=r"conversations' 1: speaker 'tool' is none of"):
        read("sharegpt", {"conversations": [{"from": "tool", "value": "{}"}]})


def test_messages_take_parts_of_text_and_the_batch_form():
    parts = [{"type": "text", "text": "Look"}, {"type": "text", "text": "here"}]
    talk = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": parts}]
    (entry,) = read("messages", {"messages": talk})
    assert (entry.system, texts(entry)) == ("Be brief.", ["Look\n\nhere"])
    (entry,) = read("messages", {"custom_id": "r-1", "body": {"messages": talk}})
    assert entry.key == "r-1"
    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    with pytest.raises(BadRow, match="only text can be used"):
        read("messages", {"messages": picture})


def test_mt_bench_101_names_a_dialogue_by_task_and_id():
    history = [{"user": "One?", "bot": "1"}, {"user": "Two?", "bot": "2"}]
    (entry,) = read("mt-bench-101", {"task": "CM", "id": 3, "history": history})
    assert (entry.key, entry.category, texts(entry)) == ("CM/3", "CM", ["One?", "Two?"])


def longbench(**fields: Any) -> Any:
    row = {
        "input": "Who?",
        "context": "Ann came.",
        "answers": ["Ann"],
        "dataset": "qasper",
        "_id": "a1",
        **fields,
    }
    return read("longbench", row)[0]


def test_longbench_asks_as_each_set_needs_it():
    assert texts(longbench())[0].startswith("Ann came.")
    assert texts(longbench())[0].endswith("Who?")
    assert "Summarise" in texts(longbench(dataset="gov_report", input=""))[0]
    assert texts(longbench(dataset="lcc", input="", context="def f():"))[0] == "def f():\n"
    assert texts(longbench(dataset="trec_e", input="Q: x"))[0] == "Ann came.\nQ: x"
    found = longbench(dataset="passage_retrieval_en", answers=["Paragraph 4"])
    assert found.turns[0].expected.answers == ("Paragraph 4",)
    assert longbench().turns[0].expected is None
    assert longbench().key == "a1"


def test_longbench_v2_needs_four_choices_and_a_letter():
    row = {f"choice_{letter}": letter.lower() for letter in "ABCD"}
    row |= {
        "_id": "z",
        "domain": "Code",
        "question": "Which?",
        "context": "Text",
        "answer": "C",
        "length": "short",
    }
    (entry,) = read("longbench-v2", row)
    assert entry.turns[0].expected.rule == "choice"
    assert "C. c" in texts(entry)[0]
    with pytest.raises(BadRow, match="not A, B, C or D"):
        read("longbench-v2", {**row, "answer": "E"})
    with pytest.raises(BadRow, match="'choice_D' is missing"):
        read("longbench-v2", {key: value for key, value in row.items() if key != "choice_D"})


def test_ruler_is_named_by_its_file_never_by_its_index():
    row = {"index": 512, "input": "Find 7.", "outputs": ["7", "8"], "length": 9, "answer_prefix": " It is"}
    (entry,) = read("ruler", row, "niah_single_1")
    assert (entry.key, entry.category, texts(entry)) == (None, "niah_single_1", ["Find 7. It is"])
    assert entry.turns[0].expected.rule == "contains_all"
    (entry,) = read("ruler", {**row, "pred": "7", "others": {}, "truncation": -1}, "qa_1")
    assert entry.turns[0].expected.rule == "contains_any"


def test_l_eval_has_a_conversation_for_each_instruction():
    row = {
        "input": "A report.",
        "instructions": ["Why?", "When?"],
        "outputs": ["x", "y"],
        "evaluation": "LLM",
    }
    entries = read("l-eval", row, "meeting_summ")
    assert [entry.part for entry in entries] == ["1", "2"]
    assert texts(entries[1]) == ["A report.\n\nWhen?"]
    with pytest.raises(BadRow, match="2 instructions have 1 outputs"):
        read("l-eval", {**row, "outputs": ["x"]})


def test_qmsum_has_a_conversation_for_each_query():
    query = {"query": "What of rain?", "answer": "much", "relevant_text_span": [["1", "2"]]}
    row = {
        "topic_list": [],
        "general_query_list": [query],
        "specific_query_list": [query, query],
        "meeting_transcripts": [{"speaker": "Ann", "content": "It rains."}],
    }
    entries = read("qmsum", row)
    assert [entry.part for entry in entries] == ["general-1", "specific-1", "specific-2"]
    assert texts(entries[0])[0].startswith("Ann: It rains.")
    with pytest.raises(BadRow, match="no query"):
        read("qmsum", {**row, "general_query_list": [], "specific_query_list": []})


def test_locomo_reads_sessions_in_order_and_pictures_by_caption():
    said = {"speaker": "Bo", "dia_id": "D1:1", "text": "See", "img_url": ["u"], "blip_caption": "a fox"}
    talk = {
        "speaker_a": "Bo",
        "session_10": [{"speaker": "Al", "dia_id": "D10:1", "text": "Last"}],
        "session_2_date_time": "noon",
        "session_2": [said],
        "session_3_date_time": "a date without its session",
    }
    questions = [
        {"question": "What?", "answer": 2022, "category": 2, "evidence": []},
        {"question": "Never?", "adversarial_answer": "no", "category": 5, "evidence": ["D1:1"]},
    ]
    entries = read("locomo", {"sample_id": "conv-1", "conversation": talk, "qa": questions})
    assert [(entry.key, entry.part, entry.category) for entry in entries] == [
        ("conv-1", "1", "temporal"), ("conv-1", "2", "adversarial"),
    ]  # fmt: skip
    assert texts(entries[0])[0].startswith("noon\nBo: See [shows a fox]\n\nAl: Last")


def test_gsm8k_is_scored_by_its_last_number_and_humaneval_not_at_all():
    (entry,) = read("gsm8k", {"question": "How many?", "answer": "2+2 is <<2+2=4>>4\n#### 1,200"})
    assert entry.turns[0].expected.answers == ("1200",)
    with pytest.raises(BadRow, match="####"):
        read("gsm8k", {"question": "How many?", "answer": "four"})
    row = {
        "task_id": "Test/0",
        "prompt": "def f():\n",
        "entry_point": "f",
        "canonical_solution": "",
        "test": "",
    }
    (entry,) = read("humaneval", row)
    assert (entry.key, entry.turns[0].expected) == ("Test/0", None)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "key 'turns' is missing; it has nothing"),
        ({"turns": "text"}, "key 'turns' is a text, not a list of texts"),
        ({"turns": []}, "key 'turns' is an empty list"),
        ({"turns": ["a", 3]}, "key 'turns': number 2 is a number, not a text"),
        ({"turns": ["a", " "]}, "key 'turns': number 2 is empty"),
        ({"turns": ["a\ud800"]}, "half of a surrogate pair"),
        ({"turns": ["a"], "category": 5}, "key 'category' is a number, not a text"),
        ({"turns": ["a"], "question_id": [1]}, "key 'question_id' is a list, not a number or a text"),
        ({"turns": ["a"], "question_id": True}, "key 'question_id' is true or false"),
    ],
)
def test_a_wrong_field_is_named_with_what_it_is(fields, reason):
    with pytest.raises(BadRow, match=reason):
        read("questions", fields)


@pytest.mark.parametrize("name", list(FORMATS))
@pytest.mark.parametrize("value", [None, 3, "x", [], {}, [1], [{}], [{"x": 1}], True])
def test_no_value_of_any_field_is_more_than_a_bad_row(name, value):
    """Whatever stands in the fields, there is a conversation or a reason."""
    keys = {
        "turns",
        "prompt",
        "messages",
        "conversations",
        "history",
        "task",
        "id",
        "input",
        "context",
        "answers",
    }
    keys |= {
        "outputs",
        "instructions",
        "meeting_transcripts",
        "specific_query_list",
        "conversation",
        "qa",
        "answer",
    }
    keys |= {
        "question",
        "dataset",
        "_id",
        "task_id",
        "category",
        "question_id",
        "sample_id",
        "body",
        "evaluation",
    }
    with suppress(BadRow):
        assert read(name, dict.fromkeys(keys, value))
