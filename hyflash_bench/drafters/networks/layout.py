"""Where the documents and anchors of a batch stand, and what each anchor may look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hyflash_bench.drafters.networks.attention import attend_blocks, shared_context
from hyflash_bench.drafters.networks.batch import Batch
from hyflash_bench.drafters.networks.delta import MemoryRule, Writes, chunk_states
from hyflash_bench.drafters.networks.flash import has_kernels, states_by_kernels

__all__ = ["Layout"]


@dataclass(frozen=True, slots=True)
class _Document:
    """A document with anchors in it.

    Attributes:
        rows: Its rows in the batch.
        part: Its anchors, as a slice of all anchors.
        anchors: ``[n]``, counted from its start.
        boundaries: ``[n]``, the chunk at which each anchor's attention begins: m(a) / C.
        num_folded: Rows that the last anchor's memory holds.
    """

    rows: slice
    part: slice
    anchors: Tensor
    boundaries: Tensor
    num_folded: int


class Layout:
    """A batch seen through a window of W rows, moved in chunks of C.

    Attributes:
        positions: ``[T]`` int64, rows counted from the start of their document.
        anchors: ``[N]`` int64, likewise.
    """

    def __init__(self, batch: Batch, window: int, chunk: int, device: torch.device) -> None:
        self.chunk = chunk
        self.span = -(-window // chunk) + 1  # chunks that hold W + C - 1 rows from a boundary on
        self.positions = torch.cat([torch.arange(rows.stop - rows.start) for rows in batch.spans()])
        self.anchors = self.positions[batch.anchors]
        self._documents = []
        for rows in batch.spans():
            part = batch.anchors_within(rows)
            if part.start == part.stop:
                continue
            anchors = self.anchors[part]
            boundaries = (anchors - window).clamp_(min=0) // chunk
            num_folded = int(boundaries[-1]) * chunk
            self._documents.append(
                _Document(rows, part, anchors.to(device), boundaries.to(device), num_folded)
            )

    def attend_near(
        self, own: tuple[Tensor, Tensor, Tensor], sides: tuple[Tensor, Tensor], follow: int = 0
    ) -> Tensor:
        """Each block over its own block and the rows from its boundary to its anchor.

        Args:
            own: Queries, keys and values of all blocks.
            sides: Keys and values of all rows, ``[T, kv_heads, hd]``.
            follow: Key heads that look for what came before.
        """

        def within(document: _Document, own: list[Tensor], sides: list[Tensor]) -> Tensor:
            chunks = document.boundaries[:, None] + torch.arange(self.span, device=own[0].device)
            near = [self._windows(side, chunks) for side in sides]
            first = document.boundaries[:, None] * self.chunk
            rows = first + torch.arange(self.span * self.chunk, device=own[0].device)
            visible = rows < document.anchors[:, None]
            return attend_blocks(own[0], (own[1], own[2]), (near[0], near[1]), visible[:, None], follow)

        return self._by_document(within, own, sides)

    def attend_full(
        self, own: tuple[Tensor, Tensor, Tensor], sides: tuple[Tensor, Tensor], follow: int = 0
    ) -> Tensor:
        """Each block over its own block and all rows of its document before its anchor."""

        def within(document: _Document, own: list[Tensor], sides: list[Tensor]) -> Tensor:
            context = (sides[0], sides[1])
            return shared_context(own[0], (own[1], own[2]), context, document.anchors, follow)

        return self._by_document(within, own, sides)

    def states(self, write: Callable[[Tensor], Writes], rows: Tensor, rule: MemoryRule) -> Tensor:
        """What each anchor's memory holds: ``[N, H, dk, dv]``.

        Args:
            write: From rows to what they write.
            rows: ``[T, d]``.
            rule: Which memory.
        """
        found = []
        for document in self._documents:
            start = document.rows.start
            writes = write(rows[start : start + document.num_folded])
            has_fast_form = has_kernels(rows, rule, writes.keys.shape[-1])
            with torch.autocast(rows.device.type, enabled=False):
                if has_fast_form:
                    states = states_by_kernels(writes, self.chunk)
                else:
                    states = chunk_states(writes, self.chunk, rule)
            found.append(states.index_select(0, document.boundaries))
        return torch.cat(found)

    def _windows(self, side: Tensor, chunks: Tensor) -> Tensor:
        """``[T, ...]`` and ``[n, span]`` chunk numbers to ``[n, span * C, ...]``."""
        # Whole chunks are gathered, because scattering gradients back costs by the piece.
        missing = (int(chunks[-1, -1]) + 1) * self.chunk - len(side)
        if missing > 0:
            side = torch.cat([side, side.new_zeros(missing, *side.shape[1:])])
        num_chunks = len(side) // self.chunk
        whole = side[: num_chunks * self.chunk].view(num_chunks, self.chunk, *side.shape[1:])
        gathered = whole.index_select(0, chunks.flatten())
        return gathered.view(len(chunks), self.span * self.chunk, *side.shape[1:])

    def _by_document(
        self,
        within: Callable[[_Document, list[Tensor], list[Tensor]], Tensor],
        own: tuple[Tensor, Tensor, Tensor],
        sides: tuple[Tensor, Tensor],
    ) -> Tensor:
        return torch.cat(
            [
                within(
                    document,
                    [tensor[document.part] for tensor in own],
                    [tensor[document.rows] for tensor in sides],
                )
                for document in self._documents
            ]
        )
