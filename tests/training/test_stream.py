"""The stream: a function of seed and step, every document in it, anchors where they should be."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hyflash_bench.errors import DataError
from hyflash_bench.training.stream import Anchoring, Document, Packing, Stream, draw_anchors, pack

PACKING = Packing(segment_tokens=50, max_segment_tokens=120, long_share=0.5)
ANCHORING = Anchoring(num_anchors=10, memory_rows=20, min_context_share=0.7)


def _documents(count: int = 30) -> list[Document]:
    random = np.random.default_rng(0)
    documents = []
    for index in range(count):
        length = int(random.integers(5, 140))
        documents.append(Document.of(index, np.full(length, 2, np.uint8), (2,)))
    return documents


def _stream(seed: int = 0) -> Stream:
    return Stream(_documents(), PACKING, ANCHORING, seed)


def test_a_batch_is_a_function_of_seed_and_step():
    first, second = _stream(), _stream()
    backwards = {step: second(step) for step in reversed(range(80))}
    for step in range(80):
        segment, anchors = first(step)
        assert segment == backwards[step][0]
        assert np.array_equal(anchors, backwards[step][1])


def test_another_seed_gives_another_stream():
    assert any(_stream(0)(step)[0] != _stream(1)(step)[0] for step in range(5))


def test_steps_do_not_depend_on_random_state_outside():
    before = _stream()(7)[1]
    np.random.seed(3)
    torch.manual_seed(3)
    assert np.array_equal(_stream()(7)[1], before)


def test_an_epoch_holds_every_document():
    segments = pack(_documents(), PACKING, np.random.default_rng(0))
    assert {position for segment in segments for position in segment.documents} == set(range(30))


def test_segments_start_documents_at_their_start_and_keep_to_their_size():
    documents = _documents()
    for segment in pack(documents, PACKING, np.random.default_rng(0)):
        if len(segment.documents) > 1:
            assert segment.num_tokens <= PACKING.segment_tokens
        else:
            assert segment.num_tokens <= PACKING.max_segment_tokens
        assert segment.starts[0] == 0
        for position, length in zip(segment.documents, segment.lengths, strict=True):
            assert length <= documents[position].length


def test_long_documents_are_taken_whole_as_often_as_asked():
    roles = np.where(np.arange(100) < 40, 2, 0).astype(np.uint8)
    assert _taken(roles, long_share=0.0) == {50}
    assert _taken(roles, long_share=0.5) == {50, 100}
    assert _taken(roles, long_share=1.0) == {100}


def test_documents_whose_replies_come_late_are_always_taken_whole():
    roles = np.where(np.arange(100) >= 60, 2, 0).astype(np.uint8)
    assert _taken(roles, long_share=0.0) == {100}


def test_documents_come_as_often_as_there_is_to_learn_from_them():
    for num_scored, visits in ((3, 1), (50, 1), (99, 2)):
        roles = np.where(np.arange(100) > 99 - num_scored, 2, 0).astype(np.uint8)
        documents = [Document.of(0, roles, (2,))]
        assert len(pack(documents, Packing(50, 120, 1.0), np.random.default_rng(0))) == visits


def _taken(roles, long_share):
    documents = [Document.of(index, roles, (2,)) for index in range(20)]
    segments = pack(documents, Packing(50, 120, long_share), np.random.default_rng(0))
    return {segment.num_tokens for segment in segments}


def test_anchors_are_ascending_scored_and_never_first_of_a_document():
    stream = _stream()
    for step in range(40):
        segment, anchors = stream(step)
        assert (np.diff(anchors) > 0).all()
        assert not set(anchors.tolist()) & set(segment.starts)
        assert not set((anchors + 1).tolist()) & {*segment.starts, segment.num_tokens}


def test_candidates_are_rows_before_scored_tokens():
    roles = np.array([0, 2, 2, 1, 1, 3, 3, 0], np.uint8)
    assert Document.of(0, roles, (2, 3)).candidates.tolist() == [1, 4, 5]
    assert Document.of(0, roles, (3,)).candidates.tolist() == [4, 5]


def test_candidates_in_repeated_passages_are_thinned_out():
    loop = list(range(10)) * 30
    roles = np.full(300, 2, np.uint8)
    everything, some, none = (
        Document.of(0, roles, (2,), loop, share).candidates for share in (1.0, 0.25, 0.0)
    )
    assert len(everything) == 298
    # The second round's first seven tokens end no run of eight that was there before.
    assert none.tolist() == list(range(1, 16))
    assert 40 < len(some) < 120
    assert set(none) < set(some) < set(everything)


def test_text_that_does_not_repeat_keeps_all_its_candidates():
    roles = np.full(50, 2, np.uint8)
    assert len(Document.of(0, roles, (2,), range(50), 0.0).candidates) == 48


def test_enough_anchors_are_deep():
    rows = np.arange(1, 101)
    anchoring = Anchoring(num_anchors=20, memory_rows=70, min_context_share=0.7)
    anchors = draw_anchors(rows, rows, anchoring, np.random.default_rng(0))
    assert len(anchors) == 20
    assert (anchors >= 70).sum() >= 14


def test_the_share_of_deep_anchors_is_told_and_is_what_was_asked_for_where_that_can_be():
    documents = [
        Document.of(index, np.full(length, 2, np.uint8), (2,)) for index, length in enumerate([100] * 20)
    ]
    for share in (0.7, 0.9):
        stream = Stream(documents, Packing(100, 100, 1.0), Anchoring(10, 60, share), 0)
        counted = [(anchors >= 60).mean() for _, anchors in map(stream, range(10))]
        assert stream.deep_share(10) == pytest.approx(np.mean(counted))
        assert stream.deep_share(10) >= share
    packed = Stream(documents[:2], Packing(200, 200, 1.0), Anchoring(10, 60, 0.7), 0)
    segment, anchors = packed(0)
    assert segment.lengths == (100, 100)
    assert packed.deep_share(1) == (anchors % 100 >= 60).mean()


def test_where_few_rows_are_deep_all_of_them_are_taken():
    rows = np.arange(1, 101)
    anchoring = Anchoring(num_anchors=20, memory_rows=98, min_context_share=0.7)
    anchors = draw_anchors(rows, rows, anchoring, np.random.default_rng(0))
    assert {98, 99, 100} <= set(anchors.tolist())
    assert len(anchors) == 20


def test_fewer_candidates_than_anchors_are_all_taken():
    rows = np.array([3, 5, 8])
    assert draw_anchors(rows, rows, ANCHORING, np.random.default_rng(0)).tolist() == [3, 5, 8]


def test_a_stream_without_anything_to_learn_is_refused():
    with pytest.raises(DataError, match="holds a token to learn from"):
        Stream([Document.of(0, np.zeros(40, np.uint8), (2,))], PACKING, ANCHORING, 0)
