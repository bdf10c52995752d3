"""Text that a suite holds is found, and nothing else is."""

from __future__ import annotations

import random
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hyflash_bench.suites import ChatTokenizer
from hyflash_bench.targets.target import Target
from hyflash_bench.training.corpus.overlap import NGRAM, Overlap, suites_overlap
from tests.training.corpus.conftest import ASKED

TEXT = random.Random(0).sample(range(1000), 200)
OTHER = [1000 + token for token in TEXT]


@given(at=st.integers(0, 180), length=st.integers(1, 20), where=st.integers(0, 200))
def test_thirteen_tokens_in_a_row_are_found_wherever_they_stand(at: int, length: int, where: int) -> None:
    shared = TEXT[at : at + length]

    found = Overlap([TEXT]).holds([*OTHER[:where], *shared, *OTHER[where:]])

    assert found == (length >= NGRAM)


def test_rulers_and_short_texts_are_no_text() -> None:
    overlap = Overlap([[7, 8] * 50, TEXT[:12], []])

    assert overlap.num_rows == 0
    assert not overlap.holds([7, 8] * 20)
    assert not Overlap([]).holds(TEXT)


def test_the_suites_own_words_are_found(target: Target, folder: Path) -> None:
    chat = ChatTokenizer(target.tokenizer)

    overlap, hashes = suites_overlap(chat, 2048)

    assert set(hashes) == {"tiny"}
    assert overlap.holds(chat.first_turn(f"Tell me: {ASKED}"))
    assert not overlap.holds(chat.first_turn("Why do ships carry two radios and one cook?"))
