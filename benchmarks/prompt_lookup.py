"""Our live prompt lookup against transformers' assisted generation with prompt lookup.

Same weights, dtype, threads, prompts and number of draft tokens; interleaved in one process; greedy.
Prints per prompt the median tokens/s of both, their ratio (above 1: ours is faster) and whether the
texts are equal.
"""

from __future__ import annotations

import argparse
import time
from statistics import median
from typing import Any

import torch

from hyflash_bench.drafters.base import Features
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.engine.live import live_turn
from hyflash_bench.registry import build_drafter
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.sampling import GREEDY
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.suites.catalog import load_suite
from hyflash_bench.suites.chat import ChatTokenizer
from hyflash_bench.targets.load import load_target
from hyflash_bench.targets.target import Target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--suite", default="quick")
    parser.add_argument("--limit", type=int, default=2, help="conversations per task")
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--draft-tokens", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    target = load_target(TargetSpec(target=arguments.target))
    chat = ChatTokenizer(target.tokenizer)
    suite = load_suite(arguments.suite)
    suite.prepare()
    ratios = []
    print(f"{'conversation':<52}{'tokens':>7}{'ours':>8}{'theirs':>8}{'ratio':>7}  same text")
    for item in suite.items(limit=arguments.limit):
        conversation = suite.build(item, chat)
        prompt = torch.tensor(chat.first_turn(conversation.turns[0].text, conversation.system))
        ours, theirs, same = [], [], True
        for _ in range(arguments.repeats):
            mine, mine_s = _ours(target, prompt, arguments.new_tokens, arguments.draft_tokens)
            other, other_s = _theirs(target, prompt, arguments.new_tokens, arguments.draft_tokens)
            ours.append(len(mine) / mine_s)
            theirs.append(len(other) / other_s)
            same = same and mine == other
        ratio = median(ours) / median(theirs)
        ratios.append(ratio)
        print(
            f"{item.item_id:<52}{len(mine):>7}{median(ours):>8.1f}{median(theirs):>8.1f}{ratio:>7.2f}  {same}"
        )
    print(f"median ratio {median(ratios):.2f}")


def _ours(
    target: Target, prompt: torch.Tensor, new_tokens: int, draft_tokens: int
) -> tuple[list[int], float]:
    """Reply and seconds, prefill included (theirs cannot be told apart)."""
    options = f"prompt-lookup:max_ngram=2,match=first,num_draft_tokens={draft_tokens}"
    drafter = build_drafter(DrafterSpec.from_text(options))
    drafter.reset()
    started = time.perf_counter()
    cache = target.new_cache(len(prompt) + new_tokens + draft_tokens + 2)
    first = target.prefill(prompt, cache)
    turn = live_turn(
        target,
        cache,
        drafter,
        Sampler(GREEDY, 0),
        ingested=prompt,
        ingested_features=Features(),
        first_logits=first.logits.reshape(-1),
        budget=draft_tokens,
        max_new_tokens=new_tokens,
        stop_tokens=frozenset(target.info.eos_token_ids),
    )
    return turn.tokens, time.perf_counter() - started


def _theirs(
    target: Target, prompt: torch.Tensor, new_tokens: int, draft_tokens: int
) -> tuple[list[int], float]:
    model: Any = target.model
    started = time.perf_counter()
    with torch.inference_mode():
        output = model.generate(
            prompt[None],
            attention_mask=torch.ones_like(prompt[None]),
            max_new_tokens=new_tokens,
            do_sample=False,
            prompt_lookup_num_tokens=draft_tokens,
            max_matching_ngram_size=2,
        )
    return output[0, len(prompt) :].tolist(), time.perf_counter() - started


if __name__ == "__main__":
    main()
