"""How much of a reply repeats itself or its context.

Small targets fall into loops, and loops flatter every drafter that copies; so the share is measured
and turns past a threshold are marked, kept and shown apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

__all__ = ["DEGENERATE_SHARE", "copied_share", "repeated_share"]

NGRAM = 8
DEGENERATE_SHARE = 0.5
"""A reply is degenerate when more than this share of it lies inside its own repeated 8-grams."""


def repeated_share(tokens: Sequence[int]) -> float:
    """Share of tokens inside an 8-gram that occurs more than once in the reply, 0..1."""
    grams = _ngrams(tokens)
    counts = Counter(grams)
    return _covered_share([counts[gram] > 1 for gram in grams], len(tokens))


def copied_share(tokens: Sequence[int], context: Sequence[int]) -> float:
    """Share of reply tokens inside an 8-gram that the context holds, 0..1."""
    known = set(_ngrams(context))
    return _covered_share([gram in known for gram in _ngrams(tokens)], len(tokens))


def _ngrams(tokens: Sequence[int]) -> list[tuple[int, ...]]:
    return [tuple(tokens[start : start + NGRAM]) for start in range(len(tokens) - NGRAM + 1)]


def _covered_share(hits: Sequence[bool], num_tokens: int) -> float:
    """Share of positions that at least one hit covers; hit i covers NGRAM positions from i on."""
    covered_until = covered = 0
    for start, hit in enumerate(hits):
        if hit:
            covered += start + NGRAM - max(start, covered_until)
            covered_until = start + NGRAM
    return covered / num_tokens if num_tokens else 0.0
