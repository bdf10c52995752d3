"""Drafting through the compiled kernels is drafting in torch: the same drafts, the same probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from hyflash_bench.drafters.eagle import Eagle
from hyflash_bench.drafters.full_context import FullContext
from hyflash_bench.drafters.hyflash import HyFlash
from hyflash_bench.drafters.medusa import Medusa
from hyflash_bench.drafters.memory_only import MemoryOnly
from hyflash_bench.drafters.networks import native
from hyflash_bench.drafters.networks.block_pass import BlockPass
from hyflash_bench.drafters.networks.copying import CopyHead, with_votes
from hyflash_bench.drafters.networks.products import normalised, product
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.drafters.window import Window
from hyflash_bench.spec.sampling import GREEDY, Sampling
from tests.drafters.networks.blocks import block
from tests.drafters.networks.small import eagle, features_of, medusa, saved
from tests.drafters.walks import anchors_along, opened
from tests.targets.families import random_tokens


def wide(kind: str, **options: Any) -> Any:
    """Values of memories that the vectors of the kernels fit."""
    return block(kind, memory_value_dim=16, **options)


COPYING: dict[str, Any] = {"copy_window": 60, "copy_size": 8, "recall_rows": 16}
FULL: dict[str, Any] = {"markov_rank": 8, "follow_heads": 1, **COPYING}
CASES: dict[str, tuple[type, Callable[[], Any], dict[str, Any]]] = {
    "hyflash": (HyFlash, lambda: wide("hyflash", memory_shifts=(0, 2), num_layers=2, **FULL), {}),
    "hyflash, plain": (HyFlash, lambda: wide("hyflash", slot_rank=0), {}),
    "hyflash, shared": (HyFlash, lambda: wide("hyflash, 2 layers, one state"), {}),
    "full-context": (FullContext, lambda: wide("full-context", num_layers=2, **FULL), {}),
    "full-context, limited": (FullContext, lambda: wide("full-context", **FULL), {"window": 12}),
    "window": (Window, lambda: wide("window", markov_rank=8), {}),
    "memory-only": (MemoryOnly, lambda: wide("memory-only"), {}),
    "confident": (HyFlash, lambda: wide("hyflash", **FULL), {"min_confidence": 0.05}),
    "without copying": (HyFlash, lambda: wide("hyflash", **FULL), {"copying": False}),
    "eagle": (Eagle, lambda: eagle(**COPYING), {}),
    "eagle, tree": (Eagle, lambda: eagle(**COPYING), {"tree": True, "top_k": 3, "depth": 3}),
    "medusa": (Medusa, lambda: medusa(**COPYING), {}),
    "medusa, tree": (Medusa, lambda: medusa(**COPYING), {"tree": True}),
}
TEXT = torch.cat([random_tokens(20, seed=1), *[random_tokens(9, seed=2)] * 10])
PATTERN = [0, 2, 1, 0, 3, 0, 0, 1]


@pytest.fixture(autouse=True)
def _needs_a_compiler() -> None:
    if native.load_kernels() is None:
        pytest.skip("no compiler here")


@pytest.fixture
def in_torch(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Any]:
    """Do something without the kernels."""

    def done(work: Callable[[], Any]) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(native, "load_kernels", lambda: None)
            return work()

    return done


def anchors(drafter: Any, *, prompt: int = 70) -> Iterator[int]:
    """Contexts of more than one tile of keys."""
    for anchor in anchors_along(drafter, TEXT, features_of(TEXT, drafter.requires), prompt, PATTERN):
        if anchor + 5 < len(TEXT):
            yield anchor


@pytest.mark.parametrize("name", CASES)
def test_drafts_are_those_of_torch(name: str, tmp_path: Path, in_torch: Any) -> None:
    kind, make, options = CASES[name]
    drafter = opened(kind, saved(make(), tmp_path), **options)
    drawn, lengths = Sampling(temperature=0.8), set()
    for anchor in anchors(drafter):
        last, along = int(TEXT[anchor]), TEXT[anchor + 1 : anchor + 5]
        asked = [(GREEDY, None), (GREEDY, along)]
        asked += [] if options.get("tree") else [(drawn, None), (drawn, along)]
        for sampling, given in asked:
            for budget in (8, 2):

                def draft(
                    sampling: Sampling = sampling, given: Tensor | None = given, budget: int = budget
                ) -> Any:
                    return drafter.draft(last, budget, Sampler(sampling, 3), given)  # noqa: B023

                ours, torchs = draft(), in_torch(draft)
                assert torch.equal(ours.tokens, torchs.tokens)
                if ours.probabilities is not None:
                    assert torch.allclose(ours.probabilities, torchs.probabilities, atol=1e-5)
                lengths.add(len(ours))
    assert max(lengths) > 1
    assert name != "confident" or len(lengths) > 2


@pytest.mark.parametrize(
    ("options", "has_pass"),
    [({}, True), ({"kv_dtype": "int8"}, False), ({"kv_dtype": "bfloat16"}, False)],
)
def test_other_precisions_of_the_cache_stay_with_torch(
    options: dict[str, Any], has_pass: bool, tmp_path: Path
) -> None:
    drafter = opened(HyFlash, saved(wide("hyflash", **FULL), tmp_path), **options)
    assert (BlockPass.of(drafter.network, drafter._state) is not None) == has_pass


@pytest.mark.parametrize("size", [8, 77])
@torch.inference_mode()
def test_mixtures_are_those_of_torch(size: int, in_torch: Any) -> None:
    random = torch.Generator().manual_seed(size)
    logits = 30 * torch.randn(3, size, generator=random)
    for share in (0.0, 0.5, 0.999, 1.0):
        votes = (torch.rand(3, size, generator=random) < 0.1).float()
        votes *= share / votes.sum(-1, keepdim=True).clamp(min=1)
        for given in (votes, votes[0]):
            ours, torchs = with_votes(logits, given), in_torch(lambda given=given: with_votes(logits, given))
            assert torch.allclose(ours, torchs, atol=1e-4)
            assert torch.allclose(ours.exp(), torchs.exp(), atol=1e-6)


@pytest.mark.parametrize("num_rows", [1, 3, 70])
@pytest.mark.parametrize(("num_recalled", "filled"), [(0, 0.0), (90, 0.0), (90, 0.4), (90, 1.0)])
@torch.inference_mode()
def test_votes_are_those_of_torch(num_rows: int, num_recalled: int, filled: float) -> None:
    size, num_slots, random = 11, 4, torch.Generator().manual_seed(num_rows)
    head = CopyHead(3, 16, num_slots, window=70, num_recalled=num_recalled)
    head.trust.copy_(torch.arange(num_slots) - 1.0)
    query = torch.randn(16, generator=random)
    keys = functional.normalize(torch.randn(num_rows + num_recalled, 16, generator=random), dim=-1)
    places = torch.randint(size + 1, (num_rows,), generator=random, dtype=torch.int32)
    named = torch.randint(size + 1, (num_recalled, num_slots), generator=random, dtype=torch.int32)
    is_filled = torch.rand(num_recalled, generator=random) < filled
    named[~is_filled] = -1

    parameters = (head.trust, head.log_sharpness, head.threshold)
    recalled = (keys[num_rows:], named) if num_recalled else None
    kernels = native.load_kernels()
    assert kernels is not None
    ours = kernels.vote(query, keys[:num_rows], places, 5, recalled, parameters, size)

    follow = torch.cat([places, torch.tensor([5] + num_slots * [size])]).unfold(0, num_slots, 1)
    tokens = torch.cat([follow[1 : num_rows + 1], named.clamp(min=0)]).long()
    visible = torch.cat([torch.ones(num_rows, dtype=torch.bool), is_filled])
    alike = functional.normalize(query, dim=0) @ keys.T
    assert torch.allclose(ours, head(alike[None], visible[None], tokens.T[None], size)[0], atol=1e-6)
    assert ours.sum() > 0


@torch.inference_mode()
def test_norms_are_those_of_torch(in_torch: Any) -> None:
    x, weight = torch.randn(2, 3, 16), torch.rand(16)
    for gain in (weight, None):
        for rows in (x, x[:, 1], x.transpose(0, 1)):
            torchs = in_torch(lambda rows=rows, gain=gain: normalised(rows, gain, 1e-5))
            assert torch.allclose(normalised(rows, gain, 1e-5), torchs, atol=1e-6)


def test_gradients_stay_with_torch() -> None:
    x = torch.randn(2, 16, requires_grad=True)
    normalised(x, None, 1e-5).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("bad", [torch.nan, torch.inf], ids=str)
@torch.inference_mode()
def test_what_is_no_number_stays_none(bad: float) -> None:
    logits, votes = torch.randn(2, 13), torch.zeros(2, 13)
    logits[1, 4] = bad
    mixed = with_votes(logits, votes)
    assert mixed[0].isfinite().all()
    assert mixed[1].isnan().all()


@torch.inference_mode()
def test_sizes_that_do_not_fit_are_told() -> None:
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        product(torch.randn(2, 8), torch.randn(8, 16))
    with pytest.raises(RuntimeError, match="shape"):
        normalised(torch.randn(2, 16), torch.rand(8), 1e-5)


@torch.inference_mode()
def test_no_more_slots_than_there_are(tmp_path: Path) -> None:
    drafter = opened(HyFlash, saved(wide("hyflash", **FULL), tmp_path))
    drafter.observe(TEXT[:70], features_of(TEXT, drafter.requires).rows(slice(0, 70)))
    assert len(drafter.logits(int(TEXT[70]), random_tokens(3000))) == drafter.network.config.num_slots


@torch.inference_mode()
def test_weights_may_move_while_a_text_goes_on(tmp_path: Path) -> None:
    drafter = opened(HyFlash, saved(wide("hyflash", **FULL), tmp_path))
    drafter.observe(TEXT[:70], features_of(TEXT, drafter.requires).rows(slice(0, 70)))
    before = drafter.draft(int(TEXT[70]), 8, Sampler(GREEDY, 0)).tokens
    drafter.network.double().float()
    assert torch.equal(drafter.draft(int(TEXT[70]), 8, Sampler(GREEDY, 0)).tokens, before)
