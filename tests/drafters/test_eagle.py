"""What is drafted step by step is what was trained, whatever was accepted before."""

from __future__ import annotations

from copy import copy
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hyflash_bench.drafters import Draft
from hyflash_bench.drafters.base import bytes_by_kind
from hyflash_bench.drafters.contract import CHECKS, Ground
from hyflash_bench.drafters.eagle import Eagle
from hyflash_bench.drafters.networks.batch import Batch
from hyflash_bench.drafters.networks.eagle import EagleNetwork
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.engine.acceptance import depths
from hyflash_bench.errors import DrafterError
from hyflash_bench.footprint import BLOCK_ROWS as CACHE_BLOCK
from hyflash_bench.spec.sampling import Sampling
from tests.drafters.fakes import sampler
from tests.drafters.networks.small import DRAFT_IDS, NUM_SLOTS, eagle, features_of, medusa, saved, taught
from tests.drafters.walks import (
    anchors_along,
    check_half_precision,
    check_lossless,
    ground_of,
    loaded,
    opened,
    own_answers,
)
from tests.targets.families import random_tokens

TEXT = random_tokens(60, seed=3)
PATTERNS = st.lists(st.integers(0, NUM_SLOTS), min_size=1, max_size=12)


@pytest.fixture(scope="module")
def network() -> EagleNetwork:
    return eagle(token_residual=True)


@pytest.fixture(scope="module")
def folder(network: EagleNetwork, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(network, tmp_path_factory.mktemp("eagle"))


@pytest.fixture(scope="module")
def drafter(folder: Path) -> Eagle:
    return opened(Eagle, folder)


@pytest.fixture(scope="module")
def trained(network: EagleNetwork) -> torch.Tensor:
    """Logits ``[60, B, V_d]`` of the training form, by anchor."""
    features = features_of(TEXT, network.requires)
    anchors = torch.arange(1, len(TEXT))
    with torch.no_grad():
        out = network(Batch(TEXT, features, (0,), anchors))
    return torch.cat([out[:1], out])


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(prompt=st.integers(1, 40), pattern=PATTERNS)
def test_drafting_equals_training(
    drafter: Eagle, trained: torch.Tensor, prompt: int, pattern: list[int]
) -> None:
    network = drafter.network
    features = features_of(TEXT, network.requires)
    plain = Sampler(Sampling(temperature=1.0), 0)
    for anchor in anchors_along(drafter, TEXT, features, prompt, pattern):
        along = TEXT[anchor + 1 :]
        draft = drafter.draft(int(TEXT[anchor]), 8, plain, along)
        assert len(draft) == min(NUM_SLOTS, len(along))
        assert torch.equal(draft.tokens, along[: len(draft)])
        if len(draft) == 0:  # the text ends at the anchor
            break
        expected = network.head.spread(trained[anchor, : len(draft)].double().softmax(-1))
        assert torch.allclose(draft.probabilities, expected, atol=1e-5)


@pytest.mark.parametrize(("prompt", "pattern"), [(1, [0] * 58), (7, [0, 3, 1, 4, 2, 0]), (2, [1] * 28)])
@torch.inference_mode()
def test_drafting_equals_training_in_logits(prompt: int, pattern: list[int], tmp_path: Path) -> None:
    """At every anchor, for a network whose steps do not magnify the last bits of those before."""
    drafter = loaded(Eagle, eagle(token_residual=True, spread=0.05), tmp_path)
    features = features_of(TEXT, drafter.requires)
    expected = drafter.network(Batch(TEXT, features, (0,), torch.arange(1, len(TEXT))))
    seen = 0
    for anchor in anchors_along(drafter, TEXT, features, prompt, pattern):
        g, seen = drafter._last, seen + 1
        for slot, token in enumerate(TEXT[anchor : anchor + NUM_SLOTS].tolist()):
            g = drafter._run_ahead([token], g, slot, slot)
            found = drafter.network.head(g)[0]
            assert torch.allclose(found, expected[anchor - 1, slot], rtol=0.0, atol=1e-5), anchor
    assert seen > len(pattern) // 2


def test_the_likeliest_chain_is_the_training_forms(drafter: Eagle, network: EagleNetwork) -> None:
    features = features_of(TEXT, network.requires)
    for anchor in anchors_along(drafter, TEXT, features, 20, [2, 0, 3]):
        draft = drafter.draft(int(TEXT[anchor]), 8, sampler())
        text = torch.cat([TEXT[: anchor + 1], draft.tokens])
        rows = torch.cat([torch.arange(anchor), torch.zeros(1 + len(draft), dtype=torch.int64)])
        batch = Batch(text, features.rows(rows), (0,), torch.tensor([anchor]))
        with torch.no_grad():
            best = network(batch)[0].argmax(-1)
        assert torch.equal(draft.tokens, torch.tensor(DRAFT_IDS)[best])


def test_tokens_are_drawn_from_the_rows_that_come_with_them(drafter: Eagle) -> None:
    features = features_of(TEXT, drafter.requires)
    drafter.reset()
    drafter.observe(TEXT[:30], features.rows(slice(0, 30)))
    last = int(TEXT[30])
    draft = drafter.draft(last, 4, sampler(1, temperature=1.0))
    scored = drafter.draft(last, 4, sampler(9, temperature=1.0), draft.tokens)
    assert torch.allclose(draft.probabilities, scored.probabilities, atol=1e-9)
    row = draft.probabilities[0]
    likeliest, share, num_draws = int(row.argmax()), float(row.max()), 150
    drawn = [int(drafter.draft(last, 1, sampler(seed, temperature=1.0)).tokens) for seed in range(num_draws)]
    spread = (num_draws * share * (1 - share)) ** 0.5
    assert abs(drawn.count(likeliest) - num_draws * share) < 4 * spread
    assert set(drawn) <= set(DRAFT_IDS)


def test_chunks_and_earlier_drafts_leave_no_trace(drafter: Eagle) -> None:
    features = features_of(TEXT, drafter.requires)
    drafter.reset()
    drafter.observe(TEXT[:30], features.rows(slice(0, 30)))
    whole = drafter.draft(int(TEXT[30]), 4, sampler()).tokens
    drafter.reset()
    for start in range(0, 30, 3):
        drafter.observe(TEXT[start : start + 3], features.rows(slice(start, start + 3)))
        drafter.draft(5, 4, sampler())
    assert torch.equal(drafter.draft(int(TEXT[30]), 4, sampler()).tokens, whole)


def test_nothing_observed_is_nothing_proposed(drafter: Eagle) -> None:
    drafter.reset()
    assert len(drafter.draft(5, 4, sampler())) == 0


# Trees


def path_scores(drafter: Eagle, anchor: int, draft: Draft) -> list[float]:
    """Log-probability of each node's path, by drafting along it."""
    parents = draft.parents.tolist()
    scores = []
    for node in range(len(draft)):
        path, at = [], node
        while at >= 0:
            path.insert(0, int(draft.tokens[at]))
            at = parents[at]
        g, total = drafter._last, 0.0
        for step, token in enumerate([int(TEXT[anchor]), *path[:-1]]):
            g = drafter._run_ahead([token], g, step, step)
            head = drafter.network.head
            wanted = (head.draft_ids == path[step]).nonzero()[0, 0]
            total += float(head(g)[0].log_softmax(-1)[wanted])
        scores.append(total)
    return scores


def chain_in(draft: Draft) -> list[int]:
    """Down the tree by the first child."""
    tokens, at = [], -1
    for node, parent in enumerate(draft.parents.tolist()):
        if parent == at:
            tokens.append(int(draft.tokens[node]))
            at = node
    return tokens


@pytest.mark.parametrize(("top_k", "depth", "total"), [(4, 0, 16), (3, 5, 40), (4, 2, 3), (1, 0, 16)])
def test_a_trees_nodes_are_the_likeliest_of_those_it_looked_at(
    network: EagleNetwork, tmp_path: Path, top_k: int, depth: int, total: int
) -> None:
    drafter = loaded(Eagle, network, tmp_path, tree=True, top_k=top_k, depth=depth, total_tokens=total)
    features = features_of(TEXT, network.requires)
    levels = depth or NUM_SLOTS
    with torch.inference_mode():
        for anchor in anchors_along(drafter, TEXT, features, 9, [0, 3, 1]):
            draft = drafter.draft(int(TEXT[anchor]), 64, sampler())
            looked_at = top_k + (levels - 1) * top_k * top_k
            assert len(draft) == min(total, looked_at)
            assert draft.probabilities is None
            assert max(depths(draft)) <= levels
            scores = path_scores(drafter, anchor, draft)
            shorter = drafter.draft(int(TEXT[anchor]), len(draft) // 2, sampler())
            ordered = sorted(scores, reverse=True)
            kept = path_scores(drafter, anchor, shorter)
            assert sorted(kept, reverse=True) == pytest.approx(ordered[: len(kept)], abs=1e-4)
            for node, parent in enumerate(draft.parents.tolist()):
                assert parent < node
                assert parent < 0 or scores[parent] >= scores[node] - 1e-5


def test_one_child_a_node_makes_the_tree_a_chain(
    network: EagleNetwork, drafter: Eagle, tmp_path: Path
) -> None:
    tree = loaded(Eagle, network, tmp_path, tree=True, top_k=1)
    features = features_of(TEXT, network.requires)
    for anchor in anchors_along(tree, TEXT, features, 9, [0, 3, 1]):
        drafter.reset()
        drafter.observe(TEXT[:anchor], features.rows(slice(0, anchor)))
        chain = drafter.draft(int(TEXT[anchor]), 8, sampler())
        draft = tree.draft(int(TEXT[anchor]), 8, sampler())
        assert torch.equal(draft.tokens, chain.tokens)
        assert draft.parents.tolist() == [-1, 0, 1, 2]


def test_a_confident_trees_first_children_are_the_chain(network: EagleNetwork, tmp_path: Path) -> None:
    sure = eagle()
    with torch.no_grad():
        sure.head.norm.weight.mul_(8.0)
    chain = loaded(Eagle, sure, tmp_path / "chain")
    tree = loaded(Eagle, sure, tmp_path / "tree", tree=True, total_tokens=40)
    features = features_of(TEXT, network.requires)
    for anchor in anchors_along(tree, TEXT, features, 9, [0, 3, 1]):
        chain.reset()
        chain.observe(TEXT[:anchor], features.rows(slice(0, anchor)))
        expected = chain.draft(int(TEXT[anchor]), 8, sampler()).tokens.tolist()
        assert chain_in(tree.draft(int(TEXT[anchor]), 64, sampler())) == expected


# The engine, the contract, memory


@pytest.fixture(scope="module")
def knowing() -> EagleNetwork:
    """A network that knows the target's answers by heart."""
    network = eagle(draft_vocab_size=97)
    return taught(network, own_answers(network.requires))


@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_live_output_is_the_targets_own_and_replay_agrees(
    knowing: EagleNetwork, tmp_path: Path, tree: bool, temperature: float
) -> None:
    check_lossless(loaded(Eagle, knowing, tmp_path, tree=tree), temperature)


@pytest.fixture(scope="module")
def ground(folder: Path) -> dict[str, Ground]:
    variants = {
        "chain": {},
        "short": {"num_draft_tokens": 2},
        "tree": {"tree": True, "depth": 3, "top_k": 3, "total_tokens": 9},
    }
    return {
        name: ground_of(lambda options=options: opened(Eagle, folder, **options))
        for name, options in variants.items()
    }


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("variant", ["chain", "short", "tree"])
def test_it_keeps_the_contract(ground: dict[str, Ground], variant: str, check: str) -> None:
    assert CHECKS[check](ground[variant]) is None


@pytest.mark.parametrize("tree", [False, True])
def test_bytes_grow_by_blocks_and_equal_the_formula(
    network: EagleNetwork, tmp_path: Path, tree: bool
) -> None:
    drafter = loaded(Eagle, network, tmp_path, tree=tree)
    tokens = random_tokens(2 * CACHE_BLOCK + 20)
    features = features_of(tokens[:100], network.requires)
    sizes = set()
    drafter.reset()
    for start in range(0, len(tokens) - 7, 7):
        step = slice(start, start + 7)
        drafter.observe(tokens[step], features.rows(slice(start % 90, start % 90 + 7)))
        drafter.draft(5, 64, sampler())
        held = bytes_by_kind(drafter.memory())
        assert held == drafter.memory_formula(start + 7)
        sizes.add(held["kv"])
    row = 2 * 2 * 8 * 4
    assert sizes == {blocks * CACHE_BLOCK * row for blocks in (1, 2, 3)}
    drafter.reset()
    assert bytes_by_kind(drafter.memory()) == drafter.memory_formula(0)


@pytest.mark.parametrize("tree", [False, True])
def test_it_runs_in_half_precision(folder: Path, tree: bool) -> None:
    check_half_precision(Eagle, folder, tree=tree)


def test_another_kind_of_network_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DrafterError, match="kind medusa; eagle needs eagle"):
        loaded(Eagle, medusa(), tmp_path)


@pytest.mark.parametrize("tree", [False, True])
@given(
    pattern=PATTERNS,
    prompt=st.integers(1, 30),
    window=st.sampled_from([1, 2, 5, 130, 200]),
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_window_sees_its_last_pairs_as_if_there_were_no_others(
    tree: bool, folder: Path, pattern: list[int], prompt: int, window: int
) -> None:
    """Against a drafter whose cache is cut by hand: same pairs at their own positions, none before."""
    once, again = random_tokens(120, seed=4), torch.arange(600) % 120
    text, features = once[again], features_of(once, opened(Eagle, folder).requires).rows(again)
    windowed, whole = (opened(Eagle, folder, tree=tree, window=size) for size in (window, 0))
    walks = (anchors_along(each, text, features, 500 + prompt, pattern) for each in (windowed, whole))
    for anchor, _ in zip(*walks, strict=True):
        kept = cut_back(whole, window)
        mine, cut = (each.draft(int(text[anchor]), 6, sampler()) for each in (windowed, kept))
        assert mine.tokens.tolist() == cut.tokens.tolist()
        assert bytes_by_kind(windowed.memory()) == windowed.memory_formula(anchor)


def cut_back(drafter: Eagle, window: int) -> Eagle:
    """The same with nothing but its last pairs in the cache."""
    cut = copy(drafter)
    cut._cache = copy(drafter._cache)
    held = slice(max(0, drafter._num_held - window), drafter._num_held)
    cut._cache.resize(drafter._cache.num_slots + 1, held)  # of another size, so that it is another tensor
    cut._num_held = held.stop - held.start
    return cut
