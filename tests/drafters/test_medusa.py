"""Heads on one row: chain, fixed tree, constant bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hyflash_bench.drafters.base import bytes_by_kind
from hyflash_bench.drafters.contract import CHECKS, Ground
from hyflash_bench.drafters.medusa import Medusa
from hyflash_bench.drafters.networks.batch import Batch
from hyflash_bench.drafters.networks.medusa import MedusaNetwork
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.engine.acceptance import depths
from hyflash_bench.errors import DrafterError
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


@pytest.fixture(scope="module")
def network() -> MedusaNetwork:
    return medusa(hidden_layers=2)


@pytest.fixture(scope="module")
def folder(network: MedusaNetwork, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(network, tmp_path_factory.mktemp("medusa"))


@pytest.fixture(scope="module")
def drafter(folder: Path) -> Medusa:
    return opened(Medusa, folder)


@settings(max_examples=20, deadline=None)
@given(prompt=st.integers(1, 40), pattern=st.lists(st.integers(0, NUM_SLOTS), min_size=1, max_size=9))
def test_drafting_equals_training(
    drafter: Medusa, network: MedusaNetwork, prompt: int, pattern: list[int]
) -> None:
    features = features_of(TEXT, network.requires)
    plain = Sampler(Sampling(temperature=1.0), 0)
    for anchor in anchors_along(drafter, TEXT, features, prompt, pattern):
        with torch.no_grad():
            logits = network(Batch(TEXT, features, (0,), torch.tensor([anchor])))[0]
        assert torch.allclose(drafter.network.logits(drafter._row, NUM_SLOTS)[0], logits, atol=1e-5)
        chain = drafter.draft(int(TEXT[anchor]), 8, sampler())
        assert torch.equal(chain.tokens, torch.tensor(DRAFT_IDS)[logits.argmax(-1)])
        along = TEXT[anchor + 1 :]
        scored = drafter.draft(int(TEXT[anchor]), 8, plain, along)
        assert torch.equal(scored.tokens, along[: len(scored)])
        if len(scored):
            expected = network.head.spread(logits[: len(scored)].double().softmax(-1))
            assert torch.allclose(scored.probabilities, expected, atol=1e-6)


def test_nothing_observed_is_nothing_proposed(drafter: Medusa) -> None:
    drafter.reset()
    assert len(drafter.draft(5, 4, sampler())) == 0


# Trees


@pytest.mark.parametrize(("tree_nodes", "budget"), [(16, 64), (16, 5), (40, 64), (3, 64), (1, 1)])
def test_a_trees_paths_are_the_heads_ranked_tokens(
    network: MedusaNetwork, tmp_path: Path, tree_nodes: int, budget: int
) -> None:
    drafter = loaded(Medusa, network, tmp_path, tree=True, tree_nodes=tree_nodes)
    features = features_of(TEXT, network.requires)
    for anchor in anchors_along(drafter, TEXT, features, 9, [0, 3]):
        draft = drafter.draft(int(TEXT[anchor]), budget, sampler())
        assert len(draft) == min(tree_nodes, budget)
        ranked = drafter.network.logits(drafter._row, NUM_SLOTS)[0].argsort(-1, descending=True)
        following: dict[int, int] = {}
        for node, (depth, parent) in enumerate(zip(depths(draft), draft.parents.tolist(), strict=True)):
            rank = following.get(parent, 0)
            assert int(draft.tokens[node]) == DRAFT_IDS[int(ranked[depth - 1, rank])]
            following[parent] = rank + 1


def test_the_default_tree_contains_the_chain(network: MedusaNetwork, drafter: Medusa, tmp_path: Path) -> None:
    tree = loaded(Medusa, network, tmp_path, tree=True)
    features = features_of(TEXT, network.requires)
    for either in (tree, drafter):
        either.reset()
        either.observe(TEXT[:20], features.rows(slice(0, 20)))
    draft = tree.draft(5, 64, sampler())
    at, path = -1, []
    for node, parent in enumerate(draft.parents.tolist()):
        if parent == at:
            at = node
            path.append(int(draft.tokens[node]))
    assert path == drafter.draft(5, 64, sampler()).tokens.tolist()


def test_a_tree_that_holds_every_path_stops_there(tmp_path: Path) -> None:
    drafter = loaded(Medusa, medusa(num_slots=1), tmp_path, tree=True, tree_nodes=256)
    drafter.observe(TEXT[:2], features_of(TEXT[:2], drafter.requires))
    draft = drafter.draft(5, 256, sampler())
    assert sorted(draft.tokens.tolist()) == DRAFT_IDS


# The engine, the contract, memory


@pytest.fixture(scope="module")
def knowing() -> MedusaNetwork:
    """A network that knows the target's answers by heart."""
    network = medusa(draft_vocab_size=97)
    return taught(network, own_answers(network.requires))


@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_live_output_is_the_targets_own_and_replay_agrees(
    knowing: MedusaNetwork, tmp_path: Path, tree: bool, temperature: float
) -> None:
    check_lossless(loaded(Medusa, knowing, tmp_path, tree=tree), temperature)


@pytest.fixture(scope="module")
def ground(folder: Path) -> dict[str, Ground]:
    variants = {"chain": {}, "short": {"num_draft_tokens": 2}, "tree": {"tree": True, "tree_nodes": 12}}
    return {
        name: ground_of(lambda options=options: opened(Medusa, folder, **options))
        for name, options in variants.items()
    }


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("variant", ["chain", "short", "tree"])
def test_it_keeps_the_contract(ground: dict[str, Ground], variant: str, check: str) -> None:
    assert CHECKS[check](ground[variant]) is None


@pytest.mark.parametrize("tree", [False, True])
def test_bytes_do_not_grow(network: MedusaNetwork, tmp_path: Path, tree: bool) -> None:
    drafter = loaded(Medusa, network, tmp_path, tree=tree)
    features = features_of(TEXT, network.requires)
    held = [bytes_by_kind(drafter.memory())]
    for start in range(0, 60, 20):
        step = slice(start, start + 20)
        drafter.observe(TEXT[step], features.rows(step))
        drafter.draft(5, 64, sampler())
        held.append(bytes_by_kind(drafter.memory()))
    assert all(sizes == drafter.memory_formula(60) for sizes in held)
    assert held[0]["state"] == 48 * 4


@pytest.mark.parametrize("tree", [False, True])
def test_it_runs_in_half_precision(folder: Path, tree: bool) -> None:
    check_half_precision(Medusa, folder, tree=tree)


def test_another_kind_of_network_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DrafterError, match="kind eagle; medusa needs medusa"):
        loaded(Medusa, eagle(), tmp_path)
