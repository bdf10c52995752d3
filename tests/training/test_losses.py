"""The loss equals its definition, its gradient too, and only slots that count count."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from hyflash_bench.training.losses import slot_weights, teach, teacher_loss

N, B, D, V = 5, 3, 8, 12


def _teacher(**options):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(N, B, D, generator=generator)
    head = torch.randn(V, D, generator=generator)
    draft_ids = torch.arange(0, 2 * V, 2)
    labels = torch.randint(0, 2 * V, (N, B), generator=generator)
    is_scored = torch.rand(N, B, generator=generator) < 0.7
    teacher = teach(hidden, head, draft_ids, labels, is_scored, **options)
    return teacher, functional.linear(hidden, head), draft_ids, labels


def _logits() -> torch.Tensor:
    return torch.randn(N, B, V, generator=torch.Generator().manual_seed(1), requires_grad=True)


def test_the_loss_is_the_divergence_from_the_target():
    teacher, target_logits, _, _ = _teacher()
    logits, weights = _logits(), slot_weights(teacher.is_scored, 4.0)
    kl = functional.kl_div(logits.log_softmax(-1), target_logits.softmax(-1), reduction="none").sum(-1)
    torch.testing.assert_close(teacher_loss(logits, teacher, weights), (kl * weights).sum())


def test_its_gradient_is_autograds():
    teacher, target_logits, _, _ = _teacher()
    mine, theirs = _logits(), _logits()
    weights = slot_weights(teacher.is_scored, 4.0)
    teacher_loss(mine, teacher, weights).backward()
    kl = functional.kl_div(theirs.log_softmax(-1), target_logits.softmax(-1), reduction="none").sum(-1)
    (kl * weights).sum().backward()
    torch.testing.assert_close(mine.grad, theirs.grad)


def test_the_loss_is_zero_for_the_target_itself():
    teacher, target_logits, _, _ = _teacher()
    loss = teacher_loss(target_logits, teacher, slot_weights(teacher.is_scored, 4.0))
    assert abs(float(loss)) < 1e-5


def test_a_share_of_the_loss_is_on_the_texts_own_tokens():
    teacher, target_logits, draft_ids, labels = _teacher(token_share=0.25)
    mixed = target_logits.softmax(-1)
    for n in range(N):
        for slot in range(B):
            label = int(labels[n, slot])
            if label in draft_ids:
                mixed[n, slot] *= 0.75
                mixed[n, slot, label // 2] += 0.25
    torch.testing.assert_close(teacher.targets, mixed)
    torch.testing.assert_close(teacher.entropy, torch.special.entr(mixed).sum(-1))


def test_weights_fall_by_slot_add_up_to_one_and_leave_out_what_does_not_count():
    is_scored = torch.tensor([[True, True], [True, False]])
    weights = slot_weights(is_scored, 4.0)
    assert weights[1, 1] == 0
    assert float(weights.sum()) == pytest.approx(1)
    assert float(weights[0, 1] / weights[0, 0]) == pytest.approx(float(torch.tensor(-0.25).exp()))
    assert float(slot_weights(torch.zeros(2, 2, dtype=torch.bool), 4.0).sum()) == 0


def test_a_soft_cap_of_the_targets_logits_is_heeded():
    teacher, target_logits, _, _ = _teacher(softcap=2.0)
    torch.testing.assert_close(teacher.targets, (torch.tanh(target_logits / 2) * 2).softmax(-1))


def test_fewer_slots_are_the_first_ones():
    teacher, *_ = _teacher()
    torch.testing.assert_close(teacher.first(2).targets, teacher.targets[:, :2])
    assert teacher.first(B) is teacher
