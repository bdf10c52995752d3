"""What it gains to take requests of lm-eval together.

A task of one's own (a folder with YAML and JSON lines, made here) is asked three ways, in turns in one
process: every request alone from an empty cache, one by one with the cache cut back to what the next
request shares, and together. Prints for each the median processor time, its ratio to the first, the passes
of the target with the rows of all of them, and the score, which must be the same.

    python benchmarks/quality.py
    python benchmarks/quality.py --num-fewshot 0 --repeats 5
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hyflash_bench.drafters.base import Drafter
from hyflash_bench.integrations.likelihood import Likelihood, Scored
from hyflash_bench.integrations.model import ReplyLM
from hyflash_bench.integrations.prompts import Prompt
from hyflash_bench.integrations.replies import Replies
from hyflash_bench.integrations.tasks import TaskRequest, hushed, load_tasks, reseed
from hyflash_bench.registry import build_drafter
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.load import load_target
from hyflash_bench.targets.target import Target

QUESTIONS = """
Where does bread get its holes from?|from gas that yeast makes|from stirred air|from salt that melts
What makes the sea rise and fall?|the pull of the moon|the wind from the land|the heat of the sun at noon
Why do leaves look green?|they send green light back|they take green light in|they hold copper from the soil
What does a compass needle point to?|the magnetic north|the nearest city|the highest hill|the rising sun
How does a bat find its way in the dark?|by the echo of its calls|by the light of the stars|by the smell
What is glass mostly made of?|sand that was melted|ice that was pressed|wood that was burnt|frozen water
What do bees bring home from flowers?|nectar and pollen|water and salt|petals and stems|seeds and leaves
What does a thermometer measure?|how warm something is|how heavy something is|how old something is
What turns milk into cheese?|rennet and time|sugar and flour|boiling it dry|adding cold water
Why do we see lightning before thunder?|light is faster|the thunder comes later|sound goes round clouds
What is a desert short of?|rain|sand|wind|sunshine
Why does a boat of iron float?|it pushes away much water|iron is lighter than water|the paint holds it up
What does a baker put into an oven?|dough|smoke|stones|a bell
Which season follows winter?|spring|autumn|the rainy season|summer
Why does a wet towel dry in the wind?|the water goes into the air|the wind is warm|the cloth drinks it
What do you need to see yourself in a lake?|still water and light|deep water and wind|fish near the bank
How do seeds travel far from a tree?|by wind, water and animals|by growing long roots|by rolling uphill
What keeps a tent from flying away?|pegs in the ground|the colour of the cloth|an open door|a lamp
"""
"""Question and answers, the first of them right; the last ones are examples."""
NUM_EXAMPLES = 10
CHOICE = """
task: choice
output_type: multiple_choice
dataset_path: json
dataset_kwargs: {data_files: {test: FOLDER/test.jsonl, train: FOLDER/train.jsonl}}
test_split: test
fewshot_split: train
fewshot_config: {sampler: first_n}
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_choice: "{{answers}}"
doc_to_target: 0
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
metadata: {version: 1.0}
"""
WRITTEN = """
task: written
output_type: generate_until
dataset_path: json
dataset_kwargs: {data_files: {test: FOLDER/test.jsonl, train: FOLDER/train.jsonl}}
test_split: test
fewshot_split: train
fewshot_config: {sampler: first_n}
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: "{{answers[0]}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 8}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
metadata: {version: 1.0}
"""


class Alone(Likelihood):
    """Forgets everything after each request."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._of = target

    def score(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Iterator[tuple[int, Scored]]:
        """One by one."""
        for index, pair in enumerate(pairs):
            ((_, scored),) = Likelihood(self._of, batch_size=1).score([pair])
            yield index, scored


class AloneReplies(Replies):
    """Forgets everything after each request."""

    def answer(self, drafter: str, prompts: Sequence[Prompt]) -> Iterator[tuple[int, str]]:
        """One by one."""
        for index, prompt in enumerate(prompts):
            ((_, text),) = Replies(self.target, self.drafters).answer(drafter, [prompt])
            yield index, text


class Counted:
    """Counts passes and rows of a target."""

    def __init__(self, target: Target) -> None:
        self.passes = self.rows = 0
        append = target._append

        def counted(tokens: Any, *rest: Any) -> Any:
            self.passes += 1
            self.rows += len(tokens)
            return append(tokens, *rest)

        target._append = counted  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--num-fewshot", type=int, nargs="+", default=[0, NUM_EXAMPLES])
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    target = load_target(TargetSpec(target=arguments.target))
    drafter = build_drafter(DrafterSpec(name="autoregressive"))
    drafter.load(target.load_context())
    counted = Counted(target)
    print("    task examples   requests   cpu s  ratio  passes    rows  score")
    with tempfile.TemporaryDirectory() as folder:
        write_tasks(Path(folder))
        for task in ("choice", "written"):
            for num_fewshot in arguments.num_fewshot:
                tasks = load_tasks(
                    TaskRequest((task,), (Path(folder),), num_fewshot=num_fewshot), target.tokenizer, None
                )
                measure(target, {"autoregressive": drafter}, tasks, counted, arguments.repeats, num_fewshot)


def measure(
    target: Target,
    drafters: dict[str, Drafter],
    tasks: dict[str, Any],
    counted: Counted,
    repeats: int,
    num_fewshot: int,
) -> None:
    """Print a row for each way, all ways in turns."""
    from lm_eval.evaluator import evaluate

    (task,) = tasks["tasks"]
    ways = {
        "alone": lambda: (AloneReplies(target, drafters), Alone(target)),
        "one by one": lambda: (Replies(target, drafters), Likelihood(target, batch_size=1)),
        "together": lambda: (Replies(target, drafters), Likelihood(target)),
    }
    if task == "written":
        del ways["together"]  # replies are written one after the other
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    seen: dict[str, tuple[int, int, float]] = {}
    for _ in range(repeats + 1):
        for way, make in ways.items():
            model = ReplyLM(*make(), "autoregressive")
            reseed(tasks["tasks"].values(), 0)
            passes, rows, began = counted.passes, counted.rows, time.process_time()
            with hushed():
                found = evaluate(model, tasks, bootstrap_iters=0, log_samples=False)
            seconds[way].append(time.process_time() - began)
            score = next(value for key, value in found["results"][task].items() if key.endswith(",none"))
            seen[way] = counted.passes - passes, counted.rows - rows, score
    first = statistics.median(seconds["alone"][1:])
    for way, (passes, rows, score) in seen.items():
        median = statistics.median(seconds[way][1:])
        print(
            f"{task:>8} {num_fewshot:8} {way:>10} {median:7.2f} {median / first:6.2f} {passes:7} {rows:7} "
            f"{score:6.3f}"
        )


def write_tasks(folder: Path) -> None:
    """YAML and JSON lines."""
    rows = [line.split("|") for line in QUESTIONS.strip().splitlines()]
    lines = [json.dumps({"question": question, "answers": answers}) + "\n" for question, *answers in rows]
    (folder / "test.jsonl").write_text("".join(lines[:-NUM_EXAMPLES]))
    (folder / "train.jsonl").write_text("".join(lines[-NUM_EXAMPLES:]))
    for name, text in (("choice", CHOICE), ("written", WRITTEN)):
        (folder / f"{name}.yaml").write_text(text.replace("FOLDER", str(folder)))


if __name__ == "__main__":
    main()
