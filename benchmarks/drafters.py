"""What a draft costs beside a step of the target, and whether that grows with the context.

Prints, per drafter and context length, the median time of a draft and of observing two tokens, the
ratio of a draft to a one-token pass of the target at that context, and the ledger's bytes, which grow or
do not: keys and values, state and buffer as walked over live tensors, and the same by the closed formula.
Shipped baselines are measured on random features, which cost what real ones do. With --random the
block drafters get random weights, so that contexts beyond the target's own can be asked for.

    python benchmarks/drafters.py
    python benchmarks/drafters.py --random --contexts 2048 131072
"""

from __future__ import annotations

import argparse
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
            f"{'drafter':<34}{'context':>8}{'draft ms':>10}{'observe ms':>11}{'of a step':>10}"
            f"{'kv':>14}{'state':>10}{'buffer':>10}{'all by formula':>16}"
        )
        for spec in specs:
            drafter = build_drafter(spec)
            drafter.load(target.load_context())
            for context in arguments.contexts:
                _report(target, drafter, spec, context, arguments.repeats)


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


def _report(target: Target, drafter: Drafter, spec: DrafterSpec, context: int, repeats: int) -> None:
    draft, observe, step = _measure(target, drafter, context, repeats)
    held, formula = bytes_by_kind(drafter.memory()), drafter.memory_formula(_num_observed(context, repeats))
    kinds = [held.get(kind, 0) for kind in ("kv", "state", "buffer")]
    paper = None if formula is None else sum(formula.values()) - formula.get("weights", 0)
    ratio = f"{draft / step:10.1%}" if step else f"{'-':>10}"
    name = spec.name if Path(str(spec.options.get("checkpoint", ""))).is_absolute() else spec.label
    print(
        f"{name:<34}{context:>8}{draft * 1e3:>10.2f}{observe * 1e3:>11.2f}{ratio}"
        f"{kinds[0]:>14,}{kinds[1]:>10,}{kinds[2]:>10,}{'-' if paper is None else f'{paper:,}':>16}",
        flush=True,
    )


def _num_observed(context: int, repeats: int) -> int:
    """Tokens that a drafter has seen after :func:`_measure`: two a repetition, the first one uncounted."""
    return context + 2 * (repeats + 1)


def _measure(
    target: Target, drafter: Drafter, context: int, repeats: int
) -> tuple[float, float, float | None]:
    """Median seconds of a draft, of observing two tokens, and of a pass of the target, in turns."""
    generator = torch.Generator().manual_seed(0)
    drafter.reset()
    for start in range(0, context, CHUNK):
        size = min(CHUNK, context - start)
        drafter.observe(torch.zeros(size, dtype=torch.int64), _features(target, drafter, size, generator))
    cache = _filled_cache(target, context)
    reached = cache.length
    two = _features(target, drafter, 2, generator)
    sampler = Sampler(GREEDY, 0)
    times: tuple[list[float], list[float], list[float]] = ([], [], [])
    for _ in range(repeats + 1):
        began = time.perf_counter()
        drafter.draft(7, 16, sampler)
        drafted = time.perf_counter()
        target.forward(torch.tensor([7]), cache)
        cache.truncate(reached)
        passed = time.perf_counter()
        drafter.observe(torch.tensor([7, 8]), two)
        done = time.perf_counter()
        for measured, seconds in zip(times, (drafted - began, done - passed, passed - drafted), strict=True):
            measured.append(seconds)
    draft, observe, step = (statistics.median(measured[1:]) for measured in times)
    return draft, observe, step if reached == context else None


def _features(target: Target, drafter: Drafter, rows: int, generator: torch.Generator) -> Features:
    requires: Requires = drafter.requires
    size = target.info.hidden_size

    def random() -> torch.Tensor:
        return torch.randn(rows, size, generator=generator)

    return Features(
        taps={tap: random() for tap in requires.taps},
        last_hidden=random() if requires.last_hidden else None,
    )


def _filled_cache(target: Target, context: int) -> KVCache:
    """A cache of that length; what it holds costs the same to read.

    Past the target's own limit it is one up to that limit: the pass is made all the same, since drafts
    are slower where the weights of a target went through the processor's caches between them.
    """
    length = min(context, target.info.max_positions - 1)
    cache = target.new_cache(length + 1)
    cache.length = length
    return cache


if __name__ == "__main__":
    main()
