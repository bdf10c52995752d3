"""What measuring costs: decode time with the meter's thread and without it, in turns.

Prints the medians, the median ratio of neighbours (the aim is under 1.01) and the share of one core
that the thread itself took, which holds also where other programs make the ratio noisy.

    python benchmarks/meters.py
    python benchmarks/meters.py --contexts 2048 --repeats 30
"""

from __future__ import annotations

import argparse
import time
from contextlib import nullcontext
from statistics import median

import torch

from hyflash_bench.memory.meters import Looking, Meter
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.load import load_target
from hyflash_bench.targets.target import Target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--contexts", type=int, nargs="+", default=[128, 2048])
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    target = load_target(TargetSpec(target=arguments.target))
    print(f"{'context':>8} {'without s':>10} {'with s':>8} {'ratio':>7} {'thread':>8}")
    for context in arguments.contexts:
        without, metered, share = measure(target, context, arguments.new_tokens, arguments.repeats)
        ratio = median(second / first for first, second in zip(without, metered, strict=True))
        print(f"{context:>8} {median(without):>10.3f} {median(metered):>8.3f} {ratio:>7.4f} {share:>8.3%}")


def measure(
    target: Target, context: int, new_tokens: int, repeats: int
) -> tuple[list[float], list[float], float]:
    """Seconds without and with the thread, and its share of one core."""
    cache = target.new_cache(context + new_tokens)
    target.prefill(torch.arange(3, 3 + context) % target.info.vocab_size, cache)
    without, metered = [], []
    meter = Meter(target.info.backend)
    meter.reset()
    looking = Looking(meter.look)
    for repeat in range(repeats + 1):
        both = [(without, nullcontext()), (metered, looking)]
        for seconds, watching in both if repeat % 2 else reversed(both):
            with watching:
                began = time.perf_counter()
                for token in range(new_tokens):
                    target.forward(torch.tensor([5 + token]), cache)
                seconds.append(time.perf_counter() - began)
            cache.truncate(context)
        if repeat == 0:  # warms up
            without.clear()
            metered.clear()
            looking.busy_s = 0.0
    return without, metered, looking.busy_s / sum(metered)


if __name__ == "__main__":
    main()
