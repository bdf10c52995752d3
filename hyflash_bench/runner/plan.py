"""From a request to cells and pieces of work."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from hyflash_bench.data import expanded
from hyflash_bench.results.records import CellRecord, TraceRecord
from hyflash_bench.runner.asked import asked_caps, require_room
from hyflash_bench.runner.environment import num_cores
from hyflash_bench.runner.estimate import SMALL_CPU_CORES, Pace, effort_of
from hyflash_bench.runner.work import Work, WorkCell
from hyflash_bench.runner.worker import DrafterFacts
from hyflash_bench.spec.baselines import checkpoint_folder
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.plan import Cap, Cell, content_id
from hyflash_bench.spec.run import RunSpec
from hyflash_bench.spec.sampling import Sampling
from hyflash_bench.suites.conversation import Item
from hyflash_bench.suites.suite import Suite

__all__ = ["Plan", "drafter_version", "make_plan", "target_id"]


@dataclass(frozen=True, slots=True)
class Plan:
    """All cells of a request and the conversations they meet on.

    Attributes:
        spec: The request.
        cells: Every cell.
        works: Every conversation with all of its cells.
        target: Facts of the target.
    """

    spec: RunSpec
    cells: tuple[CellRecord, ...]
    works: tuple[Work, ...]
    target: Mapping[str, Any]

    def remaining(
        self, finished: AbstractSet[tuple[str, str]], traces: Mapping[str, TraceRecord]
    ) -> list[Work]:
        """What is left when some (cell, conversation) pairs are finished and some traces known."""
        left = []
        for work in self.works:
            cells = tuple(c for c in work.cells if (c.cell_id, work.item_id) not in finished)
            if cells:
                known = traces.get(work.trace_id)
                left.append(work.model_copy(update={"cells": cells, "known": known}))
        return left

    def describe(self) -> dict[str, Any]:
        """The plan as plain values, for ``--dry-run``."""
        return {
            "target": self.target["name"],
            "num_cells": len(self.cells),
            "num_conversations": len(self.works),
            "drafters": [drafter.label for drafter in self.spec.drafters],
            "tasks": sorted({f"{cell.suite}/{cell.task}" for cell in self.cells}),
            "samplings": sorted({cell.sampling for cell in self.cells}),
            "estimated_s": round(Pace().seconds(map(effort_of, self.works)) / self._num_at_once()),
            "resolved": self.spec.to_mapping(),
        }

    def _num_at_once(self) -> int:
        """Conversations that go on as fast as alone: one process keeps a small CPU's cores busy."""
        return min(self.spec.workers, max(1, num_cores() // SMALL_CPU_CORES))


def make_plan(
    spec: RunSpec,
    suites: Sequence[Suite],
    target: Mapping[str, Any],
    drafters: Mapping[str, DrafterFacts],
) -> Plan:
    """Lay out cells and work, conversation by conversation so that one pass serves all drafters.

    Raises:
        UsageError: A cap is below the target's weights.
    """
    caps = asked_caps(spec)
    for cap in caps:
        if cap.weight_bits == 32:
            require_room(cap, int(target["weight_bytes"]), str(target["dtype"]))
    cells: dict[str, CellRecord] = {}
    works: list[Work] = []
    for suite in suites:
        items = _items(suite, spec, target)
        for item, sampling in product(items, _samplings(suite, spec)):
            here = [
                _cell(spec, suite, item, sampling, drafter, cap, repeat, target)
                for drafter, cap, repeat in product(spec.drafters, (None, *caps), _repeats(spec))
            ]
            for cell in here:
                planned = cells.get(cell.cell_id)
                count = 1 if planned is None else planned.num_conversations + 1
                cells[cell.cell_id] = _record(cell, drafters[cell.drafter.label], count)
            works += _works(spec, suite, item, sampling, here, target)
    # Enforced caps come last: each needs a worker of its own, and by then the traces are there.
    works.sort(key=lambda work: work.enforced_cap_bytes or 0)
    return Plan(spec, tuple(cells.values()), tuple(works), target)


def target_id(info: Mapping[str, Any]) -> str:
    """Identity of a target: weights, tokenizer, template, and how its arithmetic is done."""
    names = ("fingerprint", "dtype", "kv_dtype", "backend", "attention", "extrapolate")
    return content_id({name: info.get(name) for name in names})


def _items(suite: Suite, spec: RunSpec, target: Mapping[str, Any]) -> tuple[Item, ...]:
    return suite.items(
        contexts=spec.contexts,
        kinds=spec.kinds,
        limit=spec.limit,
        max_positions=None if spec.extrapolate else int(target["max_positions"]),
        max_new_tokens=spec.max_new_tokens,
    )


def _samplings(suite: Suite, spec: RunSpec) -> tuple[Sampling, ...]:
    return suite.spec.sampling if spec.sampling is None else (spec.sampling,)


def _repeats(spec: RunSpec) -> range:
    return range(1 if spec.mode == "replay" else spec.repeats)


def _max_new_tokens(spec: RunSpec, suite: Suite, task: str) -> int:
    if spec.max_new_tokens is not None:
        return spec.max_new_tokens
    own = next((t.max_new_tokens for t in suite.spec.tasks if t.name == task), None)
    return suite.spec.max_new_tokens if own is None else own


def _cell(
    spec: RunSpec,
    suite: Suite,
    item: Item,
    sampling: Sampling,
    drafter: DrafterSpec,
    cap: Cap | None,
    repeat: int,
    target: Mapping[str, Any],
) -> Cell:
    return Cell(
        target_id=target_id(target),
        target=str(target["name"]),
        drafter=drafter,
        drafter_version=drafter_version(drafter, str(target["name"])),
        suite=suite.spec.name,
        suite_hash=suite.suite_hash,
        task=item.task,
        cap=cap,
        sampling=sampling,
        seed=spec.seed,
        repeat=repeat,
        max_new_tokens=_max_new_tokens(spec, suite, item.task),
        draft_budget=spec.draft_budget,
        mode=spec.mode,
    )


def drafter_version(drafter: DrafterSpec, target: str) -> str:
    """Hash of what a drafter is read from; what ships as code changes with the package's version."""
    path, separator, _ = drafter.name.partition(".py:")
    if separator:
        return hashlib.sha256(Path(f"{path}.py").read_bytes()).hexdigest()[:12]
    folder = checkpoint_folder(drafter, target)
    if folder is None:
        return ""
    patterns = ("*.safetensors", "*.bin", "*.pt", "config.json")
    files = sorted(file for pattern in patterns for file in folder.glob(pattern))
    tree = expanded(str(drafter.options.get("tree_paths") or ""))
    files += [tree] if tree.is_file() else []
    return _files_version(tuple((file, file.stat().st_mtime_ns) for file in files))


@lru_cache(maxsize=64)
def _files_version(files: tuple[tuple[Path, int], ...]) -> str:
    """Remembered, since every cell of a drafter asks for it."""
    digest = hashlib.sha256()
    for file, _ in files:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:12]


def _record(cell: Cell, drafter: DrafterFacts, num_conversations: int) -> CellRecord:
    return CellRecord(
        cell_id=cell.cell_id,
        target=cell.target,
        target_id=cell.target_id,
        drafter=cell.drafter.label,
        drafter_name=cell.drafter.name,
        drafter_options=drafter.options,
        is_reference=drafter.is_reference,
        suite=cell.suite,
        suite_hash=cell.suite_hash,
        task=cell.task,
        memory_cap_bytes=None if cell.cap is None else cell.cap.num_bytes,
        cap_kind=None if cell.cap is None else cell.cap.kind,
        cap_policy=None if cell.cap is None else cell.cap.policy,
        device=None if cell.cap is None else cell.cap.device,
        weight_bits=None if cell.cap is None or cell.cap.weight_bits == 32 else cell.cap.weight_bits,
        temperature=cell.sampling.temperature,
        top_k=cell.sampling.top_k,
        top_p=cell.sampling.top_p,
        sampling=cell.sampling.label,
        seed=cell.seed,
        repeat=cell.repeat,
        max_new_tokens=cell.max_new_tokens,
        draft_budget=cell.draft_budget,
        num_conversations=num_conversations,
    )


def _works(
    spec: RunSpec,
    suite: Suite,
    item: Item,
    sampling: Sampling,
    cells: Sequence[Cell],
    target: Mapping[str, Any],
) -> Iterator[Work]:
    """One conversation: all cells together, but each drafter under an enforced cap by itself."""
    groups: dict[tuple[int, str] | None, list[Cell]] = {}
    for cell in cells:
        cap = cell.cap
        alone = None if cap is None or cap.kind == "simulated" else (cap.num_bytes, cell.drafter.label)
        groups.setdefault(alone, []).append(cell)
    for alone, group in groups.items():
        work = _work(spec, suite, item, sampling, group, target)
        yield work if alone is None else work.model_copy(update={"enforced_cap_bytes": alone[0]})


def _work(
    spec: RunSpec,
    suite: Suite,
    item: Item,
    sampling: Sampling,
    cells: Sequence[Cell],
    target: Mapping[str, Any],
) -> Work:
    max_new_tokens = cells[0].max_new_tokens
    trace = [
        target_id(target),
        suite.spec.name,
        suite.suite_hash,
        item.item_id,
        sampling.model_dump(mode="json"),
        spec.seed,
        max_new_tokens,
    ]
    return Work(
        trace_id=content_id(trace),
        suite=suite.spec.name,
        item_id=item.item_id,
        sampling=sampling,
        seed=spec.seed,
        max_new_tokens=max_new_tokens,
        draft_budget=spec.draft_budget,
        mode=spec.mode,
        num_turns=item.num_turns,
        context_length=item.context_length,
        cells=tuple(
            WorkCell.under(cell.cap, cell_id=cell.cell_id, drafter=cell.drafter, repeat=cell.repeat)
            for cell in cells
        ),
    )
