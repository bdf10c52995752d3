"""A tiny corpus for a tiny target, and plans that train on it in a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.load import load_target
from hyflash_bench.targets.target import Target
from hyflash_bench.training.corpus.manifest import Manifest, PartCounts, TargetStamp
from hyflash_bench.training.corpus.store import CorpusWriter
from hyflash_bench.training.plan import TrainingPlan

USER, GREEDY = 1, 2


def toy_target(folder: Path) -> Target:
    return load_target(TargetSpec(target=str(folder)))


def toy_documents(count: int, *, seed: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Replies that repeat the same few tokens over and over: easy to learn, short and long ones."""
    random = np.random.default_rng(seed)
    motif = random.permutation(np.arange(3, 40))[:11]
    documents = []
    for index in range(count):
        length = 60 if index % 4 == 0 else int(random.integers(12, 30))
        tokens = torch.from_numpy(np.resize(np.roll(motif, int(random.integers(11))), length))
        roles = torch.full((length,), GREEDY, dtype=torch.uint8)
        roles[:3] = USER
        documents.append((tokens, roles))
    return documents


def write_corpus(folder: Path, target: Target, documents: list[tuple[torch.Tensor, torch.Tensor]]) -> Path:
    manifest = Manifest(
        target=TargetStamp.of(target.info), recipe={"name": "toy"}, parts=(PartCounts(name="toy"),)
    )
    with CorpusWriter(folder, manifest) as writer:
        for index, (tokens, roles) in enumerate(documents):
            writer.add("toy", tokens, roles, group=str(index))
        writer.finish_unit("toy")
        writer.flush()
    return folder


def toy_plan(corpus: Path, target: Path, **changes: Any) -> TrainingPlan:
    values: dict[str, Any] = {
        "corpus": str(corpus),
        "target": str(target),
        "drafters": ["medusa:num_slots=3"],
        "draft_vocab_size": 64,
        "steps": 6,
        "segment_tokens": 32,
        "max_segment_tokens": 64,
        "num_anchors": 8,
        "memory_rows": 8,
        "evaluation_anchors": 32,
        "held_out_share": 0.25,
        "precision": "float32",
        "feature_dtype": "float32",
    }
    return TrainingPlan.parse(values | changes)
