"""Cells: the smallest things that get a number."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.sampling import Sampling

__all__ = ["CELL_ID_VERSION", "Cell", "content_id"]

CELL_ID_VERSION = 1


def content_id(value: Any, length: int = 12) -> str:
    """A short stable name for plain data: SHA-256 over its canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


@dataclass(frozen=True, slots=True)
class Cell:
    """target x drafter x task x memory cap x sampling x seed x repeat.

    Attributes:
        target_id: Hash over everything of the target that changes its output or speed class
            (fingerprint, dtype, device, attention).
        target: Its name, for tables.
        drafter: What to run.
        drafter_version: Hash of what the drafter brings along (checkpoint), "" if nothing.
        suite: Name of the suite; ``suite_hash`` covers its content and version.
        task: Name of the task.
        memory_cap_bytes: None for no cap.
        sampling: Greedy or sampled.
        seed: Seed of the run.
        repeat: 0, 1, ...: repetitions of the timed loop.
        max_new_tokens: Token limit of a reply.
        draft_budget: Most tokens a drafter may propose in one step.
        mode: ``both``, ``replay`` or ``live``: a cell that was only replayed is not finished for a
            request that also wants it live.
    """

    target_id: str
    target: str
    drafter: DrafterSpec
    drafter_version: str
    suite: str
    suite_hash: str
    task: str
    memory_cap_bytes: int | None
    sampling: Sampling
    seed: int
    repeat: int
    max_new_tokens: int
    draft_budget: int
    mode: str

    @property
    def cell_id(self) -> str:
        """Readable prefix and a hash over all that changes the output or the number."""
        identity = {
            "version": CELL_ID_VERSION,
            "target": self.target_id,
            "drafter": [self.drafter.name, self.drafter.options, self.drafter_version],
            "suite": [self.suite, self.suite_hash, self.task],
            "memory_cap_bytes": self.memory_cap_bytes,
            "sampling": self.sampling.model_dump(mode="json"),
            "seed": self.seed,
            "repeat": self.repeat,
            "max_new_tokens": self.max_new_tokens,
            "draft_budget": self.draft_budget,
            "mode": self.mode,
        }
        name = "".join(c if c.isalnum() else "-" for c in self.drafter.name.rsplit("/", 1)[-1])
        return f"{name}.{self.suite}.{self.task}.{content_id(identity, 10)}"
