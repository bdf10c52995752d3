"""Prompt lookup against a scan of the text, as the method is described."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hyflash_bench.drafters import Features
from hyflash_bench.drafters.prompt_lookup import PromptLookup
from hyflash_bench.errors import SpecError
from tests.drafters.fakes import sampler


def scan(ids: list[int], options: PromptLookup.Options) -> list[int]:
    """What follows an earlier occurrence of the last n tokens, longest n first."""
    for size in range(options.max_ngram, options.min_ngram - 1, -1):
        starts = [start for start in range(len(ids) - size) if ids[start : start + size] == ids[-size:]]
        if starts and size <= len(ids):
            start = starts[-1] if options.match == "latest" else starts[0]
            return ids[start + size : start + size + options.num_draft_tokens]
    return []


def propose(ids: list[int], options: PromptLookup.Options, chunk: int, budget: int) -> list[int]:
    drafter = PromptLookup(options)
    for part in torch.tensor(ids[:-1], dtype=torch.int64).split(chunk):
        drafter.observe(part, Features())
    tokens: list[int] = drafter.draft(ids[-1], budget, sampler()).tokens.tolist()
    return tokens


@settings(deadline=None)
@given(
    ids=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    num_draft_tokens=st.integers(1, 6),
    match=st.sampled_from(["latest", "first"]),
    chunk=st.integers(1, 40),
    budget=st.integers(1, 8),
)
def test_equals_a_scan_of_the_text(ids, sizes, num_draft_tokens, match, chunk, budget):  # type: ignore[no-untyped-def]
    options = PromptLookup.Options(
        min_ngram=min(sizes), max_ngram=max(sizes), num_draft_tokens=num_draft_tokens, match=match
    )
    assert propose(ids, options, chunk, budget) == scan(ids, options)[:budget]


def test_the_latest_of_two_continuations_is_the_default() -> None:
    assert propose([1, 2, 7, 1, 2, 8, 1, 2], PromptLookup.Options(num_draft_tokens=1), 3, 9) == [8]


def test_the_first_one_can_be_asked_for() -> None:
    options = PromptLookup.Options(num_draft_tokens=1, match="first")
    assert propose([1, 2, 7, 1, 2, 8, 1, 2], options, 3, 9) == [7]


def test_sizes_in_the_wrong_order_are_refused_with_both_numbers() -> None:
    with pytest.raises(SpecError, match="min_ngram 4 is above max_ngram 3"):
        PromptLookup.Options.parse({"min_ngram": 4}, where="drafter 'prompt-lookup'")
