"""From a segment of the stream to what networks are fed: tokens, features, anchors, and the teacher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hyflash_bench.drafters.base import Features
from hyflash_bench.drafters.networks.batch import Batch
from hyflash_bench.training.features import Documents, FeatureStore
from hyflash_bench.training.losses import Teacher, teach
from hyflash_bench.training.stream import Document, Segment

__all__ = ["Feeder", "Lesson"]


@dataclass(frozen=True, slots=True)
class Lesson:
    """A batch and what is to be learnt from it.

    Attributes:
        batch: The same for every drafter.
        teacher: On the networks' device.
    """

    batch: Batch
    teacher: Teacher


class Feeder:
    """Makes lessons of segments.

    Args:
        corpus: The text.
        store: Its features.
        head: ``[V, d]`` of the target, on the device that lessons go to.
        draft_ids: ``[V_d]`` ascending.
        num_slots: Most slots of any drafter.
        roles: Whose tokens are scored.
        token_share: See :func:`teach`.
        softcap: See :func:`teach`.
    """

    def __init__(
        self,
        corpus: Documents,
        store: FeatureStore,
        head: Tensor,
        draft_ids: Tensor,
        *,
        num_slots: int,
        roles: tuple[int, ...],
        token_share: float = 0.0,
        softcap: float | None = None,
    ) -> None:
        self._corpus, self._store = corpus, store
        self._draft_ids = draft_ids.to(head.device)
        self._head_rows = head.detach()[self._draft_ids].float()
        self._num_slots, self._roles = num_slots, torch.tensor(roles, dtype=torch.uint8)
        self._token_share, self._softcap = token_share, softcap

    def lesson(self, documents: Sequence[Document], segment: Segment, anchors: NDArray[np.int64]) -> Lesson:
        """Lay out a segment, with what is to be learnt at its anchors.

        Args:
            documents: That the segment is of.
            segment: See there.
            anchors: ``[N]`` rows of the segment, ascending.
        """
        batch, roles = self._laid_out(documents, segment, anchors)
        return Lesson(batch, self._teacher(batch, roles))

    def batch(self, documents: Sequence[Document], segment: Segment, anchors: NDArray[np.int64]) -> Batch:
        """The batch of a lesson alone."""
        return self._laid_out(documents, segment, anchors)[0]

    def _laid_out(
        self, documents: Sequence[Document], segment: Segment, anchors: NDArray[np.int64]
    ) -> tuple[Batch, Tensor]:
        """A batch, and who wrote each of its tokens."""
        tokens, roles, features = [], [], []
        for position, length in zip(segment.documents, segment.lengths, strict=True):
            index = documents[position].index
            text, by = self._corpus.document(index)
            tokens.append(text[:length])
            roles.append(by[:length])
            features.append(self._store.rows(index, length))
        rows = _moved(Features.concatenate(features), self._head_rows.device)
        batch = Batch(torch.cat(tokens), rows, segment.starts, torch.from_numpy(anchors))
        return batch, torch.cat(roles)

    def _teacher(self, batch: Batch, roles: Tensor) -> Teacher:
        labels, is_inside = batch.labels(self._num_slots)
        last_row = len(batch.tokens) - 1
        before = (batch.anchors[:, None] + torch.arange(self._num_slots)).clamp(max=last_row)
        is_scored = torch.isin(roles, self._roles)[(before + 1).clamp(max=last_row)] & is_inside
        device = self._head_rows.device
        assert batch.features.last_hidden is not None
        return teach(
            batch.features.last_hidden[before.to(device)],
            self._head_rows,
            self._draft_ids,
            labels.to(device),
            # Nothing is drafted behind a reply's end: a slot after one that doesn't count doesn't either.
            is_scored.long().cumprod(1).bool().to(device),
            token_share=self._token_share,
            softcap=self._softcap,
        )


def _moved(features: Features, device: torch.device) -> Features:
    """The same in float32 on a device; autocast narrows what it multiplies by itself."""
    assert features.last_hidden is not None
    return Features(
        taps={tap: rows.to(device).float() for tap, rows in features.taps.items()},
        last_hidden=features.last_hidden.to(device).float(),
    )
