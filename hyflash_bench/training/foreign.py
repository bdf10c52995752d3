"""A memory that other documents left behind, for the control that swaps histories."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from hyflash_bench.drafters.base import Features
from hyflash_bench.drafters.hyflash import FOREIGN_FILE
from hyflash_bench.drafters.networks.block import BlockNetwork
from hyflash_bench.drafters.networks.checkpoint import write_tensors
from hyflash_bench.drafters.networks.context_state import document_state
from hyflash_bench.drafters.networks.copy_state import CopyState
from hyflash_bench.drafters.networks.network import DraftNetwork
from hyflash_bench.drafters.networks.recall import Recall

if TYPE_CHECKING:
    from hyflash_bench.training.session import Session

__all__ = ["write_foreign_state"]


_NUM_DOCUMENTS = 8
_FOREIGN = 4
"""What the random numbers are for, as part of their seed."""


@torch.no_grad()
def write_foreign_state(network: DraftNetwork, session: Session, folder: Path) -> None:
    """Store what held-out documents leave in the memory, on average, and in the recall, one after another.

    Up to eight documents, drawn by the plan's seed from those long enough to leave anything: a single
    one could be near to the text by chance, or far from all. Networks without a memory get no file.

    Raises:
        DataError: The disk is full or the folder cannot be written.
    """
    if not isinstance(network, BlockNetwork) or network.config.memory == "none":
        return
    copying = network.copying
    recall = Recall.of(copying) if copying is not None and copying.num_recalled else None
    states = []
    for index in _drawn(session):
        features = _features(network, session, index)
        states.append(document_state(network, features))
        if recall is not None:
            tokens = session.corpus.document(index)[0][: session.store.lengths[index]]
            CopyState(network, recall).extend(tokens, network.context_rows(features))
    tensors = {"state": torch.stack(states).mean(0).cpu()}
    if recall is not None:
        tensors |= {"recall.keys": recall.keys.cpu(), "recall.named": recall.named.cpu()}
    write_tensors(tensors, folder / FOREIGN_FILE)


def _drawn(session: Session) -> list[int]:
    """The longest held-out document, where none is long enough."""
    lengths, plan = session.store.lengths, session.plan
    long = [index for index in session.held_out if lengths[index] >= 2 * plan.memory_rows]
    if not long:
        return [max(session.held_out, key=lambda index: lengths[index])]
    random = np.random.default_rng([plan.seed, _FOREIGN])
    return sorted(random.choice(long, min(len(long), _NUM_DOCUMENTS), replace=False).tolist())


def _features(network: BlockNetwork, session: Session, index: int) -> Features:
    rows = session.store.rows(index)
    assert rows.last_hidden is not None
    device = network.head.norm.weight.device
    return Features(
        taps={tap: values.to(device).float() for tap, values in rows.taps.items()},
        last_hidden=rows.last_hidden.to(device).float(),
    )
