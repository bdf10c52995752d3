"""Keeps what suites ask out of the corpus: documents that share 13 tokens in a row are left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from hyflash_bench.suites import ChatTokenizer, Item, Suite, list_suites, load_suite

__all__ = ["NGRAM", "Overlap", "suites_overlap"]

NGRAM = 13
"""Tokens in a row that count as the same text."""
_FEWEST_KINDS = 5
"""Different tokens that such a row needs: rulers, indentation and the like are no text."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)

_Hashes = NDArray[np.uint64]


class Overlap:
    """The rows of 13 tokens of some texts, by their 64-bit hashes.

    Args:
        texts: As token ids.
    """

    def __init__(self, texts: Iterable[Sequence[int]]) -> None:
        found = [_hashes(text) for text in texts]
        self._known = np.unique(np.concatenate(found)) if found else np.empty(0, np.uint64)

    @property
    def num_rows(self) -> int:
        """Different rows of 13 tokens."""
        return len(self._known)

    def holds(self, tokens: Sequence[int]) -> bool:
        """Whether a document shares a row of 13 tokens with the texts."""
        if not len(self._known):
            return False
        hashes = _hashes(tokens)
        places = np.searchsorted(self._known, hashes).clip(max=len(self._known) - 1)
        return bool((self._known[places] == hashes).any())


def suites_overlap(
    chat: ChatTokenizer, max_positions: int, progress: Callable[[str], None] | None = None
) -> tuple[Overlap, dict[str, str]]:
    """Everything that the shipped suites say to a target.

    Of prompts that differ in length alone the longest one that fits the target is built: it holds
    the text of the shorter ones.

    Args:
        chat: The target's tokenizer.
        max_positions: Positions of the target.
        progress: Called with a line for each suite.

    Returns:
        The rows of tokens, and the hash of each suite by name.

    Raises:
        DownloadError: A suite's texts cannot be fetched.
    """
    texts: list[list[int]] = []
    hashes: dict[str, str] = {}
    for name in list_suites():
        suite = load_suite(name)
        if suite.is_external:  # its texts come with the user
            continue
        items = _longest(suite, max_positions)
        suite.prepare(progress, items)
        if progress is not None:
            progress(f"Reading suite {name}: {len(items)} conversations")
        for item in items:
            conversation = suite.build(item, chat)
            spoken = [conversation.system or "", *(turn.text for turn in conversation.turns)]
            texts.extend(chat.encode(text) for text in spoken)
        hashes[name] = suite.suite_hash
    return Overlap(texts), hashes


def _longest(suite: Suite, max_positions: int) -> list[Item]:
    """One item of each ladder of context lengths: the longest that fits."""
    longest: dict[str, Item] = {}
    for item in suite.items(max_positions=max_positions):
        ladder = item.item_id
        if item.context_length is not None:
            ladder = ladder.replace(f"/{item.context_length}", "")
        if ladder not in longest or (item.context_length or 0) > (longest[ladder].context_length or 0):
            longest[ladder] = item
    return list(longest.values())


def _hashes(tokens: Sequence[int]) -> _Hashes:
    """The hash of every row of 13 tokens that has enough different ones."""
    ids = np.asarray(tokens, dtype=np.uint64)
    if len(ids) < NGRAM:
        return np.empty(0, np.uint64)
    rows = np.lib.stride_tricks.sliding_window_view(ids, NGRAM)
    in_order = np.sort(rows, axis=1)
    num_kinds = 1 + (in_order[:, 1:] != in_order[:, :-1]).sum(axis=1)
    hashes = np.zeros(len(rows), np.uint64)
    for column in rows.T:
        mixed = (column + np.uint64(1)) * _FACTOR
        hashes = (hashes ^ mixed ^ (mixed >> np.uint64(31))) * _FACTOR
    kept: _Hashes = hashes[num_kinds >= _FEWEST_KINDS]
    return kept
