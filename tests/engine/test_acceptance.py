from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hyflash_bench.drafters.base import Draft
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.engine.acceptance import (
    Cut,
    check_draft,
    cut,
    depths,
    rejected_tokens,
    replay_path,
    verify,
)
from hyflash_bench.errors import DrafterError
from hyflash_bench.spec.sampling import GREEDY, Sampling

EOS = 9
GREEDY_SAMPLER = Sampler(GREEDY, 0)


def one_hot(*tokens: int, vocab: int = 10) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(tokens), vocab).float()


# (drafted chain, what the target says after each row) -> committed tokens, accepted
CHAIN_TABLE = [
    ([], [4], (4,), 0),
    ([1, 2, 3], [1, 2, 3, 4], (1, 2, 3, 4), 3),
    ([1, 2, 3], [5, 2, 3, 4], (5,), 0),
    ([1, 2, 3], [1, 5, 3, 4], (1, 5), 1),
    ([1, 2, 3], [1, 2, 5, 4], (1, 2, 5), 2),
]


@pytest.mark.parametrize(("drafted", "said", "tokens", "accepted"), CHAIN_TABLE)
def test_greedy_chain_keeps_the_longest_prefix(drafted, said, tokens, accepted):
    verdict = verify(Draft.chain(drafted), one_hot(*said), GREEDY_SAMPLER)
    assert (verdict.tokens, len(verdict.path)) == (tokens, accepted)


TREE = Draft(torch.tensor([1, 2, 3, 4, 5]), torch.tensor([-1, -1, 0, 0, 2]))
# the tree: root - 1 (0) - 3 (2) - 5 (4)
#        |       ` 4 (3)
#        ` 2 (1)
TREE_TABLE = [
    # after:  root, 1, 2, 3, 4, 5
    ([1, 3, 0, 5, 0, 8], (1, 3, 5, 8), (0, 2, 4)),
    ([1, 4, 0, 5, 7, 8], (1, 4, 7), (0, 3)),
    ([2, 3, 6, 5, 7, 8], (2, 6), (1,)),
    ([1, 9, 6, 5, 7, 8], (1, 9), (0,)),
    ([7, 3, 6, 5, 7, 8], (7,), ()),
]


@pytest.mark.parametrize(("said", "tokens", "path"), TREE_TABLE)
def test_greedy_tree_follows_the_target(said, tokens, path):
    verdict = verify(TREE, one_hot(*said), GREEDY_SAMPLER)
    assert (verdict.tokens, verdict.path) == (tokens, path)


def test_ties_go_to_the_first_token_in_verification_as_in_decoding():
    tied = torch.tensor([[0.0, 5.0, 5.0, 0.0]] * 2)
    assert verify(Draft.chain([2]), tied, GREEDY_SAMPLER).tokens == (1,)
    assert verify(Draft.chain([1]), tied, GREEDY_SAMPLER).tokens == (1, 1)
    siblings = Draft(torch.tensor([2, 1]), torch.tensor([-1, -1]))
    verdict = verify(siblings, torch.tensor([[0.0, 5.0, 5.0, 0.0]] * 3), GREEDY_SAMPLER)
    assert verdict.path == (1,)


@pytest.mark.parametrize("slot", range(5))
def test_end_of_sequence_cuts_at_every_slot(slot):
    tokens = [1, 2, 3, 4, 5]
    tokens[slot] = EOS
    assert cut(tokens, {EOS}, room=10) == Cut(tuple(tokens[: slot + 1]), ended=True, limited=False)


@pytest.mark.parametrize("room", range(1, 7))
def test_the_limit_cuts_at_every_slot(room):
    tokens = [1, 2, 3, 4, 5]
    assert cut(tokens, {EOS}, room) == Cut(tuple(tokens[:room]), ended=False, limited=room < 5)


@pytest.mark.parametrize(("slot", "room"), [(s, r) for s in range(5) for r in range(1, 7)])
def test_end_of_sequence_and_limit_together(slot, room):
    tokens = [1, 2, 3, 4, 5]
    tokens[slot] = EOS
    result = cut(tokens, {EOS}, room)
    assert result.tokens == tuple(tokens[: min(slot + 1, room)])
    assert result.ended == (slot < room)
    assert result.limited == (slot + 1 > room)


@given(st.lists(st.integers(0, 3), max_size=6), st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_greedy_replay_equals_verification_of_a_target_that_says_the_trace(drafted, upcoming):
    said = [*upcoming, *[5] * (len(drafted) + 1)][: len(drafted) + 1]
    live = verify(Draft.chain(drafted), one_hot(*said), GREEDY_SAMPLER)
    replayed = replay_path(Draft.chain(drafted), torch.tensor(upcoming), None, GREEDY_SAMPLER)
    assert live.path[: len(upcoming)] == replayed


@given(st.lists(st.integers(0, 3), max_size=6), st.integers(0, 6))
def test_accepted_and_rejected_tokens_are_the_whole_of_a_chain(drafted, num_accepted):
    path = tuple(range(min(num_accepted, len(drafted))))
    assert [*drafted[: len(path)], *rejected_tokens(Draft.chain(drafted), path)] == drafted


@pytest.mark.parametrize(
    ("path", "rejected"), [((), [1, 3, 5]), ((0,), [3, 5]), ((0, 2), [5]), ((0, 2, 4), []), ((1,), [])]
)
def test_of_a_tree_the_path_that_is_tried_first_is_told(path, rejected):
    assert rejected_tokens(TREE, path) == rejected


def test_depths_of_chain_and_tree():
    assert depths(Draft.chain([1, 2, 3])) == [1, 2, 3]
    assert depths(TREE) == [1, 1, 2, 2, 3]


@pytest.mark.parametrize(
    ("draft", "words"),
    [
        (Draft.chain([1, 2, 3]), "budget is 2"),
        (Draft.chain([99]), "vocabulary has 10"),
        (Draft.chain([-1]), "vocabulary has 10"),
        (Draft(torch.tensor([1.0])), "int64"),
        (Draft(torch.tensor([1, 2]), torch.tensor([1, -1])), "parent must come before"),
        (Draft(torch.tensor([1, 2]), torch.tensor([-1])), "parent must come before"),
        (Draft(torch.tensor([1]), None, torch.ones(2, 10)), "shape"),
    ],
)
def test_a_draft_that_breaks_the_contract_is_refused_by_name(draft, words):
    with pytest.raises(DrafterError, match=words) as caught:
        check_draft(draft, 2, 10, "mine")
    assert "mine" in str(caught.value)


def test_sampled_trees_are_not_replayed():
    tree = Draft(torch.tensor([1, 2]), torch.tensor([-1, -1]), torch.full((2, 4), 0.25))
    sampler = Sampler(Sampling(temperature=1.0), 0)
    with pytest.raises(DrafterError, match="live only"):
        replay_path(tree, torch.tensor([1]), torch.tensor([0.5]), sampler)


def test_a_proposal_equal_to_the_target_is_always_accepted():
    probabilities = torch.tensor([[0.5, 0.25, 0.25]], dtype=torch.float64)
    logits = torch.cat([probabilities.log(), torch.zeros(1, 3)]).float()
    for seed in range(50):
        sampler = Sampler(Sampling(temperature=1.0), seed)
        draft = Draft.chain([seed % 3], sampler.probabilities(logits[:1]))
        assert len(verify(draft, logits, sampler).path) == 1


@pytest.mark.parametrize(
    "row",
    [
        [0.0] * 9 + [1e-30],  # so small that the rejection rule would keep every token
        [float("nan")] * 10,
        [2.0, -1.0] + [0.0] * 8,
    ],
)
def test_probabilities_that_are_no_distribution_are_refused(row):
    with pytest.raises(DrafterError, match="no distribution"):
        check_draft(Draft.chain([9], torch.tensor([row])), 4, 10, "x")


def test_a_token_that_its_own_row_excludes_is_refused():
    draft = Draft.chain([3], one_hot(7))
    with pytest.raises(DrafterError, match="probability 0"):
        verify(draft, torch.zeros(2, 10), Sampler(Sampling(temperature=1.0), 0))
