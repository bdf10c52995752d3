"""Copying from the last tokens: the same in training and drafting, and of use before any training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from hyflash_bench.drafters.base import bytes_by_kind
from hyflash_bench.drafters.eagle import Eagle
from hyflash_bench.drafters.full_context import FullContext
from hyflash_bench.drafters.hyflash import FOREIGN_FILE, HyFlash
from hyflash_bench.drafters.medusa import Medusa
from hyflash_bench.drafters.networks.batch import Batch
from hyflash_bench.drafters.networks.context_state import document_state
from hyflash_bench.drafters.networks.copy_state import CopyState
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.errors import DrafterError
from hyflash_bench.spec.sampling import Sampling
from tests.drafters.networks.blocks import block
from tests.drafters.networks.small import DRAFT_IDS, NUM_SLOTS, eagle, features_of, medusa, saved
from tests.drafters.walks import anchors_along, opened
from tests.targets.families import random_tokens

WINDOW = 9
COPYING: dict[str, Any] = {"copy_window": WINDOW, "copy_size": 8}
MAKERS: dict[str, tuple[type, Callable[[], Any]]] = {
    "hyflash": (HyFlash, lambda: block("hyflash", **COPYING)),
    "full-context": (FullContext, lambda: block("full-context", **COPYING)),
    "eagle": (Eagle, lambda: eagle(**COPYING)),
    "medusa": (Medusa, lambda: medusa(**COPYING)),
    "hyflash, recall": (HyFlash, lambda: block("hyflash", **COPYING, recall_rows=13)),
    "medusa, recall": (Medusa, lambda: medusa(**COPYING, recall_rows=3)),
}
REPEATING = torch.cat([random_tokens(5, seed=1), *[random_tokens(7, seed=2)] * 5])
PLAIN = Sampler(Sampling(temperature=1.0), 0)


def drafted(drafter: Any, anchor: int) -> Tensor:
    along = REPEATING[anchor + 1 : anchor + 1 + NUM_SLOTS]
    rows: Tensor = drafter.draft(int(REPEATING[anchor]), NUM_SLOTS, PLAIN, along).probabilities
    return rows


@pytest.mark.parametrize("name", MAKERS)
@torch.no_grad()
def test_drafting_is_training_at_every_anchor(name: str, tmp_path: Path) -> None:
    kind, make = MAKERS[name]
    network = make()
    drafter = opened(kind, saved(network, tmp_path))
    features = features_of(REPEATING, network.requires)
    for prompt, pattern in ((1, [0, 2, 1, 0, 3]), (2, [1] * 12), (20, [0] * 9)):
        for anchor in anchors_along(drafter, REPEATING, features, prompt, pattern):
            if anchor + 1 >= len(REPEATING):
                continue
            rows = drafted(drafter, anchor)
            batch = Batch(REPEATING, features, (0,), torch.tensor([anchor]))
            expected = network.head.spread(network(batch)[0, : len(rows)].softmax(-1))
            assert torch.allclose(rows.float(), expected, atol=1e-5), (anchor, prompt)


@pytest.mark.parametrize("name", MAKERS)
@torch.no_grad()
def test_no_document_is_copied_from_another(name: str) -> None:
    network = MAKERS[name][1]()
    features = features_of(REPEATING, network.requires)
    alone = network(Batch(REPEATING, features, (0,), torch.tensor([12, 20])))
    twice = Batch(
        torch.cat([REPEATING, REPEATING]),
        type(features).concatenate([features, features]),
        (0, len(REPEATING)),
        torch.tensor([12, 20]) + len(REPEATING),
    )
    assert torch.allclose(network(twice), alone, atol=1e-5)


@pytest.mark.parametrize("name", MAKERS)
def test_switched_off_it_adds_nothing_and_keeps_its_bytes(name: str, tmp_path: Path) -> None:
    kind, make = MAKERS[name]
    network = make()
    folder = saved(network, tmp_path / "copying")
    on, off = opened(kind, folder), opened(kind, folder, copying=False)
    with torch.no_grad():
        network.copying.trust.fill_(-100.0)
    muted = opened(kind, saved(network, tmp_path / "muted"))
    features = features_of(REPEATING, network.requires)
    for drafter in (on, off, muted):
        drafter.observe(REPEATING[:20], features.rows(slice(0, 20)))
    assert torch.allclose(drafted(off, 20), drafted(muted, 20), atol=1e-6)
    assert not torch.allclose(drafted(on, 20), drafted(muted, 20), atol=1e-3)
    assert bytes_by_kind(on.memory()) == bytes_by_kind(off.memory()) == on.memory_formula(20)


@torch.no_grad()
def test_a_repeated_passage_is_found_before_any_training() -> None:
    network = medusa(copy_window=40, copy_size=32)
    text = torch.cat([random_tokens(60, seed=3), REPEATING])
    features = features_of(text, network.requires)
    rows = network.context_rows(features)
    network.copying.fit(network.known_of(text[1:], rows[:-1]))
    state = CopyState(network)
    anchor = len(text) - 1 - 7
    state.extend(text[:anchor], rows[:anchor])
    votes = state.votes(state.anchor(int(text[anchor])))
    upcoming = text[anchor + 1 : anchor + 1 + NUM_SLOTS].tolist()
    known = [slot for slot, token in enumerate(upcoming) if token in DRAFT_IDS]
    assert known
    for slot in known:
        assert DRAFT_IDS[int(votes[slot].argmax())] == upcoming[slot]


def test_what_is_recalled_is_an_option_of_any_network_that_copies(tmp_path: Path) -> None:
    plain, recalling = block("full-context", **COPYING), block("full-context", **COPYING, recall_rows=16)
    recalling.load_state_dict(plain.state_dict())
    folders = saved(plain, tmp_path / "plain"), saved(recalling, tmp_path / "recalling")
    asked, stored = opened(FullContext, folders[0], recall_rows=16), opened(FullContext, folders[1])
    without = opened(FullContext, folders[1], recall_rows=0)
    features = features_of(REPEATING, plain.requires)
    for drafter in (asked, stored, without):
        drafter.observe(REPEATING[:30], features.rows(slice(0, 30)))
    assert torch.equal(drafted(asked, 30), drafted(stored, 30))
    assert not torch.allclose(drafted(without, 30), drafted(stored, 30), atol=1e-4)
    assert "state" not in bytes_by_kind(without.memory())
    assert bytes_by_kind(asked.memory()) == bytes_by_kind(stored.memory()) == asked.memory_formula(30)
    with pytest.raises(DrafterError, match=r"recall_rows=4 asks .* does not copy"):
        opened(FullContext, saved(block("full-context"), tmp_path / "mute"), recall_rows=4)
    narrow = saved(block("full-context", **COPYING | {"copy_window": 2}), tmp_path / "narrow")
    with pytest.raises(DrafterError, match=r"as many last rows as it has slots, 4; this one copies from 2"):
        opened(FullContext, narrow, recall_rows=4)


@pytest.mark.parametrize("memory", ["zero", "foreign"])
@torch.no_grad()
def test_a_fixed_memory_recalls_nothing_of_the_text(memory: str, tmp_path: Path) -> None:
    network = block("hyflash", **COPYING, recall_rows=13)
    folder = saved(network, tmp_path)
    of_others = CopyState(network)
    other = random_tokens(40, seed=9)
    features = features_of(other, network.requires)
    rows = network.context_rows(features)
    of_others.extend(other, rows)
    assert of_others.recall is not None
    assert of_others.recall.is_filled.any()
    tensors = {
        "state": document_state(network, features),
        "recall.keys": of_others.recall.keys,
        "recall.named": of_others.recall.named,
    }
    save_file(tensors, folder / FOREIGN_FILE)
    drafter = opened(HyFlash, folder, memory=memory)
    features = features_of(REPEATING, network.requires)
    drafter.observe(REPEATING[:20], features.rows(slice(0, 20)))
    drafter.observe(REPEATING[20:30], features.rows(slice(20, 30)))
    recall = drafter._copies.recall
    expected = of_others.recall.named if memory == "foreign" else torch.full_like(recall.named, -1)
    assert torch.equal(recall.named, expected)
    assert bytes_by_kind(drafter.memory()) == drafter.memory_formula(30)
    far = tensors["recall.named"].clone()
    far[0, 1] = -2000
    save_file(tensors | {"recall.named": far}, folder / FOREIGN_FILE)
    if memory == "foreign":
        with pytest.raises(DrafterError, match=r"leads out of the draft vocabulary"):
            opened(HyFlash, folder, memory=memory)
    del tensors["recall.named"]
    save_file(tensors, folder / FOREIGN_FILE)
    if memory == "foreign":
        with pytest.raises(DrafterError, match=r"recall\.named"):
            opened(HyFlash, folder, memory=memory)
