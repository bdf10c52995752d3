"""How close a step of plain decoding comes to the limit of the memory bus.

Prints, per context length, the median time of a pass of one token, the bytes it must read (weights
and KV cache) and the share of the measured read bandwidth that it reaches. A step cannot be faster
than a share of 1.

    python benchmarks/decode.py
    python benchmarks/decode.py --contexts 512 --repeats 50
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.load import load_target
from hyflash_bench.targets.target import Target

BUFFER_BYTES = 512 * 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--contexts", type=int, nargs="+", default=[128, 512, 2048, 6000])
    parser.add_argument("--repeats", type=int, default=21)
    arguments = parser.parse_args()
    target = load_target(TargetSpec(target=arguments.target))
    buffer = torch.ones(BUFFER_BYTES // 4)
    print(f"{target.info.name}, {torch.get_num_threads()} threads, {target.info.attention} attention")
    print(f"{'context':>8} {'step ms':>8} {'best ms':>8} {'GB read':>8} {'bus GB/s':>9} {'share':>6}")
    for context in arguments.contexts:
        steps, reads = measure(target, buffer, context, arguments.repeats)
        num_bytes = target.info.weight_bytes + context * target.info.kv_bytes_per_token
        bandwidth = BUFFER_BYTES / statistics.median(reads)
        step_s = statistics.median(steps)
        print(
            f"{context:8} {step_s * 1e3:8.1f} {min(steps) * 1e3:8.1f} {num_bytes / 1e9:8.3f} "
            f"{bandwidth / 1e9:9.1f} {num_bytes / bandwidth / step_s:6.2f}"
        )


def measure(
    target: Target, buffer: torch.Tensor, context: int, repeats: int
) -> tuple[list[float], list[float]]:
    """Seconds of one-token passes and of reading the buffer, in turns."""
    cache = target.new_cache(context + 1)
    target.prefill(torch.arange(3, 3 + context) % target.info.vocab_size, cache)
    steps, reads = [], []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        target.forward(torch.tensor([5]), cache)
        between = time.perf_counter()
        buffer.sum()
        reads.append(time.perf_counter() - between)
        steps.append(between - began)
        cache.truncate(context)
    return steps[1:], reads[1:]


if __name__ == "__main__":
    main()
