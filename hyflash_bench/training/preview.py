"""What a training would be, and the part of its work that can be done beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyflash_bench.drafters.base import Requires
from hyflash_bench.drafters.networks.network import TargetShape
from hyflash_bench.training.events import Listener, Said
from hyflash_bench.training.features import FeatureStore, features_root
from hyflash_bench.training.plan import TrainingPlan
from hyflash_bench.training.roster import enlist, parameter_rows
from hyflash_bench.training.session import Session, open_corpus, open_target

__all__ = ["Preview", "fill_features", "preview"]


@dataclass(frozen=True, slots=True)
class Preview:
    """A plan as it would be carried out.

    Attributes:
        drafters: A row each with its parameters and how far they are from full-context's.
        facts: Lines for people: documents, steps, disk.
    """

    drafters: list[dict[str, Any]]
    facts: list[str]


def preview(plan: TrainingPlan) -> Preview:
    """Look at target, corpus and drafters; computes no features.

    Raises:
        HyFlashError: As :func:`hyflash_bench.training.trainer.train`.
    """
    target = open_target(plan)
    session = Session.open(plan, target, open_corpus(plan, target))
    facts = [*session.describe(), f"{plan.steps} steps of {plan.num_anchors} anchors for each drafter."]
    return Preview(parameter_rows(session.entries), facts)


def fill_features(plan: TrainingPlan, listener: Listener = lambda event: None) -> Path:
    """Compute the target's features of the whole corpus; what is there already stays.

    Returns:
        The folder where features are kept.

    Raises:
        DataError: No corpus, or the disk is full; what was computed before stays.
    """
    target = open_target(plan)
    corpus = open_corpus(plan, target)
    requires = Requires()
    for entry in enlist(plan, TargetShape.of(target.load_context())):
        requires |= entry.requires
    store = FeatureStore(corpus, target, requires)
    listener(Said(store.describe()))
    store.fill_all(lambda line: listener(Said(line)))
    return features_root()
