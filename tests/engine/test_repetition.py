from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hyflash_bench.engine.repetition import NGRAM, copied_share, repeated_share

TEXT = st.lists(st.integers(0, 2), max_size=40)


def brute_force(tokens: list[int], context: list[int] | None) -> float:
    grams = [tuple(tokens[i : i + NGRAM]) for i in range(len(tokens) - NGRAM + 1)]
    if context is None:
        hits = [grams.count(gram) > 1 for gram in grams]
    else:
        known = [tuple(context[i : i + NGRAM]) for i in range(len(context) - NGRAM + 1)]
        hits = [gram in known for gram in grams]
    covered = {start + k for start, hit in enumerate(hits) if hit for k in range(NGRAM)}
    return len(covered) / len(tokens) if tokens else 0.0


@given(TEXT)
def test_repeated_share_equals_brute_force(tokens):
    assert repeated_share(tokens) == brute_force(tokens, None)


@given(TEXT, TEXT)
def test_copied_share_equals_brute_force(tokens, context):
    assert copied_share(tokens, context) == brute_force(tokens, context)


def test_a_loop_is_all_repetition_and_a_fresh_text_none():
    assert repeated_share([1, 2, 3] * 10) == 1.0
    assert repeated_share(list(range(30))) == 0.0
    assert repeated_share([]) == 0.0
