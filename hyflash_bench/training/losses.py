"""What the target itself says at the anchors, computed once for all drafters, and how far off they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["Teacher", "slot_weights", "teach", "teacher_loss"]


@dataclass(frozen=True, slots=True)
class Teacher:
    """What slots should say, for N anchors and B slots.

    Attributes:
        targets: ``[N, B, V_d]`` float32 distributions over the draft vocabulary.
        entropy: ``[N, B]`` of the same, in nats.
        labels: ``[N, B]`` int64, the text's own tokens as target ids.
        is_scored: ``[N, B]`` whether the slot counts: in the document, of a scored role, and no
            slot before it is otherwise.
    """

    targets: Tensor
    entropy: Tensor
    labels: Tensor
    is_scored: Tensor

    def first(self, num_slots: int) -> Teacher:
        """The same for fewer slots."""
        if num_slots == self.labels.shape[1]:
            return self
        kept = slice(num_slots)
        return Teacher(
            self.targets[:, kept], self.entropy[:, kept], self.labels[:, kept], self.is_scored[:, kept]
        )


@torch.no_grad()
def teach(
    last_hidden: Tensor,
    head_rows: Tensor,
    draft_ids: Tensor,
    labels: Tensor,
    is_scored: Tensor,
    *,
    token_share: float = 0.0,
    softcap: float | None = None,
) -> Teacher:
    """The target's distribution over the draft vocabulary at every slot.

    Args:
        last_hidden: ``[N, B, d]`` of the rows before the slots, after the final norm.
        head_rows: ``[V_d, d]`` of the target's head.
        draft_ids: ``[V_d]`` ascending.
        labels: ``[N, B]`` the text's own tokens.
        is_scored: ``[N, B]``.
        token_share: Mass that is moved onto the label, where the draft vocabulary holds it: the
            mix of cross-entropy and divergence as one target.
        softcap: Of the target's logits, where it has one.
    """
    logits = functional.linear(last_hidden.float(), head_rows.float())
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    log_targets = logits.log_softmax(-1)
    targets = log_targets.exp()
    if token_share > 0:
        index = torch.searchsorted(draft_ids, labels).clamp_(max=len(draft_ids) - 1)
        is_known = (draft_ids[index] == labels).float() * token_share
        targets *= (1 - is_known)[..., None]
        targets.scatter_add_(-1, index[..., None], is_known[..., None])
        log_targets = targets.clamp(min=1e-30).log_()
    entropy = -torch.linalg.vecdot(targets, log_targets)
    return Teacher(targets, entropy, labels, is_scored)


def slot_weights(
    is_scored: Tensor, decay: float, total: Callable[[Tensor], Tensor] = lambda mine: mine
) -> Tensor:
    """``[N, B]`` weights ``exp(-j / decay)`` of the slots that count; they add up to 1.

    Args:
        is_scored: ``[N, B]`` whether a slot counts.
        decay: Slots in which weights fall to 1/e.
        total: From the sum of these to that of all, where they are a part.
    """
    slots = torch.arange(is_scored.shape[1], device=is_scored.device)
    weights = is_scored * torch.exp(-slots / decay)
    return weights / total(weights.sum()).clamp(min=1e-12)


def teacher_loss(logits: Tensor, teacher: Teacher, weights: Tensor) -> Tensor:
    """Weighted divergence KL(target || drafter), in nats.

    Args:
        logits: ``[N, B, V_d]`` of a drafter.
        teacher: Of the same slots.
        weights: ``[N, B]``.
    """
    apply: Callable[[Tensor, Tensor, Tensor], Tensor] = _SoftCrossEntropy.apply
    least: Tensor = (weights * teacher.entropy).sum()
    # Some networks give logits whose last dimension is not the innermost one, which is slow to sum over.
    return apply(logits.contiguous(), teacher.targets, weights) - least


class _SoftCrossEntropy(torch.autograd.Function):
    """``sum w (logsumexp(z) - t.z)`` with one large temporary each way instead of autograd's five."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        wide = logits.float()
        norm = wide.logsumexp(-1)
        ctx.save_for_backward(logits, targets, weights, norm)
        total: Tensor = (weights * (norm - torch.linalg.vecdot(targets, wide))).sum()
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None, None]:
        logits, targets, weights, norm = ctx.saved_tensors
        wide = logits.float() - norm[..., None]
        wide.exp_().sub_(targets).mul_((weights * grads[0])[..., None])
        return wide.to(logits.dtype), None, None
