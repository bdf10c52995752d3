"""What replaying six cheap drafters over a suite costs beside tracing it.

Prints the seconds of tracing alone and of tracing with six replays, and their ratio (the aim is at
most 1.6), as the median over repetitions in one process.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

from hyflash_bench.registry import build_drafter
from hyflash_bench.runner.conversation import ConversationRunner
from hyflash_bench.runner.work import Work, WorkCell
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.sampling import GREEDY
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.suites.catalog import load_suite
from hyflash_bench.suites.chat import ChatTokenizer
from hyflash_bench.targets.load import load_target

DRAFTERS = (
    "prompt-lookup",
    "prompt-lookup:max_ngram=2",
    "prompt-lookup:match=first",
    "suffix",
    "suffix:max_depth=16",
    "suffix:tree=true",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--suite", default="quick")
    parser.add_argument("--limit", type=int, default=None, help="conversations per task")
    parser.add_argument("--repeats", type=int, default=1)
    arguments = parser.parse_args()
    target = load_target(TargetSpec(target=arguments.target))
    chat = ChatTokenizer(target.tokenizer)
    suite = load_suite(arguments.suite)
    suite.prepare()
    items = suite.items(limit=arguments.limit)

    def seconds(labels: tuple[str, ...]) -> float:
        specs = [DrafterSpec.from_text(label) for label in labels]
        drafters = {spec.label: build_drafter(spec) for spec in specs}
        for drafter in drafters.values():
            drafter.load(target.load_context())
        runner = ConversationRunner(target, drafters, lambda event: None)
        started = time.perf_counter()
        for item in items:
            runner.run(_work(suite.spec.name, item.item_id, specs), suite.build(item, chat))
        return time.perf_counter() - started

    def _work(name: str, item_id: str, specs: list[DrafterSpec]) -> Work:
        return Work(
            trace_id="bench",
            suite=name,
            item_id=item_id,
            sampling=GREEDY,
            seed=0,
            max_new_tokens=suite.spec.max_new_tokens,
            draft_budget=16,
            mode="replay",
            cells=tuple(
                WorkCell(cell_id=spec.label, drafter=spec, memory_cap_bytes=None, repeat=0) for spec in specs
            ),
        )

    alone, with_six = [], []
    for _ in range(arguments.repeats):
        alone.append(seconds(("autoregressive",)))
        with_six.append(seconds(DRAFTERS))
    print(f"{len(items)} conversations of {suite.spec.name}")
    print(f"trace with the reference alone {median(alone):.1f} s, with six drafters {median(with_six):.1f} s")
    print(f"ratio {median(with_six) / median(alone):.2f}")


if __name__ == "__main__":
    main()
