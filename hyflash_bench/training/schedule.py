"""The learning rate as a function of the step alone, so that resuming needs no more than the step."""

from __future__ import annotations

import math

from hyflash_bench.training.plan import TrainingPlan

__all__ = ["learning_rate"]


def learning_rate(plan: TrainingPlan, step: int) -> float:
    """The rate of gradient step ``step``, counted from 0.

    ``wsd`` (warm-up, stable, decay) holds its height until the last ``decay_share`` of the steps, so
    a training that is extended before that point does not differ from one planned longer.
    """
    warmup = math.ceil(plan.warmup_share * plan.steps)
    if step < warmup:
        return plan.learning_rate * (step + 1) / warmup
    left = (plan.steps - step) / max(1, plan.steps - warmup)
    match plan.decay:
        case "cosine":
            height = 0.5 - 0.5 * math.cos(math.pi * left)
        case "linear":
            height = left
        case "wsd":
            height = min(1.0, (plan.steps - step) / math.ceil(plan.decay_share * plan.steps))
    return plan.learning_rate * height
