"""The last tokens of a text and nothing else, searched by looking through them.

Drafters that copy keep this in place of an index when they are given a window: four bytes a token, at
the price of a search whose time grows with the window.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from hyflash_bench.drafters.base import Held, MemoryKind
from hyflash_bench.footprint import TOKEN_BYTES, recent_held, recent_rows

__all__ = ["RecentMatch", "RecentText", "widest"]


class RecentMatch(NamedTuple):
    """A suffix of a context that the text continues somewhere.

    Attributes:
        shared: ``[n]`` int64, how many of the context's last tokens stand in the text up to each place.
        ends: Places at which the longest one ends that something follows.
        length: Its tokens; 0 if there is none.
    """

    shared: Tensor
    ends: Tensor
    length: int


class RecentText:
    """The last tokens of a text that grows.

    Args:
        window: Most tokens that are kept.
        max_depth: Longest context in tokens that :meth:`longest_match` looks for.
    """

    def __init__(self, window: int, max_depth: int = 1) -> None:
        self._window, self._max_depth = window, max_depth
        self._num_seen = self._num_kept = 0
        self._ids = torch.empty(0, dtype=torch.int32)

    @property
    def ids(self) -> Tensor:
        """``[n]`` int32, n at most the window."""
        return self._ids[: self._num_kept]

    def held(self) -> list[Held]:
        """The tensor kept alive."""
        return [Held("buffer", self._ids)]

    def formula(self, context_length: int) -> dict[MemoryKind, int]:
        """Bytes by kind after so many tokens."""
        return {**recent_held(context_length, self._window)}

    def extend(self, tokens: Tensor) -> None:
        """Append ``[T]`` tokens; the oldest ones beyond the window are forgotten."""
        self._num_seen += len(tokens)
        arriving = tokens[-self._window :]
        kept = self.ids[max(0, self._num_kept + len(arriving) - self._window) :]
        rows = recent_rows(self._num_seen, self._window)
        if rows != len(self._ids):
            grown = self._ids.new_empty(rows)
            grown[: len(kept)] = kept
            self._ids = grown
        elif len(kept) < self._num_kept:
            self._ids[: len(kept)] = kept.clone()
        self._num_kept = len(kept) + len(arriving)
        self._ids[len(kept) : self._num_kept] = arriving

    def places_after(self, last_token: int, size: int) -> Tensor:
        """Where the last ``size`` tokens, ``last_token`` the last of them, are followed by something.

        Ascending; n itself if ``last_token`` is what follows.
        """
        text, start = self.ids, self._num_kept - (size - 1)
        if start < 0 or self._num_kept < size:
            return torch.empty(0, dtype=torch.int64)
        wanted = torch.cat([text[start:], text.new_tensor([last_token])])
        return (text.unfold(0, size, 1) == wanted).all(1).nonzero()[:, 0] + size

    # Statistics, as :class:`~hyflash_bench.drafters.automaton.SuffixAutomaton` keeps them

    def longest_match(self, token: int) -> RecentMatch:
        """The longest suffix of text + ``token`` that the text continues somewhere."""
        text, back = self.ids, torch.arange(min(self._max_depth, self._num_kept + 1))
        context = torch.cat([text, text.new_tensor([token])])
        places = (text[:-1] == token).nonzero()
        before = places - back
        is_same = (text[before.clamp(min=0)] == context[self._num_kept - back]) & (before >= 0)
        shared = torch.zeros(self._num_kept, dtype=torch.int64)
        shared[places[:, 0]] = is_same.long().cumprod(1).sum(1)
        return self._matched(shared)

    def follow(self, match: RecentMatch, token: int) -> RecentMatch:
        """The longest suffix of the match's context + ``token`` that the text continues somewhere."""
        before = torch.cat([match.shared.new_zeros(1), match.shared[:-1]])
        shared = (before + 1).clamp(max=self._max_depth) * (self.ids == token)
        return self._matched(shared)

    def num_followed(self, match: RecentMatch) -> int:
        """How often the match occurs with something after it."""
        return len(match.ends)

    def best_continuation(self, match: RecentMatch) -> tuple[int, int] | None:
        """The most frequent next token and its count; of equals, the latest seen."""
        if match.length == 0:
            return None
        following = self._following(match)
        counts = Counter(following)
        most = max(counts.values())
        return next(token for token in reversed(following) if counts[token] == most), most

    def continuations(self, match: RecentMatch) -> Iterator[tuple[int, int]]:
        """Every token that follows the match somewhere, with its count."""
        yield from Counter(self._following(match)).items()

    def _following(self, match: RecentMatch) -> list[int]:
        """What stands behind each end, the oldest first."""
        following: list[int] = self.ids[match.ends + 1].tolist()
        return following

    def _matched(self, shared: Tensor) -> RecentMatch:
        """The last place is no end: nothing follows it."""
        followed = shared[:-1]
        length = int(followed.max()) if len(followed) else 0
        ends = (followed == length).nonzero()[:, 0] if length else followed.new_empty(0)
        return RecentMatch(shared, ends, length)


def widest(num_bytes: int, window: int) -> int:
    """The most tokens that bytes hold, of a window of so many; 0 for no window yet."""
    affordable = max(1, num_bytes // TOKEN_BYTES)
    return min(affordable, window) if window else affordable
