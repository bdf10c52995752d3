"""A window on the text: what is searched is the last tokens, and what is held is four bytes for each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hyflash_bench.drafters import Drafter, Features
from hyflash_bench.drafters.base import bytes_by_kind
from hyflash_bench.drafters.contract import CHECKS, synthetic_ground
from hyflash_bench.drafters.prompt_lookup import PromptLookup
from hyflash_bench.drafters.suffix import Suffix
from tests.drafters.fakes import sampler

KINDS: list[tuple[type[Drafter], dict[str, Any]]] = [
    (PromptLookup, {}),
    (PromptLookup, {"match": "first", "max_ngram": 4, "num_draft_tokens": 3}),
    (Suffix, {}),
    (Suffix, {"max_depth": 3, "max_spec_factor": 3.0, "min_token_prob": 0.4}),
    (Suffix, {"tree": True, "min_token_prob": 0.05, "max_spec_offset": 4}),
]
texts = st.lists(st.integers(0, 3), min_size=1, max_size=60)


def made(kind: type[Drafter], **options: Any) -> Drafter:
    return kind(kind.Options(**options))


def drafted(drafter: Drafter, text: list[int], last: int, chunk: int = 7) -> tuple[list[int], Any]:
    drafter.reset()
    for part in torch.tensor(text, dtype=torch.int64).split(chunk):
        drafter.observe(part, Features())
    draft = drafter.draft(last, 12, sampler())
    return draft.tokens.tolist(), None if draft.parents is None else draft.parents.tolist()


@pytest.mark.parametrize(("kind", "options"), KINDS)
@settings(deadline=None, max_examples=60)
@given(text=texts, last=st.integers(0, 3), window=st.integers(1, 70), chunk=st.integers(1, 60))
def test_a_window_is_the_drafter_that_saw_the_last_tokens_only(
    kind: type[Drafter], options: dict[str, Any], text: list[int], last: int, window: int, chunk: int
) -> None:
    windowed, whole = made(kind, window=window, **options), made(kind, **options)
    assert drafted(windowed, text, last, chunk) == drafted(whole, text[-window:], last)


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_it_keeps_the_contract(kind: type[Drafter], options: dict[str, Any]) -> None:
    ground = synthetic_ground(lambda: made(kind, window=40, **options))
    assert {name: check(ground) for name, check in CHECKS.items()} == dict.fromkeys(CHECKS)


@pytest.mark.parametrize("kind", [PromptLookup, Suffix])
def test_bytes_are_four_for_each_token_up_to_the_window(kind: type[Drafter]) -> None:
    drafter = made(kind, window=700)
    for count in (1, 255, 1, 300, 2000, 3):
        drafter.observe(torch.randint(50, (count,)), Features())
        seen = getattr(drafter, "seen", 0) + count
        drafter.seen = seen  # type: ignore[attr-defined]
        assert bytes_by_kind(drafter.memory()) == drafter.memory_formula(seen)
        assert drafter.memory_formula(seen) == {"buffer": 4 * min(700, -(-seen // 256) * 256)}


@pytest.mark.parametrize("kind", [PromptLookup, Suffix])
def test_the_most_tokens_that_bytes_hold(kind: type[Drafter]) -> None:
    whole = made(kind)
    for num_bytes, window in ((0, 1), (3, 1), (4, 1), (4003, 1000)):
        shrunk = whole.within(num_bytes)
        assert shrunk is not None
        assert shrunk.options == kind.Options(window=window)  # type: ignore[call-arg]
        shrunk.observe(torch.randint(50, (5000,)), Features())
        assert sum(bytes_by_kind(shrunk.memory()).values()) <= max(num_bytes, 4)
    narrow = made(kind, window=9).within(10**6)
    assert narrow is not None
    assert narrow.options.window == 9, "a window that was asked for does not grow"  # type: ignore[attr-defined]
