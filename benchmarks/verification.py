"""What verifying a draft costs beside a plain step.

Prints, per context length and number of rows T, the median time of a pass of T tokens and its ratio
to a pass of one token. Speculative decoding gains when a pass of T costs little more than one of 1.

    python benchmarks/verification.py
    python benchmarks/verification.py --contexts 512 --rows 1 2 5
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.load import load_target
from hyflash_bench.targets.target import Target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--contexts", type=int, nargs="+", default=[512, 4096])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 3, 4, 5, 6, 8, 12, 16])
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    target = load_target(TargetSpec(target=arguments.target))
    print(f"{'context':>8} {'rows':>5} {'pass ms':>8} {'best ms':>8} {'ratio':>6}")
    for context in arguments.contexts:
        times = measure(target, context, sorted({1, *arguments.rows}), arguments.repeats)
        single = statistics.median(times[1])
        for rows in sorted(times):
            median, best = statistics.median(times[rows]), min(times[rows])
            print(f"{context:8} {rows:5} {median * 1e3:8.1f} {best * 1e3:8.1f} {median / single:6.2f}")


def measure(target: Target, context: int, row_counts: list[int], repeats: int) -> dict[int, list[float]]:
    """Seconds per number of rows, all counts in turns."""
    cache = target.new_cache(context + max(row_counts))
    target.prefill(torch.arange(3, 3 + context) % target.info.vocab_size, cache)
    times: dict[int, list[float]] = {rows: [] for rows in row_counts}
    for _ in range(repeats + 1):
        for rows, measured in times.items():
            tokens = torch.arange(5, 5 + rows)
            began = time.perf_counter()
            target.forward(tokens, cache)
            measured.append(time.perf_counter() - began)
            cache.truncate(context)
    return {rows: measured[1:] for rows, measured in times.items()}


if __name__ == "__main__":
    main()
