"""What a draft costs beside a step of the target, and whether that grows with the context.

Prints, per drafter and context length, the median time of a draft and of observing two tokens, the
ratio of a draft to a one-token pass of the target at that context and to a draft at the first context,
and the ledger's bytes, which grow or do not: keys and values, state and buffer as walked over live
tensors, and the same by the closed formula. All contexts are measured in the same rounds, in changing
order, since a machine is seldom as fast as it was a minute before; ratios are medians over the rounds.
Tokens and features are random, which cost what real ones do. With --random the block drafters get random
weights, so that contexts beyond the target's own can be asked for.

    python benchmarks/drafters.py
    python benchmarks/drafters.py --random --contexts 2048 131072
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path

import torch

from hyflash_bench.drafters.base import Drafter, Features, Requires, bytes_by_kind
from hyflash_bench.drafters.networks.checkpoint import save_network
from hyflash_bench.drafters.networks.network import TargetShape
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.registry import build_drafter
from hyflash_bench.spec.baselines import shipped_baselines
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.sampling import GREEDY
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.cache import KVCache
from hyflash_bench.targets.load import load_target
from hyflash_bench.targets.target import Target
from hyflash_bench.training.plan import TrainingPlan
from hyflash_bench.training.roster import enlist

CHUNK = 2048
RANDOM = ("hyflash:num_layers=1", "window:num_layers=1", "full-context:num_layers=1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--contexts", type=int, nargs="+", default=[512, 7680])
    parser.add_argument("--repeats", type=int, default=31)
    parser.add_argument("--random", action="store_true", help="block drafters with random weights")
    arguments = parser.parse_args()
    target = load_target(TargetSpec(target=arguments.target))
    with tempfile.TemporaryDirectory() as folder:
        specs = _random(target, Path(folder)) if arguments.random else _shipped(target)
        print(
            f"{'drafter':<34}{'context':>8}{'draft ms':>10}{'observe ms':>11}{'of a step':>10}{'of first':>9}"
            f"{'kv':>14}{'state':>10}{'buffer':>10}{'all by formula':>16}"
        )
        for spec in specs:
            _report(
                spec, [_Subject(target, spec, context) for context in arguments.contexts], arguments.repeats
            )


def _shipped(target: Target) -> list[DrafterSpec]:
    return [baseline.spec for baseline in shipped_baselines(target.info.name)]


def _random(target: Target, folder: Path) -> list[DrafterSpec]:
    plan = TrainingPlan.parse({"corpus": "none", "drafters": list(RANDOM)})
    specs = []
    for entry in enlist(plan, TargetShape.of(target.load_context())):
        network = entry.build()
        network.set_vocabulary(range(entry.config.draft_vocab_size))
        save_network(network, folder / entry.label, {})
        specs.append(DrafterSpec(name=entry.name, options={"checkpoint": str(folder / entry.label)}))
    return specs


class _Subject:
    """A drafter that has seen a context, the target's cache of that length, and the times of all rounds."""

    def __init__(self, target: Target, spec: DrafterSpec, context: int) -> None:
        self.target, self.context = target, context
        self.drafter = build_drafter(spec)
        self.drafter.load(target.load_context())
        self.drafter.reset()
        self.num_observed = 0
        self._random = torch.Generator().manual_seed(0)
        for start in range(0, context, CHUNK):
            self._observe(*self._rows(min(CHUNK, context - start)))
        self._cache = _filled_cache(target, context)
        self.reaches = self._cache.length == context
        self.drafts: list[float] = []
        self.observations: list[float] = []
        self.steps: list[float] = []

    def measure(self) -> None:
        """A pass of the target over one token, two tokens observed, a draft."""
        length, two, sampler = self._cache.length, self._rows(2), Sampler(GREEDY, 0)
        began = time.perf_counter()
        self.target.forward(torch.tensor([7]), self._cache)
        self._cache.truncate(length)
        passed = time.perf_counter()
        self._observe(*two)
        observed = time.perf_counter()
        self.drafter.draft(7, 16, sampler)
        drafted = time.perf_counter()
        self.steps.append(passed - began)
        self.observations.append(observed - passed)
        self.drafts.append(drafted - observed)

    def _observe(self, tokens: torch.Tensor, features: Features) -> None:
        self.drafter.observe(tokens, features)
        self.num_observed += len(tokens)

    def _rows(self, count: int) -> tuple[torch.Tensor, Features]:
        tokens = torch.randint(self.target.info.vocab_size, (count,), generator=self._random)
        return tokens, _features(self.target, self.drafter, count, self._random)


def _report(spec: DrafterSpec, subjects: list[_Subject], repeats: int) -> None:
    order = random.Random(0)
    for _ in range(repeats + 1):
        for subject in order.sample(subjects, len(subjects)):
            subject.measure()
    name = spec.name if Path(str(spec.options.get("checkpoint", ""))).is_absolute() else spec.label
    for subject in subjects:
        held = bytes_by_kind(subject.drafter.memory())
        formula = subject.drafter.memory_formula(subject.num_observed)
        kinds = [held.get(kind, 0) for kind in ("kv", "state", "buffer")]
        paper = None if formula is None else sum(formula.values()) - formula.get("weights", 0)
        share = f"{_ratio(subject.drafts, subject.steps):.1%}" if subject.reaches else "-"
        print(
            f"{name:<34}{subject.context:>8}{_median(subject.drafts) * 1e3:>10.2f}"
            f"{_median(subject.observations) * 1e3:>11.2f}{share:>10}"
            f"{_ratio(subject.drafts, subjects[0].drafts):>9.3f}{kinds[0]:>14,}{kinds[1]:>10,}{kinds[2]:>10,}"
            f"{'-' if paper is None else f'{paper:,}':>16}",
            flush=True,
        )


def _median(seconds: list[float]) -> float:
    """That of all rounds but the first, which warms up."""
    return statistics.median(seconds[1:])


def _ratio(these: list[float], those: list[float]) -> float:
    return _median([this / that for this, that in zip(these, those, strict=True)])


def _features(target: Target, drafter: Drafter, rows: int, generator: torch.Generator) -> Features:
    requires: Requires = drafter.requires
    size = target.info.hidden_size

    def some() -> torch.Tensor:
        return torch.randn(rows, size, generator=generator)

    return Features(
        taps={tap: some() for tap in requires.taps},
        last_hidden=some() if requires.last_hidden else None,
    )


def _filled_cache(target: Target, context: int) -> KVCache:
    """A cache of that length; what it holds costs the same to read.

    Past the target's own limit it is one up to that limit: the pass is made all the same, since drafts
    are slower where the weights of a target went through the processor's caches before them.
    """
    length = min(context, target.info.max_positions - 1)
    cache = target.new_cache(length + 1)
    cache.length = length
    return cache


if __name__ == "__main__":
    main()
