"""Continuations as a tree: each finds its own tokens on its path, and none stands twice."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from hyflash_bench.integrations.branches import Branches

ROOT = 9


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=6))
def test_every_continuation_is_asked_along_its_own_path(continuations: list[list[int]]) -> None:
    """Random logits of each row: what is said of a token must come from what stands before it."""
    branches = Branches(ROOT)
    for continuation in continuations:
        expected = branches.num_rows + branches.num_new(continuation)
        branches.add(continuation)
        assert branches.num_rows == expected
    tokens = branches.tokens.tolist()
    parents = branches.parents
    parents = list(range(-1, len(tokens) - 1)) if parents is None else parents.tolist()

    paths: list[tuple[int, ...]] = []
    for token, parent in zip(tokens, parents, strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    assert len(set(paths)) == len(paths)
    beginnings = {
        (ROOT, *continuation[:at]) for continuation in continuations for at in range(len(continuation))
    }
    assert set(paths) == beginnings

    logits = torch.randn(len(paths), 10, generator=torch.Generator().manual_seed(len(paths)))
    said = branches.said_of(logits)
    for continuation, (logprobs, hits) in zip(continuations, said, strict=True):
        for at, token in enumerate(continuation):
            row = logits[paths.index((ROOT, *continuation[:at]))]
            assert torch.allclose(logprobs[at], row.log_softmax(-1)[token])
            assert bool(hits[at]) == (int(row.argmax()) == token)


def test_one_continuation_is_a_chain_and_single_tokens_need_the_root_only() -> None:
    one = Branches(ROOT)
    one.add([1, 2, 3])
    assert one.parents is None
    assert one.tokens.tolist() == [ROOT, 1, 2]
    letters = Branches(ROOT)
    for letter in range(4):
        letters.add([letter])
    assert letters.tokens.tolist() == [ROOT]
