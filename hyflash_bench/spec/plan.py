"""Cells: the smallest things that get a number."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.sampling import Sampling

__all__ = ["CELL_ID_VERSION", "Cap", "CapKind", "CapPolicy", "Cell", "content_id"]

CELL_ID_VERSION = 2

CapKind = Literal["simulated", "enforced"]
CapPolicy = Literal["stop", "no-draft", "window"]


def content_id(value: Any, length: int = 12) -> str:
    """A short stable name for plain data: SHA-256 over its canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


@dataclass(frozen=True, slots=True)
class Cap:
    """A limit on memory, and what is done at it.

    Attributes:
        num_bytes: The limit; what needs exactly so much fits.
        kind: ``simulated``: the ledger decides; ``enforced``: the worker is limited.
        policy: ``stop``: the conversation ends there; ``no-draft``: it goes on without the drafter;
            ``window``: a drafter that can shrink does.
        device: Name of the device profile whose usable memory it is, or None.
        weight_bits: Bits that the target's weights are counted with in a simulation; 32 for as loaded.
    """

    num_bytes: int
    kind: CapKind = "simulated"
    policy: CapPolicy = "stop"
    device: str | None = None
    weight_bits: int = 32


@dataclass(frozen=True, slots=True)
class Cell:
    """target x drafter x task x memory cap x sampling x seed x repeat.

    Attributes:
        target_id: Hash over everything of the target that changes its output or speed class
            (fingerprint, dtype, backend, attention).
        target: Its name, for tables.
        drafter: What to run.
        drafter_version: Hash of what the drafter brings along (checkpoint), "" if nothing.
        suite: Name of the suite; ``suite_hash`` covers its content and version.
        task: Name of the task.
        cap: None for no cap.
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
    cap: Cap | None
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
            "cap": None if self.cap is None else asdict(self.cap),
            "sampling": self.sampling.model_dump(mode="json"),
            "seed": self.seed,
            "repeat": self.repeat,
            "max_new_tokens": self.max_new_tokens,
            "draft_budget": self.draft_budget,
            "mode": self.mode,
        }
        name = "".join(c if c.isalnum() else "-" for c in self.drafter.name.rsplit("/", 1)[-1])
        return f"{name}.{self.suite}.{self.task}.{content_id(identity, 10)}"
