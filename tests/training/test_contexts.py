"""Examined by context: the same anchors for all, by how much stands before them, with honest errors."""

from __future__ import annotations

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hyflash_bench.drafters.networks.batch import Batch
from hyflash_bench.targets.target import Target
from hyflash_bench.training import contexts
from hyflash_bench.training.batches import Lesson
from hyflash_bench.training.contexts import CONTEXTS, ContextExam, _estimate
from hyflash_bench.training.events import Event, Examined
from hyflash_bench.training.losses import Teacher
from hyflash_bench.training.stream import Document, Segment
from hyflash_bench.training.trainer import train
from tests.training.test_evaluate import _Scripted
from tests.training.toys import toy_plan

SLOTS = 3


class _Feeder:
    """Texts that count up: row r of a document is followed by r + 1."""

    def __init__(self) -> None:
        self.segments: list[tuple[Segment, np.ndarray]] = []

    def lesson(self, documents: list[Document], segment: Segment, anchors: np.ndarray) -> Lesson:
        self.segments.append((segment, anchors))
        tokens = torch.arange(segment.num_tokens) % 60
        batch = Batch(tokens, SimpleNamespace(), (0,), torch.from_numpy(anchors))
        labels, inside = batch.labels(SLOTS)
        empty = torch.empty(len(anchors), SLOTS)
        return Lesson(batch, Teacher(empty, empty, labels, inside))


class _Deep(_Scripted):
    """Right in all slots behind 1,000 rows, in the first one before."""

    def __call__(self, batch: Batch) -> Tensor:
        self.num_right = SLOTS
        right = super().__call__(batch)
        self.num_right = 1
        shallow = super().__call__(batch)
        return torch.where((batch.anchors >= 1000)[:, None, None], right, shallow)


def _documents(*lengths: int) -> list[Document]:
    return [Document(index, length, np.arange(1, length - 1)) for index, length in enumerate(lengths)]


def _exam(documents: list[Document], **changes: Any) -> tuple[ContextExam, _Feeder]:
    feeder = _Feeder()
    plan = toy_plan(Path("c"), Path("t"), **{"evaluation_anchors": 40, **changes})
    return ContextExam(documents, plan, feeder, SLOTS), feeder


def test_anchors_lie_in_their_spans_few_a_document_and_no_more_than_asked_for() -> None:
    exam, feeder = _exam(_documents(*[300] * 4, *[1500] * 3, 5000))
    exam.take([_Scripted(1)])
    depths = np.concatenate([anchors for _, anchors in feeder.segments])
    assert depths.min() >= 80
    for low, high in CONTEXTS:
        found = [((anchors >= low) & (anchors < high)).sum() for _, anchors in feeder.segments]
        assert sum(found) == min(40, 32 * sum(length > low for length in [*[300] * 4, *[1500] * 3, 5000]))
        assert max(found) <= 32
    for segment, anchors in feeder.segments:
        assert len(segment.documents) == 1
        assert (np.diff(anchors) > 0).all()
        assert anchors[-1] + 1 < segment.lengths[0] <= anchors[-1] + SLOTS + 1


def test_spans_tell_short_contexts_from_long_ones_and_gains_from_the_first() -> None:
    exam, _ = _exam(_documents(*[300] * 4, *[3000] * 4))
    first, deep = exam.take([_Scripted(1), _Deep(1)])
    assert [(score.low, score.high) for score in deep] == list(CONTEXTS[:5])
    by_low = {score.low: score for score in deep}
    assert by_low[80].acceptance_length.value == 2.0
    assert by_low[80].gain.value == 0.0
    assert by_low[2048].acceptance_length.value == pytest.approx(4.0, abs=0.1)
    assert by_low[2048].gain.value == pytest.approx(2.0, abs=0.1)
    assert all(score.gain.value == 0 for score in first)
    assert [score.num_anchors for score in first] == [score.num_anchors for score in deep]
    assert {score.num_documents for score in deep} <= set(range(1, 9))


def test_texts_too_short_for_any_span_give_no_score() -> None:
    exam, _ = _exam(_documents(40, 60))
    assert exam.take([_Scripted(1)]) == [[]]


def test_the_error_is_that_of_drawing_documents() -> None:
    random = np.random.default_rng(0)
    owners = np.repeat(np.arange(50), 20)

    def drawn() -> np.ndarray:
        return np.repeat(random.normal(0, 1, 50), 20) + random.normal(0, 0.1, 1000)

    means = [drawn().mean() for _ in range(2000)]
    errors = [_estimate(drawn(), owners).error for _ in range(50)]
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.1)
    assert _estimate(np.ones(5, np.int64), np.zeros(5, np.int64)).error is None


def test_a_training_ends_with_it_and_keeps_it(
    loaded: Target, toy_corpus: Path, tiny_target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contexts, "CONTEXTS", ((2, 16), (16, 64)))
    plan = toy_plan(toy_corpus, tiny_target, drafters=["medusa:num_slots=3", "eagle:num_slots=2"])
    told: list[Event] = []
    train(plan, tmp_path / "out", listener=told.append, should_stop=lambda: len(told) > 0)
    assert not (tmp_path / "out" / "medusa" / "contexts.csv").exists()
    train(plan, tmp_path / "out", listener=told.append)
    (examined,) = (event for event in told if isinstance(event, Examined))
    for label in ("medusa", "eagle"):
        with (tmp_path / "out" / label / "contexts.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert [(row["step"], row["context_from"], row["context_to"]) for row in rows] == [
            ("6", "2", "15"),
            ("6", "16", "63"),
        ]
        mine = [row for row in examined.rows if row["drafter"] == label]
        assert [float(row["acceptance_length"]) for row in rows] == pytest.approx(
            [row["acceptance_length"] for row in mine], rel=1e-5
        )
        assert (tmp_path / "out" / label / "curve.csv").exists()
    card = (tmp_path / "out" / "eagle" / "README.md").read_text()
    assert "| 16 to 63 |" in card
    assert "above medusa" in card
    told.clear()
    train(plan, tmp_path / "out", listener=told.append)
    assert not any(isinstance(event, Examined) for event in told)
    assert (tmp_path / "out" / "eagle" / "README.md").read_text() == card
