"""How much of a draft the text would have accepted, at fixed anchors of documents held out.

Teacher-forced, in training form: anchors are drawn uniformly over the replies, whereas a live run
drafts where its last draft ended. So figures here compare drafters and steps with each other;
those of ``hyflash-bench run`` are the ones to quote.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hyflash_bench.drafters.networks.network import DraftNetwork
from hyflash_bench.training.batches import Feeder, Lesson
from hyflash_bench.training.losses import Teacher, slot_weights, teacher_loss
from hyflash_bench.training.plan import TrainingPlan
from hyflash_bench.training.pupil import Pupil
from hyflash_bench.training.stream import Anchoring, Document, Packing, Segment, Stream

__all__ = ["Exam", "Score", "accepted_by", "accepted_prefix"]

_FEWEST_ANCHORS = 24
"""Of a segment: the more texts an exam reads, the more it says; the more it takes."""


@dataclass(frozen=True, slots=True)
class Score:
    """One drafter on the documents held out.

    Attributes:
        loss: Divergence from the target, as in training.
        acceptance_length: 1 + mean accepted prefix, greedy, teacher-forced at uniform anchors.
        slots: P(slot j accepted | slots before it accepted); None where no slot got so far.
        num_anchors: Anchors in all.
    """

    loss: float
    acceptance_length: float
    slots: tuple[float | None, ...]
    num_anchors: int = 0

    def columns(self) -> dict[str, float | None]:
        """The same as columns of a curve; slots are counted from 1."""
        return {
            "held_out_loss": self.loss,
            "acceptance_length": self.acceptance_length,
            **{f"slot_{slot}": value for slot, value in enumerate(self.slots, 1)},
        }


class Exam:
    """The same held-out anchors every time, for every drafter.

    Args:
        documents: Held out; candidates are greedy replies where there are any.
        plan: Sizes of segments, number of anchors, seed.
        feeder: Makes lessons of them.
    """

    def __init__(self, documents: Sequence[Document], plan: TrainingPlan, feeder: Feeder) -> None:
        packing = Packing(plan.segment_tokens, plan.max_segment_tokens, long_share=1.0)
        anchoring = Anchoring(_FEWEST_ANCHORS, plan.memory_rows, plan.min_context_share)
        self._stream = Stream(documents, packing, anchoring, plan.seed + 1)
        self._feeder, self._slot_decay = feeder, plan.slot_decay
        self._parts = list(self._draw(plan.evaluation_anchors))

    @property
    def document_indices(self) -> list[int]:
        """Documents whose features an exam reads."""
        positions = {position for segment, _ in self._parts for position in segment.documents}
        return sorted(self._stream.documents[position].index for position in positions)

    def _draw(self, wanted: int) -> Iterator[tuple[Segment, NDArray[np.int64]]]:
        for step in range(self._stream.epoch_steps):
            if wanted <= 0:
                return
            segment, anchors = self._stream(step)
            yield segment, anchors
            wanted -= len(anchors)

    @torch.no_grad()  # not inference mode: a network may keep tables that training uses later
    def take(self, pupils: Sequence[Pupil]) -> list[Score]:
        """Score drafters, in float32 so that no two logits tie by rounding."""
        papers = [_Paper() for _ in pupils]
        with ExitStack() as stack:
            networks = [stack.enter_context(pupil.at_its_best()) for pupil in pupils]
            for segment, anchors in self._parts:
                lesson = self._feeder.lesson(self._stream.documents, segment, anchors)
                for network, paper in zip(networks, papers, strict=True):
                    paper.add(network, lesson, self._slot_decay)
        return [paper.score() for paper in papers]


def accepted_prefix(proposed: Tensor, teacher: Teacher) -> Tensor:
    """``[N]`` how many of the proposed ``[N, B]`` target ids stand in the text, from the first on."""
    matches = (proposed == teacher.labels) & teacher.is_scored
    return matches.long().cumprod(1).sum(1)


def accepted_by(network: DraftNetwork, lesson: Lesson) -> Tensor:
    """``[N]`` how many tokens of a network's drafts at a lesson's anchors stand in the text."""
    teacher = lesson.teacher.first(network.config.num_slots)
    return _accepted(network, network(lesson.batch).float(), teacher)


def _accepted(network: DraftNetwork, logits: Tensor, teacher: Teacher) -> Tensor:
    return accepted_prefix(network.head.draft_ids[logits.argmax(-1)], teacher)


class _Paper:
    """What one drafter has answered so far."""

    def __init__(self) -> None:
        self._losses: list[float] = []
        self._accepted: list[NDArray[np.int64]] = []
        self._reachable: list[NDArray[np.int64]] = []
        self._num_slots = 0

    def add(self, network: DraftNetwork, lesson: Lesson, slot_decay: float) -> None:
        self._num_slots = network.config.num_slots
        teacher = lesson.teacher.first(self._num_slots)
        logits = network(lesson.batch).float()
        weights = slot_weights(teacher.is_scored, slot_decay)
        self._losses.append(float(teacher_loss(logits, teacher, weights)))
        self._accepted.append(_accepted(network, logits, teacher).cpu().numpy())
        self._reachable.append(teacher.is_scored.sum(1).cpu().numpy())

    def score(self) -> Score:
        accepted = np.concatenate(self._accepted)
        reachable = np.concatenate(self._reachable)
        slots: list[float | None] = []
        for slot in range(self._num_slots):
            tried = int(((accepted >= slot) & (reachable > slot)).sum())
            slots.append(float((accepted > slot).sum() / tried) if tried else None)
        return Score(
            loss=float(np.mean(self._losses)),
            acceptance_length=float(1 + accepted.mean()),
            slots=tuple(slots),
            num_anchors=len(accepted),
        )
