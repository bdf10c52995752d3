"""How much of a draft is accepted behind short and behind long contexts, on documents held out.

Anchors are drawn as many for each span of context as there are, up to a limit, each document giving a
few: long contexts are rare, and what a drafter makes of them is the question. All drafters answer at the
same anchors, so their differences are told more exactly than the figures themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hyflash_bench.training.batches import Feeder
from hyflash_bench.training.evaluate import accepted_by
from hyflash_bench.training.plan import TrainingPlan
from hyflash_bench.training.pupil import Pupil
from hyflash_bench.training.stream import Document, Segment

__all__ = ["CONTEXTS", "ContextExam", "ContextScore", "Estimate"]

CONTEXTS = ((80, 256), (256, 512), (512, 1024), (1024, 2048), (2048, 4096), (4096, 8192))
"""Spans of rows before the anchor in its document, the last one excluded."""

_OF_A_DOCUMENT = 32
"""Most anchors of a document in a span: more documents say more than more anchors of one."""
_CONTEXTS = 5
"""What the random numbers are for, as part of their seed."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over anchors.

    Attributes:
        value: The mean.
        error: Its standard error, documents being what is drawn; None for a single one.
    """

    value: float
    error: float | None


@dataclass(frozen=True, slots=True)
class ContextScore:
    """One drafter behind one span of contexts.

    Attributes:
        low: Fewest rows before an anchor.
        high: One more than most.
        num_documents: That the anchors lie in.
        num_anchors: The same for all drafters.
        acceptance_length: 1 + mean accepted prefix, greedy, teacher-forced.
        gain: The same less that of the first drafter.
    """

    low: int
    high: int
    num_documents: int
    num_anchors: int
    acceptance_length: Estimate
    gain: Estimate

    def columns(self) -> dict[str, Any]:
        """As columns of a table."""
        return {
            "context_from": self.low,
            "context_to": self.high - 1,
            "num_documents": self.num_documents,
            "num_anchors": self.num_anchors,
            "acceptance_length": self.acceptance_length.value,
            "acceptance_length_error": self.acceptance_length.error,
            "gain": self.gain.value,
            "gain_error": self.gain.error,
        }


class ContextExam:
    """The same held-out anchors for every drafter, by how much stands before them.

    Args:
        documents: Held out; candidates are what is examined.
        plan: Number of anchors in a span, seed.
        feeder: Makes lessons of them.
        num_slots: Most slots of any drafter.
    """

    def __init__(
        self, documents: Sequence[Document], plan: TrainingPlan, feeder: Feeder, num_slots: int
    ) -> None:
        self._documents, self._feeder = documents, feeder
        self._parts = list(self._draw(plan.evaluation_anchors, plan.seed, num_slots))

    def _draw(self, wanted: int, seed: int, num_slots: int) -> Iterator[tuple[Segment, NDArray[np.int64]]]:
        random = np.random.default_rng([seed, _CONTEXTS])
        room = dict.fromkeys(CONTEXTS, wanted)
        for place in random.permutation(len(self._documents)).tolist():
            document = self._documents[place]
            chosen = []
            for span in CONTEXTS:
                inside = document.candidates[
                    (document.candidates >= span[0])
                    & (document.candidates < min(span[1], document.length - 1))
                ]
                count = min(len(inside), _OF_A_DOCUMENT, room[span])
                chosen.append(random.choice(inside, count, replace=False))
                room[span] -= count
            anchors = np.sort(np.concatenate(chosen))
            if len(anchors):  # what stands behind the last draft is not read
                yield Segment((place,), (min(document.length, int(anchors[-1]) + num_slots + 1),)), anchors

    @torch.no_grad()
    def take(self, pupils: Sequence[Pupil]) -> list[list[ContextScore]]:
        """Score drafters, those spans that have anchors; in float32."""
        if not self._parts:
            return [[] for _ in pupils]
        accepted: list[list[NDArray[np.int64]]] = [[] for _ in pupils]
        with ExitStack() as stack:
            networks = [stack.enter_context(pupil.at_its_best()) for pupil in pupils]
            for segment, anchors in self._parts:
                lesson = self._feeder.lesson(self._documents, segment, anchors)
                for network, answers in zip(networks, accepted, strict=True):
                    answers.append(accepted_by(network, lesson).cpu().numpy())
        depths = np.concatenate([anchors for _, anchors in self._parts])
        owners = np.repeat(np.arange(len(self._parts)), [len(anchors) for _, anchors in self._parts])
        lengths = [1 + np.concatenate(answers) for answers in accepted]
        return [list(_scores(mine, lengths[0], depths, owners)) for mine in lengths]


def _scores(
    mine: NDArray[np.int64], first: NDArray[np.int64], depths: NDArray[np.int64], owners: NDArray[np.int64]
) -> Iterator[ContextScore]:
    for low, high in CONTEXTS:
        inside = (depths >= low) & (depths < high)
        if inside.any():
            by = owners[inside]
            yield ContextScore(
                low,
                high,
                num_documents=len(np.unique(by)),
                num_anchors=int(inside.sum()),
                acceptance_length=_estimate(mine[inside], by),
                gain=_estimate((mine - first)[inside], by),
            )


def _estimate(values: NDArray[np.int64], owners: NDArray[np.int64]) -> Estimate:
    """A mean over all values, and its error if whole documents are drawn (a ratio estimator)."""
    mean = float(values.mean())
    residuals = np.bincount(owners, values - mean)
    count = len(np.unique(owners))
    if count < 2:
        return Estimate(mean, None)
    return Estimate(mean, sqrt(count / (count - 1) * float((residuals**2).sum())) / len(values))
