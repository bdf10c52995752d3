"""The drafting form is the training form, at every anchor, however the text arrived."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from hyflash_bench.drafters import Drafter, Features
from hyflash_bench.drafters.base import bytes_by_kind
from hyflash_bench.drafters.contract import CHECKS
from hyflash_bench.drafters.full_context import FullContext
from hyflash_bench.drafters.hyflash import FOREIGN_FILE, HyFlash
from hyflash_bench.drafters.memory_only import MemoryOnly
from hyflash_bench.drafters.networks.batch import Batch
from hyflash_bench.drafters.networks.context_state import document_state
from hyflash_bench.drafters.window import Window
from hyflash_bench.errors import DrafterError
from tests.drafters.fakes import sampler
from tests.drafters.networks.blocks import KINDS, VARIANTS, block
from tests.drafters.networks.small import DRAFT_IDS, NUM_SLOTS, saved, taught
from tests.drafters.walks import anchors_along, check_lossless, ground_of, loaded, own_answers
from tests.targets.families import VOCAB, random_tokens

CLASSES: dict[str, type[Drafter]] = {
    "hyflash": HyFlash,
    "full-context": FullContext,
    "window": Window,
    "memory-only": MemoryOnly,
}
LENGTH = 60


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make(kind: str, folder: Path, **options: Any) -> Any:
    return loaded(CLASSES[kind.partition(",")[0]], block(kind), folder, **options)


def text_of(drafter: Any, length: int = LENGTH, seed: int = 3) -> Batch:
    """A random text with random features: no target is asked, and none limits its length."""
    size = drafter.network.config.target.hidden_size
    random = torch.Generator().manual_seed(seed)
    taps = {layer: torch.randn(length, size, generator=random) for layer in drafter.requires.taps}
    features = Features(taps=taps, last_hidden=torch.randn(length, size, generator=random))
    return Batch(random_tokens(length, seed=seed), features, (0,), torch.empty(0, dtype=torch.int64))


def drafting_logits(drafter: Any, tokens: Tensor, anchor: int) -> Tensor:
    """Logits of the slots that lie in the text."""
    found: Tensor = drafter.logits(int(tokens[anchor]), tokens[anchor + 1 : anchor + 1 + NUM_SLOTS])
    return found


def random_pattern(seed: int) -> list[int]:
    random = torch.Generator().manual_seed(seed)
    return torch.randint(NUM_SLOTS + 1, (LENGTH,), generator=random).tolist()


@pytest.mark.parametrize("kind", VARIANTS)
@torch.inference_mode()
def test_drafting_is_training_at_every_anchor(kind: str, tmp_path: Path) -> None:
    drafter = make(kind, tmp_path)
    batch = text_of(drafter)
    for seed, prompt in enumerate((1, 5, 29)):
        anchors = anchors_along(drafter, batch.tokens, batch.features, prompt, random_pattern(seed))
        for anchor in anchors:
            at_anchor = Batch(batch.tokens, batch.features, (0,), torch.tensor([anchor]))
            found = drafting_logits(drafter, batch.tokens, anchor)
            expected = drafter.network(at_anchor)[0, : len(found)]
            scale = max(1.0, float(expected.abs().max())) if len(found) else 1.0
            assert torch.allclose(found, expected, rtol=0.0, atol=1e-5 * scale), (anchor, seed)


def observe_in(drafter: Any, batch: Batch, sizes: list[int]) -> None:
    drafter.reset()
    start = 0
    for size in sizes:
        rows = slice(start, start + size)
        drafter.observe(batch.tokens[rows], batch.features.rows(rows))
        start += size


@pytest.mark.parametrize("kind", VARIANTS)
@torch.inference_mode()
def test_the_order_of_folding_does_not_matter(kind: str, tmp_path: Path) -> None:
    drafter = make(kind, tmp_path)
    batch = text_of(drafter)
    last = int(batch.tokens[-1])
    along = torch.tensor([4, 5, 6, 7])
    found = []
    for sizes in ([59], [1] * 59, [9, 4, 23, 1, 1, 12, 9], [30, 0, 29]):
        observe_in(drafter, batch, sizes)
        found.append((drafter.logits(last, along), drafter.memory()))
    for logits, held in found[1:]:
        assert torch.allclose(logits, found[0][0], atol=1e-5)
        states, expected = (
            [item.tensor for item in side if item.kind == "state"] for side in (held, found[0][1])
        )
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(states, expected, strict=True))


@torch.inference_mode()
def test_where_a_window_stands_in_the_text_does_not_matter(tmp_path: Path) -> None:
    drafter = make("window, 2 layers", tmp_path)
    batch = text_of(drafter, 200)
    config = drafter.network.config
    along = torch.tensor([4, 5, 6, 7])
    observe_in(drafter, batch, [*[7] * 28, 3])
    far = drafter.logits(9, along)
    num_attended = config.window + (199 - config.window) % config.chunk
    near = Batch(
        batch.tokens[-num_attended - 1 :], batch.features.rows(slice(199 - num_attended, None)), (0,), along
    )
    observe_in(drafter, near, [num_attended])
    assert torch.allclose(drafter.logits(9, along), far, atol=1e-5)


@torch.inference_mode()
def test_full_context_can_be_cut_to_its_last_rows(tmp_path: Path) -> None:
    cut, full = make("full-context", tmp_path, window=7), make("full-context", tmp_path)
    batch = text_of(cut, 500)
    along = torch.tensor([4, 5, 6, 7])
    for sizes in ([3], [3, 4, 1], [*[3] * 100], [300, 1, 2, 1, 190]):
        observe_in(cut, batch, sizes)
        end = sum(sizes)
        rows = slice(max(0, end - 7), end)
        observe_in(
            full, Batch(batch.tokens[rows], batch.features.rows(rows), (0,), along), [rows.stop - rows.start]
        )
        assert torch.allclose(cut.logits(9, along), full.logits(9, along), atol=1e-5)
        assert cut.memory_formula(end) == bytes_by_kind(cut.memory())
        assert cut.memory_formula(end) == cut.memory_formula(7_680)


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_a_new_conversation_starts_from_nothing(kind: str, tmp_path: Path) -> None:
    drafter, fresh = make(kind, tmp_path), make(kind, tmp_path)
    batch = text_of(drafter)
    observe_in(drafter, text_of(drafter, 50, seed=8), [50])
    observe_in(drafter, batch, [20])
    observe_in(fresh, batch, [20])
    assert torch.equal(drafter.logits(9, batch.tokens[:4]), fresh.logits(9, batch.tokens[:4]))


# Bytes


@pytest.mark.parametrize("kind", VARIANTS)
def test_bytes_are_what_the_formula_says(kind: str, tmp_path: Path) -> None:
    drafter = make(kind, tmp_path)
    batch = text_of(drafter)
    for length in (0, 1, 11, 59, 300, 517):
        observe_in(drafter, batch, [])
        for start in range(0, length, LENGTH):
            rows = slice(0, min(LENGTH, length - start))
            drafter.observe(batch.tokens[rows], batch.features.rows(rows))
        assert drafter.memory_formula(length) == bytes_by_kind(drafter.memory())
        drafter.draft(3, 8, sampler())
        assert drafter.memory_formula(length) == bytes_by_kind(drafter.memory())


@pytest.mark.parametrize("kind", KINDS)
def test_only_full_context_grows(kind: str, tmp_path: Path) -> None:
    drafter = make(kind, tmp_path)
    assert (drafter.memory_formula(1_024) == drafter.memory_formula(7_680)) == (kind != "full-context")


def test_hyflash_holds_what_its_parts_add_up_to(tmp_path: Path) -> None:
    config = block().config
    rows = config.window + config.chunk - 1
    per_row = 2 * config.target.num_kv_heads * config.target.head_dim * 4
    formula = make("hyflash", tmp_path).memory_formula(10_000)
    assert formula["kv"] == (rows + NUM_SLOTS) * per_row
    assert formula["state"] == 2 * 8 * 6 * 4
    assert formula["buffer"] == (rows + 1) * config.target.hidden_size * 4


# Drafts


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("kind", [*KINDS, "hyflash, markov"])
def test_the_contract_is_kept(kind: str, name: str, tmp_path: Path) -> None:
    assert CHECKS[name](ground_of(lambda: make(kind, tmp_path))) is None


@pytest.mark.parametrize(
    ("kind", "temperature"),
    [*((kind, 0.0) for kind in KINDS), ("hyflash, markov", 0.0), ("hyflash", 0.8), ("hyflash, markov", 0.8)],
)
def test_live_is_lossless_and_replay_counts_the_same(kind: str, temperature: float, tmp_path: Path) -> None:
    network = block(kind)
    network = taught(network, own_answers(network.requires))
    drafter = loaded(CLASSES[kind.partition(",")[0]], network, tmp_path)
    check_lossless(drafter, temperature)


@pytest.mark.parametrize("kind", ["hyflash", "hyflash, markov"])
@torch.inference_mode()
def test_greedy_takes_the_likeliest_and_sampling_stays_in_the_vocabulary(kind: str, tmp_path: Path) -> None:
    drafter = make(kind, tmp_path)
    batch = text_of(drafter)
    observe_in(drafter, batch, [30])
    greedy = drafter.draft(9, 8, sampler()).tokens
    assert torch.equal(drafter.network.head.draft_ids[drafter.logits(9, greedy).argmax(-1)], greedy)
    sampled = drafter.draft(9, 3, sampler(temperature=0.7))
    assert sampled.probabilities is not None
    assert sampled.probabilities.shape == (3, VOCAB)
    expected = (drafter.logits(9, sampled.tokens).double() / 0.7).softmax(-1)
    assert torch.allclose(sampled.probabilities[:, DRAFT_IDS], expected, atol=1e-6)
    assert set(sampled.tokens.tolist()) <= set(DRAFT_IDS)


def test_fewer_tokens_can_be_asked_for(tmp_path: Path) -> None:
    drafter = make("hyflash", tmp_path, num_draft_tokens=2)
    whole = make("hyflash", tmp_path)
    batch = text_of(drafter)
    for each in (drafter, whole):
        observe_in(each, batch, [30])
    assert torch.equal(drafter.draft(9, 8, sampler()).tokens, whole.draft(9, 8, sampler()).tokens[:2])


# Controls and bad input


@torch.inference_mode()
def test_controls_read_nothing_or_anothers_memory(tmp_path: Path) -> None:
    folder = saved(block(), tmp_path)
    own, zero = make("hyflash", tmp_path), make("hyflash", tmp_path, memory="zero")
    batch, other = text_of(own), text_of(own, 40, seed=8)
    state = document_state(own.network, other.features)
    save_file({"state": state.clone()}, folder / FOREIGN_FILE)
    foreign = make("hyflash", tmp_path, memory="foreign")
    window = make_window_of(own, tmp_path / "window")
    along = batch.tokens[:4]
    for drafter in (own, zero, foreign, window):
        observe_in(drafter, batch, [30, 15])
    assert torch.allclose(zero.logits(9, along), window.logits(9, along), atol=1e-6)
    assert not torch.allclose(own.logits(9, along), zero.logits(9, along), atol=1e-3)
    assert not torch.allclose(own.logits(9, along), foreign.logits(9, along), atol=1e-3)
    observe_in(own, other, [40])
    held = [item.tensor for item in own.memory() if item.kind == "state"]
    assert torch.allclose(held[0], state, atol=1e-6)
    assert bytes_by_kind(zero.memory()) == bytes_by_kind(own.memory())


def make_window_of(hyflash: Any, folder: Path) -> Any:
    network = block("window")
    network.load_state_dict(hyflash.network.state_dict(), strict=False)
    return loaded(Window, network, folder)


def test_a_missing_or_wrong_foreign_state_is_told(tmp_path: Path) -> None:
    folder = saved(block(), tmp_path)
    with pytest.raises(DrafterError, match=r"tensors state in .*foreign\.safetensors"):
        make("hyflash", tmp_path, memory="foreign")
    save_file({"state": torch.zeros(1, 2, 3, 4)}, folder / FOREIGN_FILE)
    with pytest.raises(DrafterError, match=r"state is \[1, 2, 3, 4\], this network's is \[1, 2, 8, 6\]"):
        make("hyflash", tmp_path, memory="foreign")
    save_file({"state": torch.full((1, 2, 8, 6), torch.nan)}, folder / FOREIGN_FILE)
    with pytest.raises(DrafterError, match="state holds NaN"):
        make("hyflash", tmp_path, memory="foreign")


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("kind", KINDS)
def test_each_drafter_takes_its_own_checkpoints_only(name: str, kind: str, tmp_path: Path) -> None:
    network = block(kind)
    if name == kind:
        loaded(CLASSES[name], network, tmp_path)
        return
    with pytest.raises(DrafterError, match=f"{name} needs .*Choose another checkpoint"):
        loaded(CLASSES[name], network, tmp_path)


def test_features_are_left_alone_and_may_change_later(tmp_path: Path) -> None:
    drafter = make("hyflash", tmp_path)
    batch = text_of(drafter)
    mine = Features(
        taps={layer: rows.clone() for layer, rows in batch.features.taps.items()},
        last_hidden=batch.features.last_hidden.clone(),  # type: ignore[union-attr]
    )
    observe_in(drafter, Batch(batch.tokens, mine, (0,), batch.anchors), [30])
    before = drafter.draft(9, 8, sampler()).tokens
    for rows in mine.tensors():
        rows.zero_()
    assert torch.equal(drafter.draft(9, 8, sampler()).tokens, before)
