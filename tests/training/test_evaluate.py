"""Acceptance on documents held out: counted as it is defined, the same anchors every time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from hyflash_bench.drafters.base import Requires
from hyflash_bench.drafters.networks.batch import Batch
from hyflash_bench.targets.target import Target
from hyflash_bench.training.batches import Feeder
from hyflash_bench.training.corpus.store import Corpus
from hyflash_bench.training.evaluate import Exam, accepted_prefix
from hyflash_bench.training.features import FeatureStore
from hyflash_bench.training.losses import Teacher
from hyflash_bench.training.session import _documents
from hyflash_bench.training.stream import Anchoring, Packing, Stream
from tests.training.toys import USER, toy_plan, write_corpus

SLOTS, DRAFT_VOCAB = 3, 64


class _Scripted:
    """Stands in for a pupil: says the text's own tokens in its first slots and nonsense behind."""

    def __init__(self, num_right: int) -> None:
        self.num_right = num_right
        self.network = self
        self.head = nn.Module()
        self.head.draft_ids = torch.arange(DRAFT_VOCAB)
        self.config = type("Config", (), {"num_slots": SLOTS})

    @contextmanager
    def at_its_best(self) -> Iterator[_Scripted]:
        yield self

    def __call__(self, batch: Batch) -> Tensor:
        labels, _ = batch.labels(SLOTS)
        labels[:, self.num_right :] = DRAFT_VOCAB - 1  # stands nowhere in the text
        return nn.functional.one_hot(labels, DRAFT_VOCAB).float() * 50


@pytest.fixture
def feeder(toy: Target, toy_corpus: Path, tmp_path: Path) -> tuple[Corpus, FeatureStore, Feeder]:
    corpus = Corpus.open(toy_corpus)
    store = FeatureStore(corpus, toy, Requires(taps=(1,)), tmp_path)
    head = toy.model.get_output_embeddings().weight
    ids = torch.arange(DRAFT_VOCAB)
    return corpus, store, Feeder(corpus, store, head, ids, num_slots=SLOTS, roles=(2, 3, 4))


def _exam(parts: tuple[Corpus, FeatureStore, Feeder], toy_corpus: Path, **changes: object) -> Exam:
    corpus, store, feeder = parts
    plan = toy_plan(toy_corpus, Path("tiny"), **changes)
    return Exam(_documents(corpus, store, range(10), (2,)), plan, feeder)


def test_the_accepted_prefix_ends_at_the_first_miss_and_where_slots_do_not_count() -> None:
    labels = torch.tensor([[5, 6, 7], [5, 6, 7], [5, 6, 7], [5, 6, 7]])
    proposed = torch.tensor([[5, 6, 7], [5, 9, 7], [9, 6, 7], [5, 6, 7]])
    is_scored = torch.tensor([[True] * 3, [True] * 3, [True] * 3, [True, False, False]])
    teacher = Teacher(torch.empty(0), torch.empty(0), labels, is_scored)
    assert accepted_prefix(proposed, teacher).tolist() == [3, 1, 0, 1]


@pytest.mark.parametrize("num_right", [0, 1, 2])
def test_scores_follow_what_is_right(feeder, toy_corpus: Path, num_right: int) -> None:
    (score,) = _exam(feeder, toy_corpus).take([_Scripted(num_right)])
    assert score.slots[:num_right] == (1.0,) * num_right
    assert score.slots[num_right] == 0.0
    assert num_right * 0.8 <= score.acceptance_length - 1 <= num_right  # replies end within some drafts
    assert score.num_anchors >= 32


def test_all_drafters_sit_the_same_exam(feeder, toy_corpus: Path) -> None:
    exam = _exam(feeder, toy_corpus)
    first, second = exam.take([_Scripted(1), _Scripted(1)])
    assert first == second == exam.take([_Scripted(1)])[0]
    assert set(exam.document_indices) <= set(range(10))


def test_columns_of_a_curve_count_slots_from_one(feeder, toy_corpus: Path) -> None:
    (score,) = _exam(feeder, toy_corpus).take([_Scripted(1)])
    columns = score.columns()
    assert columns["slot_1"] == 1.0
    assert list(columns)[:2] == ["held_out_loss", "acceptance_length"]


def test_lessons_hold_the_rows_before_the_slots(feeder, toy: Target) -> None:
    corpus, store, made = feeder
    stream = Stream(_documents(corpus, store, range(10), (2,)), Packing(40, 64, 0.5), Anchoring(6, 8, 0.7), 0)
    for step in range(6):
        segment, anchors = stream(step)
        lesson = made.lesson(stream.documents, segment, anchors)
        batch, teacher = lesson.batch, lesson.teacher
        assert batch.starts == segment.starts
        labels, is_inside = batch.labels(SLOTS)
        assert torch.equal(teacher.labels, labels)
        assert not (teacher.is_scored & ~is_inside).any()
        assert teacher.is_scored[:, 0].all()
        logits = batch.features.last_hidden @ toy.model.get_output_embeddings().weight[:DRAFT_VOCAB].float().T
        for n, anchor in enumerate(batch.anchors.tolist()):
            for slot in range(SLOTS):
                if teacher.is_scored[n, slot]:
                    torch.testing.assert_close(teacher.targets[n, slot], logits[anchor + slot].softmax(-1))


def test_slots_behind_the_end_of_a_reply_do_not_count(toy: Target, tmp_path: Path) -> None:
    tokens, roles = torch.arange(3, 15), torch.full((12,), 2, dtype=torch.uint8)
    roles[6:9] = USER
    corpus = Corpus.open(write_corpus(tmp_path / "c", toy, [(tokens, roles)]))
    store = FeatureStore(corpus, toy, Requires(), tmp_path / "f")
    head, ids = toy.model.get_output_embeddings().weight, torch.arange(DRAFT_VOCAB)
    made = Feeder(corpus, store, head, ids, num_slots=3, roles=(2,))
    stream = Stream(_documents(corpus, store, [0], (2,)), Packing(40, 64, 0.5), Anchoring(20, 0, 0.7), 0)
    lesson = made.lesson(stream.documents, *stream(0))
    scored = dict(zip(lesson.batch.anchors.tolist(), lesson.teacher.is_scored.sum(1).tolist(), strict=True))
    assert scored == {1: 3, 2: 3, 3: 2, 4: 1, 8: 3, 9: 2, 10: 1}
