"""Peak memory of tracing a long context, beside weights and KV cache.

Prints the process's peak resident bytes before and after, and the peak less weights and KV
(the aim at 8k on the default target is under 1.5 GiB).
"""

from __future__ import annotations

import argparse
import resource

import torch

from hyflash_bench.drafters.base import Requires
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.engine.prefix import Prefix
from hyflash_bench.engine.trace import trace_conversation
from hyflash_bench.spec.sampling import GREEDY
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.spec.units import format_bytes
from hyflash_bench.targets.load import load_target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--context", type=int, default=8000)
    parser.add_argument("--new-tokens", type=int, default=64)
    arguments = parser.parse_args()
    target = load_target(TargetSpec(target=arguments.target))
    loaded = _peak_bytes()
    generator = torch.Generator().manual_seed(0)
    prompt = torch.randint(0, target.info.vocab_size, (arguments.context,), generator=generator).tolist()
    prefix = Prefix(target)
    prefix.reserve(arguments.context + arguments.new_tokens)
    trace = trace_conversation(
        target,
        prefix,
        lambda turn, ended: prompt,
        1,
        Sampler(GREEDY, 0),
        max_new_tokens=arguments.new_tokens,
        stop_tokens=(),
        requires=Requires(taps=(target.info.num_layers // 2,), last_hidden=True),
    )
    peak = _peak_bytes()
    owed = target.info.weight_bytes + prefix.cache.bytes()
    print(f"peak after loading       {format_bytes(loaded)}")
    print(f"peak after {arguments.context} + {trace.turns[0].num_tokens} tokens {format_bytes(peak)}")
    print(f"weights + KV             {format_bytes(owed)}")
    print(f"features held            {format_bytes(trace.held_bytes())}")
    print(f"peak - weights - KV      {format_bytes(peak - owed)}")


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
