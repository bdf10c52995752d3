"""Copying: where the text was once before, what came then is likely to come again.

A pointer (Vinyals et al., 1506.03134) over the last rows, mixed with what the network itself says of
each slot (See et al., 1704.04368): rows whose token and features are like the anchor's vote for the
tokens that stand one, two, ... rows behind them. Rows and anchors are looked at through the same
projection of the same inputs, so a repeated passage is found before anything was learnt; training
tunes what counts as alike. Behind the last rows, a network may recall some of those that came before.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from hyflash_bench.drafters.networks.batch import Batch
from hyflash_bench.drafters.networks.native import LEAST_COPIED, MOST_COPIED, kernels_for
from hyflash_bench.drafters.networks.products import Linear
from hyflash_bench.drafters.networks.recall import places_taken, written_over

__all__ = ["CopyHead", "cosines", "with_votes"]

_SHARPNESS, _THRESHOLD, _TRUST = 20.0, 0.85, 2.0
"""Where training starts: cosines above the threshold were the same passage in nine of ten cases."""


def with_votes(logits: Tensor, votes: Tensor) -> Tensor:
    """Logits of the mixture of what a network says and what is copied, float32.

    Args:
        logits: ``[..., V_d]`` of the network.
        votes: ``[..., V_d]`` for each or for all, chances that sum up to less than one; the network has
            the rest.
    """
    kernels = kernels_for(logits, votes)
    if kernels is not None:
        size = logits.shape[-1]
        mixed = kernels.mixture(logits.reshape(-1, size), votes.expand_as(logits).reshape(-1, size))
        return mixed.view(logits.shape)
    rest = torch.log1p(-votes.sum(-1, keepdim=True).clamp(max=MOST_COPIED))
    return torch.logaddexp(logits.float().log_softmax(-1) + rest, votes.clamp(min=LEAST_COPIED).log())


def cosines(queries: Tensor, keys: Tensor) -> Tensor:
    """``[N, R]`` float32 of unit queries ``[N, size]`` and keys ``[R, size]``."""
    with torch.autocast(queries.device.type, enabled=False):
        return queries.float() @ keys.float().T


class CopyHead(nn.Module):
    """What the last rows say of each slot.

    Args:
        num_inputs: Size of what is known of a row: its token, and the features of the row before it.
        size: Of the keys.
        num_slots: B.
        window: Last rows that are looked at.
        num_recalled: Rows before these that are looked at besides, see :mod:`.recall`.
    """

    def __init__(
        self, num_inputs: int, size: int, num_slots: int, window: int, num_recalled: int = 0
    ) -> None:
        super().__init__()
        self.window, self.size, self.num_recalled = window, size, num_recalled
        self.project = Linear(num_inputs, size)
        self.log_sharpness = nn.Parameter(torch.tensor(_SHARPNESS).log())
        self.threshold = nn.Parameter(torch.tensor(_THRESHOLD))
        self.trust = nn.Parameter(torch.full((num_slots,), _TRUST))

    @torch.no_grad()
    def fit(self, inputs: Tensor) -> None:
        """Start from a random projection of centred inputs, in which common directions count for less.

        Args:
            inputs: ``[n, num_inputs]`` of a text.
        """
        rows = inputs.cpu().double()
        mean = rows.mean(0)
        spread, directions = torch.linalg.eigh((rows - mean).T @ (rows - mean) / len(rows))
        # Between plain and whitened inputs: the former are alike everywhere, the latter mostly noise.
        scales = spread.clamp(min=spread[-1] * 1e-9) ** -0.25
        random = torch.randn(len(mean), self.size, generator=torch.Generator().manual_seed(0))
        drawn = torch.linalg.qr(random.double())[0].T
        weight = drawn @ (scales[:, None] * directions.T)
        self.project.weight.copy_(weight)
        self.project.bias.copy_(-(weight @ mean))

    def keys(self, inputs: Tensor) -> Tensor:
        """``[..., num_inputs]`` to unit keys ``[..., size]``."""
        projected: Tensor = self.project(inputs)
        return functional.normalize(projected.float(), dim=-1).to(projected.dtype)

    def forward(self, alike: Tensor, visible: Tensor, places: Tensor, size: int) -> Tensor:
        """The chances of tokens to be copied, see :func:`with_votes`.

        Args:
            alike: ``[N, R]`` float32, cosines of the keys of anchors and rows.
            visible: ``[N, R]`` bool.
            places: ``[N, B, R]`` in the draft vocabulary of the token that a row names for a slot; ``size``
                for none.
            size: Of the draft vocabulary.

        Returns:
            ``[N, B, size]`` float32.
        """
        with torch.autocast(alike.device.type, enabled=False):
            scores = self.log_sharpness.float().exp() * (alike - self.threshold.float())
            scores = scores.masked_fill(~visible, -torch.inf)
            # Last comes the choice of copying nothing.
            votes = functional.pad(scores, (0, 1)).softmax(-1)[:, None, :-1].expand(places.shape)
            found = votes.new_zeros(*places.shape[:2], size + 1).scatter_add(-1, places, votes)
            return found[..., :size] * self.trust.float().sigmoid()[:, None]

    def along(self, batch: Batch, inputs: Tensor, places: Tensor, size: int) -> Tensor:
        """The training form.

        Args:
            batch: N anchors in T rows.
            inputs: ``[T, num_inputs]``; those of a document's first row are not read.
            places: ``[T]`` of the tokens in the draft vocabulary.
            size: Of the draft vocabulary.

        Returns:
            ``[N, B, size]``.
        """
        device = inputs.device
        anchors, rows = batch.anchors.to(device), torch.arange(len(inputs), device=device)
        starts = torch.tensor(batch.starts, device=device)
        first = starts[torch.searchsorted(starts, anchors, right=True) - 1] + 1
        oldest, places = (anchors - self.window)[:, None], places.to(device)
        is_kept = rows >= oldest
        if self.num_recalled:
            before = torch.cat([places[:1], places[:-1]])
            is_kept |= written_over(places_taken(before, places, self.num_recalled)) >= oldest
        visible = is_kept & (rows >= first[:, None]) & (rows < anchors[:, None])
        keys = self.keys(inputs)
        ahead = rows + torch.arange(1, len(self.trust) + 1, device=device)[:, None]
        named = places[ahead.clamp(max=len(rows) - 1)].expand(len(anchors), -1, -1)
        named = named.masked_fill(ahead > anchors[:, None, None], size)
        votes: Tensor = self(cosines(keys[anchors], keys), visible, named, size)
        return votes
