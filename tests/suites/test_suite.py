import json
import subprocess
import sys

import pytest

from hyflash_bench.errors import DataError, SpecError, UnknownName, UsageError
from hyflash_bench.suites import list_suites, load_suite, validate_suite
from tests.suites.conftest import suite_values, write_suite


def test_importing_suites_imports_no_heavy_package():
    heavy = ("torch", "pandas", "transformers", "numpy")
    code = f"import sys, hyflash_bench.suites; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_item_has_its_exact_length_and_builds_the_same_twice(mine, words):
    for item in mine.items():
        built = mine.build(item, words)
        assert len(words.first_turn(built.turns[0].text)) == item.context_length
        assert built == mine.build(item, words)
        assert built.sources


def test_documents_go_on_into_the_next_chapter_and_back_into_the_one_before(mine, words):
    files = {}
    for item in mine.items(contexts=[400]):
        name = "/".join(item.item_id.split("/")[2:4])
        files[name] = [source.split()[1] for source in mine.build(item, words).sources]
    assert files["summary/two"] == ["part_2.txt", "part_10.txt"]
    assert files["continuation/ten"][-1] == "part_10.txt"


def test_the_hash_follows_spec_texts_and_nothing_else(tmp_path):
    path = write_suite(tmp_path, suite_values())
    first = load_suite(path).suite_hash
    assert load_suite(path).suite_hash == first
    (tmp_path / "stories" / "part_1.txt").write_text("Changed.")
    assert load_suite(path).suite_hash != first
    write_suite(tmp_path, suite_values() | {"max_new_tokens": 21})
    assert load_suite(path).suite_hash != first


def test_a_limit_is_spread_over_kinds_and_lengths(mine):
    taken = mine.items(limit=6)
    assert len({(item.kind, item.context_length) for item in taken}) == 6
    assert set(mine.items(limit=3)) <= set(taken)
    assert {item.context_length for item in mine.items(limit=3)} == {100, 200, 400}
    assert mine.items(limit=1000) == mine.items()


def test_lengths_that_do_not_fit_are_left_out_and_named(mine):
    assert {i.context_length for i in mine.items(max_positions=220)} == {100, 200}
    assert {i.context_length for i in mine.too_long(219)} == {200, 400}
    assert {i.context_length for i in mine.too_long(219, max_new_tokens=5)} == {400}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"contexts": [300]}, "no context length 300. It has: 100, 200, 400."),
        ({"kinds": ["poem"]}, "no kind poem. It has: summary, continuation."),
    ],
)
def test_asking_for_what_is_not_there_names_what_is(mine, asked, message):
    with pytest.raises(UsageError) as caught:
        mine.items(**asked)
    assert str(caught.value) == f"Suite mine has {message}"


def test_unknown_suites_builders_and_keys_are_refused_with_the_nearest(tmp_path):
    with pytest.raises(UnknownName, match="Did you mean 'longctx'"):
        load_suite("longctxt")
    values = suite_values()
    values["tasks"][0]["builder"] = "document"
    with pytest.raises(UnknownName, match="Did you mean 'documents'"):
        load_suite(write_suite(tmp_path, values)).items()
    values = suite_values() | {"max_new_token": 3}
    with pytest.raises(SpecError, match="did you mean 'max_new_tokens'"):
        load_suite(write_suite(tmp_path, values))
    values = suite_values()
    values["tasks"][0]["options"]["context"] = [100]
    with pytest.raises(SpecError, match="did you mean 'contexts'"):
        load_suite(write_suite(tmp_path, values)).items()


def test_a_key_given_twice_is_refused(tmp_path):
    path = write_suite(tmp_path, suite_values())
    path.write_text(path.read_text() + "\nversion: 2\n")
    with pytest.raises(SpecError, match="already given"):
        load_suite(path)


def test_validation_finds_a_missing_card_and_a_missing_file(tmp_path, words):
    path = write_suite(tmp_path, suite_values())
    assert [finding.level for finding in validate_suite(path, words)] == ["warning"]
    (tmp_path / "mine.md").write_text("# mine\n")
    assert validate_suite(path, words) == []
    values = suite_values()
    values["tasks"][0]["options"]["documents"][0]["file"] = "part_3.txt"
    findings = validate_suite(write_suite(tmp_path, values), words)
    assert {finding.level for finding in findings} == {"error"}
    assert "part_3.txt" in findings[0].message


def _dialogue_suite(tmp_path, conversations, **options):
    values = suite_values()
    values["tasks"] = [
        {"name": "talk", "builder": "dialogues", "options": {"files": "talk/*.yaml", **options}}
    ]
    (tmp_path / "talk").mkdir(exist_ok=True)
    content = {"category": "chat", "conversations": conversations}
    (tmp_path / "talk" / "chat.yaml").write_text(json.dumps(content))
    return load_suite(write_suite(tmp_path, values))


def test_a_dialogue_may_bring_a_document_along(tmp_path, words):
    document = {"source": "stories", "file": "part_1.txt", "max_chars": 300}
    suite = _dialogue_suite(tmp_path, [{"id": "a", "document": document, "turns": ["Why?"] * 6}])
    built = suite.build(suite.items()[0], words)
    quoted = built.turns[0].text
    assert len(quoted) < 320
    assert quoted.startswith('"""\nThe harbour')
    assert quoted.endswith('"""\n\nWhy?')
    assert [turn.text for turn in built.turns[1:]] == ["Why?"] * 5


@pytest.mark.parametrize(
    ("conversations", "message"),
    [
        ([{"id": "a", "turns": ["Hi"] * 5}], "has 5 turns"),
        ([{"id": "a", "turns": ["Hi"] * 6}, {"id": "a", "turns": ["Hi"] * 6}], "already in"),
        ([{"id": "a", "turns": ["Hi", "  ", *["Hi"] * 4]}], "at least 1 character"),
        ([{"id": "a", "turns": ["Hi"] * 6, "tern": 1}], "unknown key"),
    ],
)
def test_dialogues_are_checked_strictly(tmp_path, conversations, message):
    with pytest.raises((DataError, SpecError), match=message):
        _dialogue_suite(tmp_path, conversations).items()


def test_a_subset_takes_items_as_they_are_and_may_shorten_them(tmp_path, words):
    whole = _dialogue_suite(tmp_path, [{"id": "a", "turns": [f"Turn {n}." for n in range(6)]}])
    part = suite_values() | {"name": "part", "sources": {}}
    options = {"suite": "mine", "items": ["talk/a"], "max_turns": 2}
    part["tasks"] = [{"name": "cut", "builder": "subset", "options": options}]
    suite = load_suite(write_suite(tmp_path, part))
    (item,) = suite.items()
    assert (item.item_id, item.num_turns) == ("part/talk/a", 2)
    assert [turn.text for turn in suite.build(item, words).turns] == ["Turn 0.", "Turn 1."]
    assert whole.items()[0].num_turns == 6


@pytest.mark.parametrize(("first", "second"), [("part.yaml", "part"), ("other", "part")])
def test_a_subset_that_leads_back_to_itself_is_refused(tmp_path, first, second):
    for name, whole in (("part", first), ("other", second)):
        values = suite_values() | {"name": name, "sources": {}}
        options = {"suite": whole, "items": ["cut/a"]}
        values["tasks"] = [{"name": "cut", "builder": "subset", "options": options}]
        write_suite(tmp_path, values)
    with pytest.raises(SpecError, match="subset of this suite"):
        load_suite(tmp_path / "part.yaml").items()


@pytest.mark.parametrize("pattern", ["/etc/*.yaml", "**a/*.yaml"])
def test_patterns_that_python_refuses_are_told(tmp_path, pattern):
    values = suite_values() | {"sources": {}}
    values["tasks"] = [{"name": "talk", "builder": "dialogues", "options": {"files": pattern}}]
    with pytest.raises(DataError, match="no pattern of files"):
        load_suite(write_suite(tmp_path, values)).items()


def test_dialogues_and_subsets_stay_in_the_suites_folder(tmp_path):
    (tmp_path / "a" / "inner").mkdir(parents=True)
    (tmp_path / "talks.yaml").write_text("category: chat\nconversations: [{id: one, turns: [Hello.]}]")
    task = {"name": "talk", "builder": "dialogues", "options": {"files": "../*.yaml", "min_turns": 1}}
    values = suite_values() | {"sources": {}}
    outside = write_suite(tmp_path / "a", values | {"tasks": [task]})
    with pytest.raises(DataError, match=r"'\.\./\*\.yaml' leads out of the suite's folder"):
        load_suite(outside).items()
    for other in ("../mine.yaml", "../mine", str(tmp_path / "a" / "mine.yaml")):
        task = {"name": "part", "builder": "subset", "options": {"suite": other, "items": ["talk/one"]}}
        inner = write_suite(tmp_path / "a" / "inner", values | {"name": "inner", "tasks": [task]})
        with pytest.raises(DataError, match="leads out"):
            load_suite(inner).items()


def test_the_shipped_suites_are_listed():
    assert {"longctx", "multiturn", "quick"} <= set(list_suites())
