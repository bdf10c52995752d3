"""A suffix automaton that grows token by token and counts what follows what.

Its states are the classes of substrings that end at the same places of the text (Blumer et al.,
"The smallest automaton recognizing the subwords of a text", 1985): at most two a token. The
counts are ours: exact for substrings of up to ``max_depth + 1`` tokens, at a cost of at most
``max_depth`` small steps a token.

Plain integers and arrays only; this module knows nothing of drafting.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

__all__ = ["Match", "SuffixAutomaton"]

ROOT = 0
NONE = -1
INT_BYTES = sys.getsizeof(1 << 20)


class Match(NamedTuple):
    """A substring of the text: its state, and its length in tokens."""

    state: int
    length: int


class SuffixAutomaton:
    """All substrings of a growing text, with counts.

    Args:
        max_depth: Longest context in tokens whose continuations are counted.
    """

    def __init__(self, max_depth: int) -> None:
        self._max_depth = max_depth
        self._longest = array("i")  # tokens in the longest substring of the state
        self._link = array("i")  # state of the longest suffix that ends in more places
        self._count = array("i")  # places where the state's substrings end
        self._followed = array("i")  # the same without the end of the text
        self._best_token = array("i")  # most frequent continuation, the latest among equals
        self._best_count = array("i")
        # Most states have one continuation, which stands in these two arrays; the few with
        # several have the others in a dict.
        self._only_token = array("i")
        self._only_next = array("i")
        self._more_next: dict[int, dict[int, int]] = {}
        self._num_more = 0
        self._table_bytes = 0
        self._new_state(longest=0)
        self._last = ROOT
        self._tail = Match(ROOT, 0)

    @property
    def num_states(self) -> int:
        """States so far, at most twice the tokens."""
        return len(self._link)

    @property
    def num_bytes(self) -> int:
        """Bytes held: the arrays, and the dicts of states with several continuations."""
        arrays = (
            self._longest,
            self._link,
            self._count,
            self._followed,
            self._best_token,
            self._best_count,
            self._only_token,
            self._only_next,
        )
        states_with_more = sys.getsizeof(self._more_next) + len(self._more_next) * INT_BYTES
        tables = self._table_bytes + self._num_more * 2 * INT_BYTES
        return sum(sys.getsizeof(values) for values in arrays) + states_with_more + tables

    def extend(self, tokens: Iterable[int]) -> None:
        """Append to the text."""
        for token in tokens:
            self._append_state(token)
            self._count_token(token)

    def longest_match(self, token: int) -> Match:
        """The longest suffix of text + ``token`` that the text continues somewhere.

        It has at most ``max_depth`` tokens, and none when there is no such suffix.
        """
        return self.follow(self._tail, token)

    def follow(self, match: Match, token: int) -> Match:
        """The longest suffix of ``match`` + ``token`` that the text continues somewhere."""
        match = self._step(match, token)
        while match.state != ROOT and self._only_token[match.state] == NONE:
            match = self._shortened(match)
        return match

    def num_followed(self, match: Match) -> int:
        """How often the substring occurs with something after it."""
        return self._followed[match.state]

    def best_continuation(self, match: Match) -> tuple[int, int] | None:
        """The most frequent next token and its count; of equals, the latest seen."""
        token = self._best_token[match.state]
        return None if token == NONE else (token, self._best_count[match.state])

    def continuations(self, match: Match) -> Iterator[tuple[int, int]]:
        """Every token that follows the substring somewhere, with its count."""
        for token, state in self._edges(match.state):
            yield token, self._count[state]

    # Growing

    def _append_state(self, token: int) -> None:
        """The classic online construction, amortised constant time."""
        state = self._last
        self._last = added = self._new_state(self._longest[state] + 1)
        while state != NONE and self._next(state, token) == NONE:
            self._connect(state, token, added)
            state = self._link[state]
        if state == NONE:
            self._link[added] = ROOT
            return
        following = self._next(state, token)
        if self._longest[following] > self._longest[state] + 1:
            following = self._split(state, token, following)
        self._link[added] = following

    def _split(self, state: int, token: int, crowded: int) -> int:
        """Give the substrings of ``crowded`` that also end here a state of their own."""
        clone = self._new_state(self._longest[state] + 1)
        for values in (
            self._link,
            self._count,
            self._followed,
            self._best_token,
            self._best_count,
        ):
            values[clone] = values[crowded]
        for label, following in self._edges(crowded):
            self._connect(clone, label, following)
        while state != NONE and self._next(state, token) == crowded:
            self._connect(state, token, clone)
            state = self._link[state]
        self._link[crowded] = clone
        return clone

    def _count_token(self, token: int) -> None:
        """Count ``token`` after every suffix of the text before it, up to the depth."""
        # The append may have split the state of the tail.
        tail = self._within(self._tail, self._max_depth)
        state, counted = tail.state, NONE
        count, best_count = self._count, self._best_count
        while state != NONE:
            following = self._next(state, token)
            if following != counted:
                count[following] += 1
                counted = following
            if count[following] >= best_count[state]:
                best_count[state] = count[following]
                self._best_token[state] = token
            self._followed[state] += 1
            state = self._link[state]
        self._tail = self._step(tail, token)

    # Moving

    def _step(self, match: Match, token: int) -> Match:
        """The longest suffix of ``match`` + ``token`` that occurs, within the depth."""
        while True:
            following = self._next(match.state, token)
            if following != NONE:
                return self._within(Match(following, match.length + 1), self._max_depth)
            if match.state == ROOT:
                return match
            match = self._shortened(match)

    def _within(self, match: Match, depth: int) -> Match:
        """The suffix of ``match`` with at most ``depth`` tokens."""
        state, length = match.state, min(match.length, depth)
        while state != ROOT and length <= self._longest[self._link[state]]:
            state = self._link[state]
        return Match(state, length)

    def _shortened(self, match: Match) -> Match:
        link = self._link[match.state]
        return Match(link, self._longest[link])

    # Storing

    def _new_state(self, longest: int) -> int:
        self._longest.append(longest)
        for values in (self._link, self._best_token, self._only_token, self._only_next):
            values.append(NONE)
        for values in (self._count, self._followed, self._best_count):
            values.append(0)
        return len(self._link) - 1

    def _next(self, state: int, token: int) -> int:
        if self._only_token[state] == token:
            return self._only_next[state]
        more = self._more_next.get(state)
        return NONE if more is None else more.get(token, NONE)

    def _connect(self, state: int, token: int, following: int) -> None:
        if self._only_token[state] in (NONE, token):
            self._only_token[state] = token
            self._only_next[state] = following
            return
        more = self._more_next.setdefault(state, {})
        if token not in more:
            self._num_more += 1
            self._table_bytes -= sys.getsizeof(more) if more else 0
            more[token] = following
            self._table_bytes += sys.getsizeof(more)
        else:
            more[token] = following

    def _edges(self, state: int) -> Iterator[tuple[int, int]]:
        if self._only_token[state] != NONE:
            yield self._only_token[state], self._only_next[state]
            yield from self._more_next.get(state, {}).items()
