"""Where training starts: fitted in closed form to the first segments, before the first step."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch

from hyflash_bench.drafters.networks.network import DraftNetwork
from hyflash_bench.training.batches import Feeder, Lesson
from hyflash_bench.training.losses import slot_weights, teacher_loss
from hyflash_bench.training.pupil import Pupil
from hyflash_bench.training.stream import Segment, Stream

__all__ = ["first_segments", "indices_of", "warm_start"]

_WARM_SEGMENTS = 96
_CALIBRATION_STEPS = 4
_SCALES = (0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0)


def first_segments(stream: Stream) -> list[Segment]:
    """Those that are fitted to."""
    return [stream(step)[0] for step in range(min(_WARM_SEGMENTS, stream.epoch_steps))]


def indices_of(stream: Stream, segments: Sequence[Segment]) -> list[int]:
    """Documents of some segments, as indices in the corpus."""
    return [stream.documents[position].index for segment in segments for position in segment.documents]


def warm_start(pupils: Sequence[Pupil], stream: Stream, segments: Sequence[Segment], feeder: Feeder) -> None:
    """Fit in closed form at all possible anchors of some segments, then temper the result.

    What came from a checkpoint stays as it is; the rest is fitted to go with it.

    Args:
        pupils: Get their first weights, and word of what it took.
        stream: That the segments are of, its first ones.
        segments: To be read; their features should be there already, or the first pupil's time has them.
        feeder: Makes batches of them.
    """
    calibration = range(min(_CALIBRATION_STEPS, len(segments)))
    lessons = [feeder.lesson(stream.documents, *stream(step)) for step in calibration]
    read = [*segments, *(segments[step] for step in calibration)]
    for pupil in pupils:
        began = time.perf_counter()
        with pupil.keeping_taken() as taken:
            pupil.network.warm_start(
                feeder.batch(stream.documents, segment, np.sort(stream.candidates(segment)[0]))
                for segment in segments
            )
            if "head.norm.weight" not in taken:
                _soften(pupil.network, lessons, pupil.plan.slot_decay)
        seconds = round(time.perf_counter() - began, 2)
        tokens = sum(segment.num_tokens for segment in read)
        pupil.warm_start = {"passes": len(read), "tokens": tokens, "seconds": seconds}


@torch.no_grad()
def _soften(network: DraftNetwork, lessons: Sequence[Lesson], slot_decay: float) -> None:
    """Scale the head's norm to where the loss is least: a fit by least squares is too sure of itself.

    What is copied is left out meanwhile: it has no part in the head.
    """
    losses = torch.zeros(len(_SCALES))
    copying, network.copying = network.copying, None
    for lesson in lessons:
        logits = network(lesson.batch)
        teacher = lesson.teacher.first(network.config.num_slots)
        weights = slot_weights(teacher.is_scored, slot_decay)
        losses += torch.tensor([float(teacher_loss(logits * scale, teacher, weights)) for scale in _SCALES])
    network.copying = copying
    network.head.norm.weight.mul_(_SCALES[int(losses.argmin())])
