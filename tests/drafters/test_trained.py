"""What all trained drafters share: a chain ends where the drafter doubts it; NaN is no choice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hyflash_bench.drafters.eagle import Eagle
from hyflash_bench.drafters.hyflash import HyFlash
from hyflash_bench.drafters.medusa import Medusa
from hyflash_bench.drafters.networks import native
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.errors import DrafterError
from hyflash_bench.spec.sampling import GREEDY, Sampling
from tests.drafters.networks.blocks import block
from tests.drafters.networks.small import eagle, features_of, medusa, saved
from tests.drafters.walks import opened
from tests.targets.families import random_tokens

TEXT = random_tokens(30, seed=5)
MAKERS: dict[str, tuple[type, Callable[[], Any]]] = {
    "block": (HyFlash, lambda: block("hyflash")),
    "block, markov": (HyFlash, lambda: block("hyflash, markov")),
    "eagle": (Eagle, eagle),
    "medusa": (Medusa, medusa),
}


def chain(kind: type, folder: Path, min_confidence: float, sampling: Sampling = GREEDY) -> list[int]:
    drafter = opened(kind, folder, min_confidence=min_confidence)
    drafter.observe(TEXT, features_of(TEXT, drafter.requires))
    tokens: list[int] = drafter.draft(7, 16, Sampler(sampling, 0)).tokens.tolist()
    return tokens


@pytest.mark.parametrize("name", MAKERS)
def test_a_chain_ends_before_the_token_that_makes_it_too_unlikely(name: str, tmp_path: Path) -> None:
    kind, network = MAKERS[name]
    folder = saved(network(), tmp_path)
    whole = chain(kind, folder, 0.0)
    drafter = opened(kind, folder)
    drafter.observe(TEXT, features_of(TEXT, drafter.requires))
    # At temperature 1 the drafter is asked for the probabilities of its own greedy tokens.
    plain = Sampler(Sampling(temperature=1.0), 0)
    rows = drafter.draft(7, 16, plain, torch.tensor(whole)).probabilities
    chances = rows[torch.arange(len(whole)), torch.tensor(whole)].cumprod(0).tolist()
    assert chances[0] > chances[-1]
    for length, chance in enumerate(chances):
        assert chain(kind, folder, chance * 1.001) == whole[:length]
        assert chain(kind, folder, chance * 0.999) == whole[: sum(c >= chance * 0.999 for c in chances)]


def test_drawn_chains_are_not_cut(tmp_path: Path) -> None:
    folder = saved(block("hyflash"), tmp_path)
    warm = Sampling(temperature=1.0)
    assert chain(HyFlash, folder, 0.99, warm) == chain(HyFlash, folder, 0.0, warm)


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("name", MAKERS)
def test_what_is_no_number_is_not_drafted_from(
    name: str, tree: bool, is_compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, network = MAKERS[name]
    if tree and kind is HyFlash:
        pytest.skip("a block is a chain")
    if not is_compiled:
        monkeypatch.setattr(native, "load_kernels", lambda: None)
    drafter = opened(kind, saved(network(), tmp_path), **({"tree": True} if tree else {}))
    drafter.observe(TEXT, features_of(TEXT, drafter.requires))
    drafter.network.head.norm.weight.fill_(torch.nan)
    with pytest.raises(DrafterError, match="what it computes is NaN"):
        drafter.draft(7, 16, Sampler(GREEDY, 0))
