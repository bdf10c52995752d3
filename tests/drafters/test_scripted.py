"""The scripted drafter gives tests exact control over what is accepted."""

from __future__ import annotations

import pytest
import torch

from hyflash_bench.drafters import CellFacts, Draft, Features
from hyflash_bench.drafters.scripted import Scripted
from hyflash_bench.errors import DrafterError, SpecError
from hyflash_bench.spec.drafter import DrafterSpec
from tests.drafters.fakes import VOCAB_SIZE, load_context, sampler

TEXT = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]


def following(text: list[int] = TEXT, **options: object) -> Scripted:
    drafter = Scripted(Scripted.Options.parse(options, where="drafter 'scripted'"))
    drafter.follow(text)
    return drafter


def observe(drafter: Scripted, tokens: list[int]) -> None:
    drafter.observe(torch.tensor(tokens), Features())


def test_the_pattern_says_how_many_tokens_are_right() -> None:
    drafter = following(pattern="3 0 1")
    observe(drafter, [1, 2])
    assert drafter.draft(3, 9, sampler()).tokens.tolist() == [4, 5, 6, 0]
    observe(drafter, [3, 4, 5, 6])
    assert drafter.draft(7, 9, sampler()).tokens.tolist() == [0]
    observe(drafter, [7])
    assert drafter.draft(8, 9, sampler()).tokens.tolist() == [9, 0]
    observe(drafter, [8, 9])
    assert drafter.draft(10, 9, sampler()).tokens.tolist() == [11, 12, 0]


def test_nothing_wrong_can_be_asked_for() -> None:
    drafter = following(pattern=2, num_wrong_tokens=0)
    observe(drafter, [1])
    assert drafter.draft(2, 9, sampler()).tokens.tolist() == [3, 4]


def test_a_wrong_token_is_never_right_by_chance() -> None:
    drafter = following([1, 2, 0, 0], pattern=0, num_wrong_tokens=2)
    observe(drafter, [1])
    assert drafter.draft(2, 9, sampler()).tokens.tolist() == [1, 1]


def test_in_a_tree_the_right_token_is_the_last_sibling() -> None:
    drafter = following(pattern=2, num_wrong_siblings=1)
    observe(drafter, [1, 2])
    draft = drafter.draft(3, 9, sampler())
    assert draft.tokens.tolist() == [0, 4, 0, 5, 0]
    assert draft.parents is not None
    assert draft.parents.tolist() == [-1, -1, 1, 1, 3]


def test_each_conversation_follows_the_text_it_begins() -> None:
    drafter = Scripted(Scripted.Options(pattern="2", num_wrong_tokens=0))
    drafter.follow([1, 2, 3, 4], [1, 7, 8, 9])
    observe(drafter, [1])
    assert drafter.draft(7, 9, sampler()).tokens.tolist() == [8, 9]
    drafter.reset()
    observe(drafter, [1])
    assert drafter.draft(2, 9, sampler()).tokens.tolist() == [3, 4]


def test_the_text_can_be_given_as_an_option() -> None:
    options = DrafterSpec.from_text("scripted:text=5 6 7,pattern=1,num_wrong_tokens=0").options
    drafter = Scripted(Scripted.Options.parse(options, where="drafter 'scripted'"))
    observe(drafter, [5])
    assert drafter.draft(6, 9, sampler()).tokens.tolist() == [7]


def test_ready_made_drafts_are_played_in_every_conversation() -> None:
    tree = Draft(torch.tensor([4, 5, 6]), torch.tensor([-1, -1, 0]))
    drafter = following()
    drafter.play([Draft.empty(), tree])
    for _ in range(2):
        drafter.reset()
        observe(drafter, [1])
        assert len(drafter.draft(2, 9, sampler())) == 0
        observe(drafter, [2])
        played = drafter.draft(3, 2, sampler())
        assert played.tokens.tolist() == [4, 5]
        assert played.parents is not None
        assert played.parents.tolist() == [-1, -1]
        observe(drafter, [3])
        assert len(drafter.draft(4, 9, sampler())) == 0


def test_doubt_makes_tokens_samples_of_their_rows() -> None:
    drafter = following(pattern=1, num_wrong_tokens=0, confidence=0.5)
    drafter.load(load_context())
    observe(drafter, [1])
    drafts = [drafter.draft(2, 9, sampler(seed, temperature=1.0)) for seed in range(200)]
    rows = drafts[0].probabilities
    assert rows is not None
    assert rows.sum().item() == pytest.approx(1.0)
    assert rows[0, 3].item() == 0.5
    right = sum(int(draft.tokens[0]) == 3 for draft in drafts)
    assert 70 <= right <= 130


def test_doubt_scores_the_text_it_is_asked_along() -> None:
    drafter = following(pattern=2, num_wrong_tokens=0, confidence=0.5)
    drafter.load(load_context())
    observe(drafter, [1])
    draft = drafter.draft(2, 9, sampler(temperature=1.0), along=torch.tensor([40, 41, 42]))
    assert draft.tokens.tolist() == [40, 41]
    assert draft.probabilities is not None
    assert draft.probabilities[1, 41].item() == pytest.approx(0.5 / (VOCAB_SIZE - 1))


def test_doubt_needs_the_size_of_the_vocabulary() -> None:
    drafter = following(confidence=0.5)
    observe(drafter, [1])
    with pytest.raises(DrafterError, match="needs load"):
        drafter.draft(2, 9, sampler(temperature=1.0))


def test_a_pattern_of_words_is_refused() -> None:
    with pytest.raises(SpecError, match="whole numbers separated by spaces"):
        following(pattern="three")


@pytest.mark.parametrize(
    ("mode", "is_greedy", "skips"), [("replay", False, True), ("live", False, False), ("replay", True, False)]
)
def test_a_tree_of_samples_is_scored_live_only(mode, is_greedy, skips) -> None:
    drafter = following(confidence=0.5, num_wrong_siblings=1)
    assert (drafter.skip(CellFacts(is_greedy, None, mode)) is not None) == skips
