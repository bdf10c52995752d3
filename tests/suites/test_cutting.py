import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyflash_bench.errors import DataError
from hyflash_bench.suites import ChatTokenizer
from hyflash_bench.suites.cutting import cut_exactly, excerpt, phrasings, split_lines, split_sentences
from tests.suites.conftest import WordTokenizer, story


def test_phrasings_come_in_a_fixed_order_with_the_plain_one_first():
    assert phrasings("[a|b] x[|y] [z]") == ["a x [z]", "a xy [z]", "b x [z]", "b xy [z]"]


def test_sentences_end_where_readers_end_them():
    text = 'It rained. "Did it?" It did, e.g. On Monday.\n\nDr. No came: 3 of them\nstayed.'
    assert split_sentences(text) == [
        "It rained.",
        ' "Did it?"',
        " It did, e.g. On Monday.",
        "\n\nDr. No came:",
        " 3 of them\nstayed.",
    ]


@given(st.text(alphabet="aB .!?:\n\"'()", max_size=200))
def test_splitting_loses_nothing(text):
    for split in (split_sentences, split_lines):
        assert "".join(split(text)).strip() == text.strip()


def test_a_long_table_is_split_at_its_lines():
    table = "\n".join(f"row {number} of a table" for number in range(40))
    assert len(split_sentences(table)) == 40


def test_an_excerpt_of_code_keeps_its_indentation():
    pieces = split_lines("class A:\n    x = 1\n\n    y = 2\n")
    assert excerpt(pieces[1:]) == "    x = 1\n\n    y = 2"


def _frames():
    def framed(words):
        return lambda pieces: "read " * words + excerpt(pieces)

    return [framed(words) for words in range(1, 9)]


@settings(deadline=None, max_examples=40)
@given(
    tokens=st.integers(min_value=60, max_value=400),
    grow=st.sampled_from(["forward", "backward"]),
    anchor=st.integers(min_value=60, max_value=70),
)
def test_every_length_is_met_exactly_and_at_boundaries(tokens, grow, anchor):
    chat, pieces = ChatTokenizer(WordTokenizer()), split_sentences(story(140, "s"))
    anchors = [anchor + step for step in range(8)]
    cut = cut_exactly(chat, tokens, pieces, _frames(), anchors=anchors, grow=grow, where="test")
    assert len(chat.first_turn(cut.text)) == tokens
    assert cut.text.endswith(excerpt(pieces[cut.first : cut.last]))
    assert (cut.first if grow == "forward" else cut.last) in anchors


def test_a_short_text_is_refused_with_what_it_would_give():
    chat = ChatTokenizer(WordTokenizer())
    with pytest.raises(DataError, match="too short for a prompt of 5,000 tokens"):
        cut_exactly(chat, 5000, ["One.", " Two."], _frames(), anchors=[0], grow="forward", where="x")
