"""The memory of other documents: an average over several, the same for the same seed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hyflash_bench.drafters.networks.context_state import document_state
from hyflash_bench.targets.target import Target
from hyflash_bench.training.corpus.store import Corpus
from hyflash_bench.training.foreign import _features, write_foreign_state
from hyflash_bench.training.session import Session
from tests.training.toys import toy_plan

SMALL = (
    "num_slots=2,copy_window=8,recall_rows=16,window=4,chunk=2,"
    "memory_heads=2,memory_key_dim=8,memory_value_dim=8"
)


@torch.no_grad()
@pytest.mark.usefixtures("cache")
def test_it_is_the_mean_of_what_long_documents_leave(
    toy: Target, toy_corpus: Path, tiny_target: Path, tmp_path: Path
) -> None:
    plan = toy_plan(toy_corpus, tiny_target, drafters=[f"hyflash:{SMALL}"], held_out_share=0.5)
    session = Session.open(plan, toy, Corpus.open(toy_corpus, toy.info))
    network = session.pupils[0].network
    write_foreign_state(network, session, tmp_path)
    stored = load_file(tmp_path / "foreign.safetensors")
    write_foreign_state(network, session, tmp_path / "again")
    again = load_file(tmp_path / "again" / "foreign.safetensors")
    assert all(torch.equal(again[name], value) for name, value in stored.items())
    is_recalled = stored["recall.named"][:, 0] >= 0
    assert is_recalled.any()
    assert stored["recall.keys"][is_recalled].norm(dim=1).min() > 0.9
    found = stored["state"]
    long = [index for index in session.held_out if session.store.lengths[index] >= 2 * plan.memory_rows]
    assert len(long) > 8
    states = {index: document_state(network, _features(network, session, index)) for index in long}
    assert not any(torch.allclose(found, state) for state in states.values())
    few = replace(session, held_out=long[:2])
    write_foreign_state(network, few, tmp_path / "few")
    mean = (states[long[0]] + states[long[1]]) / 2
    assert torch.allclose(load_file(tmp_path / "few" / "foreign.safetensors")["state"], mean, atol=1e-6)
    short = min(session.held_out, key=lambda index: session.store.lengths[index])
    write_foreign_state(network, replace(session, held_out=[short]), tmp_path / "short")
    assert (tmp_path / "short" / "foreign.safetensors").exists()
