"""Share of decode time that the live loop spends outside target and drafter passes.

Prints, per drafter and context length, decode seconds, the shares of drafting, verification and
observation, and what is left: the loop's own cost (the aim is under 3 %).
"""

from __future__ import annotations

import argparse
from statistics import median

import torch

from hyflash_bench.drafters.base import Features
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.engine.live import live_turn
from hyflash_bench.engine.steps import TurnResult
from hyflash_bench.registry import build_drafter
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.sampling import GREEDY
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.load import load_target
from hyflash_bench.targets.target import Target

TEXT = (
    "The harbour master kept two ledgers. In the first he wrote what came in, in the second what went out, "
    "and once a year he sat down by the window and tried to make the two agree. "
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--contexts", type=int, nargs="+", default=[512, 2048])
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    target = load_target(TargetSpec(target=arguments.target))
    print(f"{'drafter':<16}{'context':>8}{'decode_s':>10}{'draft':>8}{'verify':>8}{'observe':>8}{'loop':>8}")
    for context in arguments.contexts:
        for name in ("autoregressive", "prompt-lookup", "suffix"):
            turns = [_turn(target, name, context, arguments.new_tokens) for _ in range(arguments.repeats)]
            decode_s = median(turn.decode_s or 0.0 for turn in turns)
            shares = [median(column) for column in zip(*map(_shares, turns), strict=True)]
            cells = "".join(f"{share:>8.2%}" for share in (*shares, 1 - sum(shares)))
            print(f"{name:<16}{context:>8}{decode_s:>10.3f}{cells}")


def _turn(target: Target, name: str, context: int, new_tokens: int) -> TurnResult:
    words = target.tokenizer.encode(TEXT * (context // 20), add_special_tokens=False)[:context]
    prompt = torch.tensor(words)
    cache = target.new_cache(context + new_tokens + 32)
    first = target.prefill(prompt, cache)
    drafter = build_drafter(DrafterSpec.from_text(name))
    drafter.reset()
    return live_turn(
        target,
        cache,
        drafter,
        Sampler(GREEDY, 0),
        ingested=prompt,
        ingested_features=Features(),
        first_logits=first.logits.reshape(-1),
        budget=16,
        max_new_tokens=new_tokens,
        stop_tokens=(),
    )


def _shares(turn: TurnResult) -> tuple[float, float, float]:
    assert turn.decode_s is not None
    steps = turn.steps
    draft_s, verify_s, observe_s = sum(steps.draft_s), sum(steps.verify_s), sum(steps.observe_s)
    return draft_s / turn.decode_s, verify_s / turn.decode_s, observe_s / turn.decode_s


if __name__ == "__main__":
    main()
