"""The automaton and the suffix drafter against counting by hand."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hyflash_bench.drafters import Features
from hyflash_bench.drafters.automaton import SuffixAutomaton
from hyflash_bench.drafters.suffix import Suffix
from tests.drafters.fakes import sampler

texts = st.lists(st.integers(0, 3), min_size=1, max_size=60)


class ByHand:
    """The same statistics by looking through the whole text each time."""

    def __init__(self, text: list[int], max_depth: int) -> None:
        self.text = text
        self.max_depth = max_depth

    def ends(self, substring: list[int]) -> list[int]:
        size = len(substring)
        return [end for end in range(size, len(self.text) + 1) if self.text[end - size : end] == substring]

    def followers(self, substring: list[int]) -> list[int]:
        return [self.text[end] for end in self.ends(substring) if end < len(self.text)]

    def continued_suffix(self, tokens: list[int]) -> list[int]:
        for size in range(min(self.max_depth, len(tokens)), 0, -1):
            if self.followers(tokens[-size:]):
                return tokens[-size:]
        return []

    def ranked(self, substring: list[int]) -> list[tuple[int, float]]:
        """Next tokens with their share, the most frequent first, the latest of equals leading."""
        followers = self.followers(substring)
        counts = Counter(followers)
        most = max(counts.values())
        best = next(token for token in reversed(followers) if counts[token] == most)
        order = sorted(counts, key=lambda token: (-counts[token], token != best, token))
        return [(token, counts[token] / len(followers)) for token in order]

    def chain(self, last_token: int, options: Suffix.Options, budget: int) -> list[int]:
        match = self.continued_suffix([*self.text, last_token])
        longest = int(options.max_spec_factor * len(match)) + options.max_spec_offset
        tokens: list[int] = []
        probability = 1.0
        while match and len(tokens) < min(longest, options.num_draft_tokens, budget):
            token, share = self.ranked(match)[0]
            probability *= share
            if probability < options.min_token_prob - 1e-12:
                break
            tokens.append(token)
            match = self.continued_suffix([*match, token])
        return tokens

    def tree(self, last_token: int, options: Suffix.Options, budget: int) -> dict[tuple[int, ...], float]:
        """Every path within the limits, with its probability."""
        start = self.continued_suffix([*self.text, last_token])
        longest = int(options.max_spec_factor * len(start)) + options.max_spec_offset
        found: dict[tuple[int, ...], float] = {}

        def grow(match: list[int], path: tuple[int, ...], probability: float) -> None:
            if not match or len(path) >= longest:
                return
            for token, share in self.ranked(match):
                through = probability * share
                if through >= options.min_token_prob - 1e-12:
                    found[*path, token] = through
                    grow(self.continued_suffix([*match, token]), (*path, token), through)

        grow(start, (), 1.0)
        return found


@settings(deadline=None)
@given(text=texts, max_depth=st.integers(1, 6), chunk=st.integers(1, 60))
def test_counts_equal_counting_by_hand(text: list[int], max_depth: int, chunk: int) -> None:
    automaton, by_hand = SuffixAutomaton(max_depth), ByHand(text, max_depth)
    for start in range(0, len(text), chunk):
        automaton.extend(text[start : start + chunk])
    for token in range(5):
        suffix = by_hand.continued_suffix([*text, token])
        match = automaton.longest_match(token)
        assert match.length == len(suffix)
        if suffix:
            ranked = by_hand.ranked(suffix)
            total = automaton.num_followed(match)
            assert total == len(by_hand.followers(suffix))
            assert {t: c / total for t, c in automaton.continuations(match)} == dict(ranked)
            best = automaton.best_continuation(match)
            assert best is not None
            assert best[0] == ranked[0][0]
            assert best[1] / total == ranked[0][1]


@settings(deadline=None)
@given(text=texts)
def test_the_automaton_has_at_most_two_states_a_token(text: list[int]) -> None:
    automaton = SuffixAutomaton(8)
    automaton.extend(text)
    assert automaton.num_states <= max(2, 2 * len(text))


options_of = st.builds(
    Suffix.Options,
    max_depth=st.integers(1, 6),
    min_token_prob=st.sampled_from([0.0, 0.1, 0.4]),
    max_spec_factor=st.sampled_from([0.5, 1.0, 2.0]),
    max_spec_offset=st.integers(-1, 3),
    num_draft_tokens=st.integers(1, 8),
)


def observed(text: list[int], options: Suffix.Options) -> Suffix:
    drafter = Suffix(options)
    drafter.observe(torch.tensor(text), Features())
    return drafter


@settings(max_examples=300, deadline=None)
@given(text=texts, last=st.integers(0, 3), options=options_of, budget=st.integers(1, 8))
def test_chain_equals_counting_by_hand(
    text: list[int], last: int, options: Suffix.Options, budget: int
) -> None:
    draft = observed(text, options).draft(last, budget, sampler())
    expected = ByHand(text, options.max_depth).chain(last, options, budget)
    assert draft.tokens.tolist() == expected


@settings(max_examples=200, deadline=None)
@given(text=texts, last=st.integers(0, 3), options=options_of, budget=st.integers(1, 8))
def test_tree_holds_the_likeliest_paths(
    text: list[int], last: int, options: Suffix.Options, budget: int
) -> None:
    options = options.model_copy(update={"tree": True, "max_spec_factor": 1.0})
    draft = observed(text, options).draft(last, budget, sampler())
    possible = ByHand(text, options.max_depth).tree(last, options, budget)
    assert draft.parents is not None
    paths: list[tuple[int, ...]] = []
    for token, parent in zip(draft.tokens.tolist(), draft.parents.tolist(), strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    assert len(set(paths)) == len(paths) == min(budget, options.num_draft_tokens, len(possible))
    chosen = [possible[path] for path in paths]
    best = sorted(possible.values(), reverse=True)[: len(paths)]
    assert chosen == pytest.approx(best)


def test_a_repeated_token_is_carried_on() -> None:
    draft = observed([7] * 20, Suffix.Options()).draft(7, 16, sampler())
    assert draft.tokens.tolist() == [7] * 16


def test_drafts_are_no_longer_than_the_match() -> None:
    text = [1, 2, 3, 4, 5, 6, 9, 1]
    assert observed(text, Suffix.Options()).draft(2, 16, sampler()).tokens.tolist() == [3, 4]


def test_the_offset_lengthens_them() -> None:
    options = Suffix.Options(max_spec_offset=2)
    text = [1, 2, 3, 4, 5, 6, 9, 1]
    assert observed(text, options).draft(2, 16, sampler()).tokens.tolist() == [3, 4, 5, 6]
