"""The stream that all drafters share: which documents and anchors make up each step.

A batch is a function of seed and step, so budgets are equal by construction and a training that
goes on needs to remember nothing but the number of its steps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hyflash_bench.errors import DataError

__all__ = ["Anchoring", "Document", "Packing", "Segment", "Stream", "draw_anchors", "pack"]

_ORDER, _ANCHORS, _REPEATS = 0, 1, 2  # what a random number is for, as part of its seed
_REPEAT_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Document:
    """What the stream needs to know of a document.

    Attributes:
        index: In the corpus.
        length: Rows.
        candidates: Rows that may be anchors: not the first, and the next row's role is scored.
    """

    index: int
    length: int
    candidates: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        index: int,
        roles: NDArray[np.uint8],
        scored: Sequence[int],
        tokens: Sequence[int] = (),
        repeat_share: float = 1.0,
    ) -> Document:
        """Read the candidates off the roles.

        Args:
            index: In the corpus.
            roles: ``[n]``.
            scored: Roles whose tokens are learnt.
            tokens: ``[n]``; needed where repeats are to be thinned out.
            repeat_share: How many are kept of those whose next token ends a repeated passage. There is
                little to learn from more of them, and small targets repeat themselves a lot.
        """
        rows = np.flatnonzero(np.isin(roles[1:], list(scored)))
        rows = rows[rows >= 1]
        if repeat_share < 1:
            kept = np.random.default_rng([_REPEATS, index]).random(len(rows)) < repeat_share
            rows = rows[kept | ~_ends_repeat(tokens)[rows + 1]]
        return cls(index, len(roles), rows)

    def share_before(self, row: int) -> float:
        """Share of the candidates that come before a row, 0..1."""
        return float((self.candidates < row).mean()) if len(self.candidates) else 1.0


@dataclass(frozen=True, slots=True)
class Segment:
    """The documents of one batch, each from its start.

    Attributes:
        documents: Positions in the stream's list, in order.
        lengths: Rows taken of each.
    """

    documents: tuple[int, ...]
    lengths: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        """Rows in all."""
        return sum(self.lengths)

    @property
    def starts(self) -> tuple[int, ...]:
        """Row at which each document begins."""
        return tuple(int(start) for start in np.cumsum([0, *self.lengths[:-1]]))

    def around(self, anchors: NDArray[np.int64]) -> tuple[Segment, NDArray[np.int64]]:
        """The segment without the documents that hold none of some anchors.

        Args:
            anchors: Rows of the segment, ascending.

        Returns:
            A shorter segment, of its first document if there are no anchors; the anchors as rows of it.
        """
        starts = np.asarray(self.starts)
        holder = np.searchsorted(starts, anchors, side="right") - 1
        kept = np.unique(holder) if len(anchors) else np.array([0])
        narrow = Segment(
            tuple(self.documents[place] for place in kept), tuple(self.lengths[place] for place in kept)
        )
        moved = np.asarray(narrow.starts)[np.searchsorted(kept, holder)] + anchors - starts[holder]
        return narrow, moved.astype(np.int64)


@dataclass(frozen=True, slots=True)
class Packing:
    """How documents are laid into segments (see :class:`TrainingPlan` for the fields)."""

    segment_tokens: int
    max_segment_tokens: int
    long_share: float


@dataclass(frozen=True, slots=True)
class Anchoring:
    """How anchors are drawn (see :class:`TrainingPlan` for the fields)."""

    num_anchors: int
    memory_rows: int
    min_context_share: float


def _ends_repeat(tokens: Sequence[int]) -> NDArray[np.bool_]:
    """``[n]``: whether a token ends a run of :data:`_REPEAT_TOKENS` that the text held before."""
    seen: set[tuple[int, ...]] = set()
    found = np.zeros(len(tokens), dtype=bool)
    for stop in range(_REPEAT_TOKENS, len(tokens) + 1):
        gram = tuple(tokens[stop - _REPEAT_TOKENS : stop])
        found[stop - 1] = gram in seen
        seen.add(gram)
    return found


def pack(documents: Sequence[Document], packing: Packing, random: np.random.Generator) -> list[Segment]:
    """One epoch: every document once, those with much to learn from more often, in random order.

    A document longer than ``segment_tokens`` makes a segment by itself: all of it up to
    ``max_segment_tokens``, or its beginning, the less likely the less of what is to be learnt lies
    there. So a reply to a long text is always read behind all of it.
    """
    size = packing.segment_tokens
    times = [max(1, round(len(document.candidates) / size)) for document in documents]
    visits = random.permutation(np.repeat(np.arange(len(documents)), times))
    segments: list[Segment] = []
    open_documents: list[int] = []
    room = size

    def close() -> None:
        nonlocal room
        if open_documents:
            lengths = tuple(documents[position].length for position in open_documents)
            segments.append(Segment(tuple(open_documents), lengths))
        open_documents.clear()
        room = size

    for position in visits.tolist():
        length = documents[position].length
        if length > size:
            is_whole = random.random() >= (1 - packing.long_share) * documents[position].share_before(size)
            taken = min(length, packing.max_segment_tokens) if is_whole else size
            segments.append(Segment((position,), (taken,)))
            continue
        if length > room:
            close()
        open_documents.append(position)
        room -= length
    close()
    return segments


def draw_anchors(
    candidates: NDArray[np.int64],
    depths: NDArray[np.int64],
    anchoring: Anchoring,
    random: np.random.Generator,
) -> NDArray[np.int64]:
    """Choose anchors uniformly, but enough of them deep in their document.

    Args:
        candidates: ``[M]`` rows.
        depths: ``[M]`` rows between the start of its document and each.
        anchoring: How many, and what is deep enough.
        random: Source of chance.

    Returns:
        ``[min(M, num_anchors)]`` rows, ascending.
    """
    wanted = min(anchoring.num_anchors, len(candidates))
    is_deep = depths >= anchoring.memory_rows
    deep, shallow = candidates[is_deep], candidates[~is_deep]
    fair = round(wanted * len(deep) / max(1, len(candidates)))
    num_deep = min(len(deep), max(fair, int(np.ceil(wanted * anchoring.min_context_share))))
    num_deep = max(num_deep, wanted - len(shallow))
    chosen = [
        random.choice(deep, num_deep, replace=False),
        random.choice(shallow, wanted - num_deep, replace=False),
    ]
    return np.sort(np.concatenate(chosen))


class Stream:
    """Segments and anchors by step.

    Args:
        documents: To draw from; those without a candidate are left out.
        packing: How they are laid into segments.
        anchoring: How anchors are drawn.
        seed: Another seed gives another stream.

    Raises:
        DataError: No document holds a row that could be an anchor.
    """

    def __init__(
        self, documents: Sequence[Document], packing: Packing, anchoring: Anchoring, seed: int
    ) -> None:
        self.documents = [document for document in documents if len(document.candidates)]
        self._packing, self._anchoring, self._seed = packing, anchoring, seed
        self._epochs: list[list[Segment]] = []
        self._ends: list[int] = []
        self._add_epoch()

    def __call__(self, step: int) -> tuple[Segment, NDArray[np.int64]]:
        """The segment of a step, and its anchors as rows of the segment, ascending."""
        while self._ends[-1] <= step:
            self._add_epoch()
        epoch = bisect_right(self._ends, step)
        segment = self._epochs[epoch][step - self._ends[epoch]]  # counted from its end
        random = np.random.default_rng([self._seed, _ANCHORS, step])
        return segment, draw_anchors(*self.candidates(segment), self._anchoring, random)

    @property
    def epoch_steps(self) -> int:
        """Steps in which the first epoch is through."""
        return len(self._epochs[0])

    def deep_share(self, steps: int) -> float:
        """Share of the anchors of the first steps with ``memory_rows`` before them in their document."""
        deep = [self._are_deep(step) for step in range(min(steps, self.epoch_steps))]
        return float(np.concatenate(deep).mean())

    def _are_deep(self, step: int) -> NDArray[np.bool_]:
        segment, anchors = self(step)
        rows, depths = self.candidates(segment)
        order = np.argsort(rows)
        found = depths[order][np.searchsorted(rows[order], anchors)]
        return np.asarray(found >= self._anchoring.memory_rows)

    def candidates(self, segment: Segment) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of a segment that may be anchors, and their depths in their documents."""
        rows, depths = [], []
        taken = zip(segment.documents, segment.lengths, segment.starts, strict=True)
        for position, length, start in taken:
            found = self.documents[position].candidates
            found = found[found < length - 1]
            rows.append(found + start)
            depths.append(found)
        return np.concatenate(rows), np.concatenate(depths)

    def _add_epoch(self) -> None:
        random = np.random.default_rng([self._seed, _ORDER, len(self._epochs)])
        packed = pack(self.documents, self._packing, random)
        # A long document's beginning may hold nothing to score, while its end does.
        segments = [segment for segment in packed if len(self.candidates(segment)[0])]
        if not segments:
            raise DataError(
                f"None of {len(self.documents)} documents holds a token to learn from in its first "
                f"{self._packing.segment_tokens}. Build a larger corpus, or choose other --roles."
            )
        self._epochs.append(segments)
        self._ends.append((self._ends[-1] if self._ends else 0) + len(segments))
