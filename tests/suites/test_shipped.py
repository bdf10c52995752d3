"""The suites that come with the package, with the default target's own tokenizer."""

from collections import Counter

import pytest

from hyflash_bench.suites import list_suites, load_suite, score
from hyflash_bench.suites.selection import spread

LENGTHS = (512, 1024, 2048, 4096, 7680)
KINDS = {
    "question", "summary", "continuation", "code", "prose",
    "needle", "multi-needle", "variables", "word-frequency",
}  # fmt: skip


@pytest.mark.parametrize("name", list_suites())
def test_every_suite_has_a_card(name):
    assert load_suite(name).path.with_suffix(".md").is_file()


@pytest.mark.parametrize("name", [name for name in list_suites() if not load_suite(name).is_external])
def test_every_suite_has_unique_items(name):
    suite = load_suite(name)
    assert len({item.item_id for item in suite.items()}) == len(suite.items()) > 0
    assert suite.suite_hash == load_suite(name).suite_hash


def test_longctx_has_eight_items_of_each_kind_and_length():
    items = load_suite("longctx").items(max_positions=8192, max_new_tokens=128)
    assert Counter((i.kind, i.context_length) for i in items) == {
        (kind, length): 8 for kind in KINDS for length in LENGTHS
    }


def test_longctx_knows_what_its_items_were_cut_from():
    """One file, whatever the length, the kind of work or the task."""
    items = load_suite("longctx").items()
    settings = {item.document for item in items if "/settings/" in item.item_id}
    assert settings == {"django:docs/ref/settings.txt"}
    kinds = {item.kind for item in items if item.document in settings}
    assert kinds >= {"question", "summary", "continuation"}
    assert all(item.document for item in items)
    (quick,) = {item.document for item in load_suite("quick").items() if "/settings/" in item.item_id}
    assert quick in settings


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_longctx_prompts_have_exact_lengths_and_hold_their_answers(longctx, smollm2_tokenizer, kind):
    items = longctx.items(kinds=[kind], contexts=LENGTHS)
    for item in spread(items, 5):
        built = longctx.build(item, smollm2_tokenizer)
        (turn,) = built.turns
        assert len(smollm2_tokenizer.first_turn(turn.text)) == item.context_length
        if turn.expected and turn.expected.rule == "contains_all":
            assert score(turn.expected, turn.text) == 1.0
        if kind in {"variables", "word-frequency"}:
            assert turn.expected.rule == "word_set"
            assert all(answer in turn.text for answer in turn.expected.answers)
    assert built == longctx.build(item, smollm2_tokenizer)


def test_length_is_the_only_thing_that_changes(longctx, smollm2_tokenizer):
    code = [i for i in longctx.items(kinds=["code"], contexts=LENGTHS[:3]) if "/query/" in i.item_id]
    endings = {longctx.build(item, smollm2_tokenizer).turns[0].text[-200:] for item in code}
    assert len(endings) == 1
    assert endings.pop().rstrip().endswith("):")


def test_multiturn_holds_enough_conversations_of_every_category():
    items = load_suite("multiturn").items()
    categories = {"chat", "coding", "writing", "planning", "maths", "roleplay", "tech-support", "document"}
    assert {item.category for item in items} == categories
    assert len(items) >= 24
    assert all(6 <= item.num_turns <= 12 for item in items)


def test_quick_needs_pip_only_and_stays_small(smollm2_tokenizer):
    suite = load_suite("quick")
    lines = []
    suite.prepare(lines.append)
    built = [suite.build(item, smollm2_tokenizer) for item in suite.items()]
    assert not any("@stdlib" in source for one in built for source in one.sources)
    tokens = sum(suite.max_new_tokens(one.item.task) * one.item.num_turns for one in built)
    assert tokens <= 300
    assert sum(one.item.context_length or 0 for one in built) <= 6000
