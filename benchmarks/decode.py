"""How close a step of plain decoding comes to the limit of the memory bus, and what a smaller KV cache gives.

Prints, per context length and precision of the KV cache, the median time of a pass of one token, its
ratio to that with the first precision, the bytes that it must read (weights and KV cache) and the
share of the measured read bandwidth that it reaches. A step cannot be faster than a share of 1. The
precisions take turns in one process, over the same keys and values.

    python benchmarks/decode.py
    python benchmarks/decode.py --contexts 512 --repeats 50
    python benchmarks/decode.py --contexts 512 6000 --kv-dtypes float32 bfloat16 float16 int8
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import cast, get_args

import torch

from hyflash_bench.footprint import KVChoice, kv_row_bytes
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.cache import KVCache
from hyflash_bench.targets.load import load_target
from hyflash_bench.targets.target import Target

BUFFER_BYTES = 512 * 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--contexts", type=int, nargs="+", default=[128, 512, 2048, 6000])
    parser.add_argument("--kv-dtypes", choices=get_args(KVChoice), nargs="+", default=["auto"])
    parser.add_argument("--repeats", type=int, default=21)
    arguments = parser.parse_args()
    target = load_target(TargetSpec(target=arguments.target))
    info = target.info
    buffer = torch.ones(BUFFER_BYTES // 4)
    print(f"{info.name}, {torch.get_num_threads()} threads, {info.attention} attention")
    print(
        f"{'context':>8} {'KV cache':>9} {'step ms':>8} {'best ms':>8} {'ratio':>6} {'GB read':>8} "
        f"{'bus GB/s':>9} {'share':>6}"
    )
    for context in arguments.contexts:
        caches = filled(target, context, arguments.kv_dtypes)
        steps, reads = measure(target, buffer, caches, arguments.repeats)
        bandwidth = BUFFER_BYTES / statistics.median(reads)
        first_s = statistics.median(steps[0])
        for cache, times in zip(caches, steps, strict=True):
            row_bytes = kv_row_bytes(info.num_kv_heads, info.head_dim, cache.kv_dtype)
            num_bytes = info.weight_bytes + context * info.num_layers * row_bytes
            step_s = statistics.median(times)
            print(
                f"{context:8} {cache.kv_dtype:>9} {step_s * 1e3:8.1f} {min(times) * 1e3:8.1f} "
                f"{step_s / first_s:6.2f} {num_bytes / 1e9:8.3f} {bandwidth / 1e9:9.1f} "
                f"{num_bytes / bandwidth / step_s:6.2f}"
            )


def filled(target: Target, context: int, kv_dtypes: list[str]) -> list[KVCache]:
    """A cache of each precision with the same context, which the target reads once."""
    info = target.info
    caches = [
        KVCache(
            num_layers=info.num_layers,
            num_kv_heads=info.num_kv_heads,
            head_dim=info.head_dim,
            capacity=context + 1,
            dtype=target.dtype,
            device=target.device,
            kv_dtype=cast("KVChoice", kv_dtype),
        )
        for kv_dtype in kv_dtypes
    ]
    made = target.new_cache(context + 1)
    target.prefill(torch.arange(3, 3 + context) % info.vocab_size, made)
    for cache in caches:
        for layer in range(info.num_layers):
            keys, values = made.read(layer, slice(0, context))
            cache.write(layer, 0, keys.transpose(0, 1), values.transpose(0, 1))
        cache.length = context
    return caches


def measure(
    target: Target, buffer: torch.Tensor, caches: list[KVCache], repeats: int
) -> tuple[list[list[float]], list[float]]:
    """Seconds of one-token passes over each cache and of reading the buffer, in turns."""
    steps: list[list[float]] = [[] for _ in caches]
    reads = []
    for _ in range(repeats + 1):
        for cache, times in zip(caches, steps, strict=True):
            length = cache.length
            began = time.perf_counter()
            target.forward(torch.tensor([5]), cache)
            times.append(time.perf_counter() - began)
            cache.truncate(length)
        began = time.perf_counter()
        buffer.sum()
        reads.append(time.perf_counter() - began)
    return [times[1:] for times in steps], reads[1:]


if __name__ == "__main__":
    main()
