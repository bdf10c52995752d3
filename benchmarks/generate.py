"""Plain greedy decoding here and by transformers' generate: same weights, dtype, threads, prompts.

Prints, per context length, the median time per token of both, their ratio (above 1: faster here),
and whether both wrote the same text. The clock starts with the first token, so prefill is left out
of both; the two take turns.

    python benchmarks/generate.py
    python benchmarks/generate.py --contexts 512 --new-tokens 64
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch

from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.load import load_target
from hyflash_bench.targets.target import Target

TEXT = "Speculative decoding drafts tokens with a small model and lets the large one verify them. "


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--contexts", type=int, nargs="+", default=[512, 6000])
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    target = load_target(TargetSpec(target=arguments.target))
    print(f"{'context':>8} {'here ms':>8} {'theirs ms':>10} {'ratio':>6}  text")
    for context in arguments.contexts:
        tokens = target.tokenizer.encode(TEXT * (context // 8))[:context]
        prompt = torch.tensor(tokens)
        here, theirs = [], []
        for _ in range(arguments.repeats):
            ours, our_s = decode(target, prompt, arguments.new_tokens)
            others, other_s = generate(target.model, prompt, arguments.new_tokens)
            here.append(our_s / arguments.new_tokens)
            theirs.append(other_s / arguments.new_tokens)
        ours_s, others_s = statistics.median(here), statistics.median(theirs)
        same = "same" if ours == others else "different"
        print(f"{context:8} {ours_s * 1e3:8.1f} {others_s * 1e3:10.1f} {others_s / ours_s:6.2f}  {same}")


def decode(target: Target, prompt: torch.Tensor, new_tokens: int) -> tuple[list[int], float]:
    """Greedy text after the prompt, and the seconds of all tokens but the first."""
    cache = target.new_cache(len(prompt) + new_tokens)
    written = [int(target.prefill(prompt, cache).logits.argmax())]
    began = time.perf_counter()
    for _ in range(new_tokens):
        written.append(int(target.forward(torch.tensor(written[-1:]), cache).logits.argmax()))
    return written, time.perf_counter() - began


def generate(model: Any, prompt: torch.Tensor, new_tokens: int) -> tuple[list[int], float]:
    """The same by transformers, through a streamer that notes when the first token is there."""
    clock = FirstToken()
    with torch.inference_mode():
        out = model.generate(
            prompt[None],
            attention_mask=torch.ones_like(prompt[None]),
            max_new_tokens=new_tokens + 1,
            min_new_tokens=new_tokens + 1,
            do_sample=False,
            streamer=clock,
        )
    ended = time.perf_counter()
    return out[0, len(prompt) :].tolist(), ended - clock.first_s


class FirstToken:
    """A streamer that remembers the moment of the first new token."""

    def __init__(self) -> None:
        self.num_calls = 0
        self.first_s = 0.0

    def put(self, value: torch.Tensor) -> None:
        """Take the prompt, then one token a call."""
        self.num_calls += 1
        if self.num_calls == 2:
            self.first_s = time.perf_counter()

    def end(self) -> None:
        """Nothing to close."""


if __name__ == "__main__":
    main()
