"""Scores of tasks with each drafter, as lm-eval computes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from hyflash_bench.integrations.asked import ALONE

__all__ = ["Agreement", "Score", "compared", "metrics_of"]

Agreement = Literal["identical", "near_tie", "mismatch"]


@dataclass(frozen=True, slots=True)
class Score:
    """One metric of one task with one drafter.

    Attributes:
        task: Name of the task.
        metric: As lm-eval names it; RULER names it after the length.
        drafter: Label; plain decoding is the target alone.
        score: As lm-eval computes it; None if the drafter failed.
        stderr: Its standard error, where lm-eval gives one.
        num_prompts: How many were asked.
        agreement: Greedy replies compared with the target alone: ``identical``, ``near_tie`` (rounding of
            nearly equal logits), ``mismatch``; None where replies are drawn, or for the target itself.
        message: Why there is no score.
    """

    task: str
    metric: str
    drafter: str
    score: float | None
    stderr: float | None
    num_prompts: int
    agreement: Agreement | None
    message: str | None = None


def metrics_of(result: Mapping[str, Any], lengths: Sequence[int]) -> list[tuple[str, float, float | None]]:
    """Metric, value and standard error; ``name,filter`` loses a filter that does nothing."""
    rows = []
    for key, value in result.items():
        metric, _, filtered = key.partition(",")
        is_unasked = metric.isdecimal() and int(metric) not in lengths and value == -1
        if not isinstance(value, int | float) or not filtered or metric.endswith("_stderr") or is_unasked:
            continue
        stderr = result.get(f"{metric}_stderr,{filtered}")
        name = metric if filtered == "none" else f"{metric} ({filtered})"
        rows.append((name, float(value), float(stderr) if isinstance(stderr, int | float) else None))
    return rows


def compared(scores: Sequence[Score]) -> list[Score]:
    """Equal replies must have equal scores; what differs nevertheless is a mismatch too."""
    alone = {(score.task, score.metric): score.score for score in scores if score.drafter == ALONE.label}
    return [
        replace(score, agreement="mismatch")
        if score.agreement == "identical" and score.score != alone[score.task, score.metric]
        else score
        for score in scores
    ]
