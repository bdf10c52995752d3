"""A drafting model's cache must never show: drafts equal those of a fresh start."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hyflash_bench.drafters import CellFacts, Draft, Features
from hyflash_bench.drafters.base import bytes_by_kind
from hyflash_bench.drafters.small_model import CACHE_BLOCK, SmallModel
from hyflash_bench.errors import DrafterError
from tests.drafters.fakes import (
    VOCAB_SIZE,
    FakeModel,
    WordList,
    load_context,
    sampler,
    serve_models,
    words,
)


def loaded(
    monkeypatch: pytest.MonkeyPatch,
    model: FakeModel | None = None,
    vocab_size: int = VOCAB_SIZE,
    **options: int,
) -> SmallModel:
    serve_models(monkeypatch, small=model or FakeModel())
    drafter = SmallModel(SmallModel.Options(model="small", **options))
    drafter.load(load_context(vocab_size))
    return drafter


def observe(drafter: SmallModel, tokens: list[int]) -> None:
    drafter.observe(torch.tensor(tokens), Features())


def draft(drafter: SmallModel, last: int, budget: int = 8, temperature: float = 0.0) -> Draft:
    return drafter.draft(last, budget, sampler(temperature=temperature))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    prompt=st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=5),
    accepted=st.lists(st.integers(0, 4), min_size=1, max_size=6),
    temperature=st.sampled_from([0.0, 1.0]),
)
def test_drafts_equal_a_fresh_start(
    monkeypatch: pytest.MonkeyPatch, prompt: list[int], accepted: list[int], temperature: float
) -> None:
    drafter = loaded(monkeypatch)
    observe(drafter, prompt)
    text, last = list(prompt), 9
    for count in accepted:
        proposal = draft(drafter, last, temperature=temperature)
        fresh = loaded(monkeypatch)
        observe(fresh, text)
        expected = draft(fresh, last, temperature=temperature)
        assert proposal.tokens.tolist() == expected.tokens.tolist()
        committed = [last, *proposal.tokens.tolist()[:count]]
        observe(drafter, committed)
        text, last = text + committed, (last + 11) % VOCAB_SIZE


def test_accepted_rows_are_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FakeModel()
    drafter = loaded(monkeypatch, model)
    observe(drafter, [1, 2, 3])
    proposal = draft(drafter, 4)
    assert model.rows_computed == 3 + 4  # the last token and three drafted ones
    observe(drafter, [4, *proposal.tokens.tolist()])
    assert model.rows_computed == 7
    draft(drafter, 5)
    assert model.rows_computed == 7 + 1 + 4  # the fourth drafted token had no row yet


def test_a_rejected_tail_leaves_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FakeModel()
    drafter = loaded(monkeypatch, model)
    observe(drafter, [1, 2, 3])
    proposal = draft(drafter, 4)
    observe(drafter, [4, int(proposal.tokens[0])])
    assert drafter._cache.length == 5
    assert model.rows_computed == 7


def test_scoring_along_a_text_equals_drawing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    drafter = loaded(monkeypatch)
    observe(drafter, [1, 2, 3])
    drawn = draft(drafter, 4, temperature=1.0)
    scored = drafter.draft(4, 8, sampler(seed=5, temperature=1.0), along=drawn.tokens)
    assert scored.tokens.tolist() == drawn.tokens.tolist()
    assert drawn.probabilities is not None
    assert scored.probabilities is not None
    assert torch.equal(scored.probabilities, drawn.probabilities)


def test_a_short_remaining_text_shortens_the_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    drafter = loaded(monkeypatch)
    observe(drafter, [1, 2, 3])
    for length in (0, 1, 2):
        along = torch.arange(length)
        assert len(drafter.draft(4, 8, sampler(temperature=1.0), along=along)) == length


@pytest.mark.parametrize("own_size", [VOCAB_SIZE - 4, VOCAB_SIZE, VOCAB_SIZE + 4])
def test_padded_heads_are_cut_or_filled(monkeypatch: pytest.MonkeyPatch, own_size: int) -> None:
    model = FakeModel(own_size)
    model.tokenizer = WordList(words(VOCAB_SIZE))
    drafter = loaded(monkeypatch, model)
    observe(drafter, [1, 2, 3])
    proposal = draft(drafter, 4, temperature=1.0)
    assert proposal.probabilities is not None
    assert proposal.probabilities.shape == (4, VOCAB_SIZE)
    assert torch.allclose(proposal.probabilities.sum(-1), torch.ones(4, dtype=torch.float64))
    assert float(proposal.probabilities[:, own_size:].sum()) == 0.0


def test_another_vocabulary_is_refused_at_its_first_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = FakeModel()
    other = words(VOCAB_SIZE)
    other[5], other[9] = other[9], other[5]
    model.tokenizer = WordList(other)
    with pytest.raises(DrafterError, match="token 5 is 'word5' for the target and 'word9'"):
        loaded(monkeypatch, model)


def test_a_missing_token_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FakeModel()
    model.tokenizer = WordList(words(VOCAB_SIZE - 1))
    with pytest.raises(DrafterError, match="token 63 is 'word63' for the target and nothing"):
        loaded(monkeypatch, model)


def test_tokens_of_the_model_alone_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FakeModel()
    model.tokenizer = WordList(words(VOCAB_SIZE + 3))
    loaded(monkeypatch, model)


def test_memory_equals_the_formula_across_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    drafter = loaded(monkeypatch)
    for length in (CACHE_BLOCK - 4, CACHE_BLOCK - 3):
        drafter.reset()
        observe(drafter, [1] * length)
        draft(drafter, 2)
        assert bytes_by_kind(drafter.memory()) == drafter.memory_formula(length)
    assert drafter._cache.capacity == 2 * CACHE_BLOCK


def test_growing_keeps_what_was_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    grown, fresh = loaded(monkeypatch), loaded(monkeypatch)
    text = [index % VOCAB_SIZE for index in range(CACHE_BLOCK + 10)]
    for start in range(0, len(text), 100):
        observe(grown, text[start : start + 100])
    observe(fresh, text)
    assert torch.equal(draft(grown, 3).tokens, draft(fresh, 3).tokens)


def test_the_draft_ends_at_the_last_position(monkeypatch: pytest.MonkeyPatch) -> None:
    drafter = loaded(monkeypatch, FakeModel(max_positions=10))
    observe(drafter, [1] * 8)
    assert len(draft(drafter, 2)) == 2
    observe(drafter, [2, 3])
    assert len(draft(drafter, 2)) == 0


def test_longer_contexts_are_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    drafter = loaded(monkeypatch, FakeModel(max_positions=10))
    facts = CellFacts(is_greedy=True, context_length=11, mode="live")
    assert drafter.skip(facts) == "small was made for 10 positions, not 11"
