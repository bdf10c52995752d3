"""Tasks and a drafter of one's own, as files in a folder."""

from __future__ import annotations

from pathlib import Path

__all__ = ["write"]

TASKS = {
    "make.py": """
import datasets

def words(**metadata):
    rows = [{"q": f"one two three one two {n}", "a": "one"} for n in range(4)]
    return {"test": datasets.Dataset.from_list(rows)}

def perplexity(doc, results):
    return {"word_perplexity": (results[0], len(doc["q"].split()))}
""",
    "words.yaml": """
task: own_words
output_type: generate_until
custom_dataset: !function make.words
dataset_path: ""
test_split: test
doc_to_text: "{{q}} one two"
doc_to_target: "{{a}}"
generation_kwargs: {until: ["three", "\\n"], max_gen_toks: 24}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
metadata: {version: 1.0}
""",
    "choice.yaml": """
task: own_choice
output_type: multiple_choice
custom_dataset: !function make.words
dataset_path: ""
test_split: test
doc_to_text: "{{q}}"
doc_to_choice: [" one", " two"]
doc_to_target: 0
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
metadata: {version: 1.0}
""",
    "shots.yaml": """
task: own_shots
output_type: generate_until
custom_dataset: !function make.words
dataset_path: ""
test_split: test
fewshot_split: test
num_fewshot: 2
doc_to_text: "{{q}}"
doc_to_target: "{{a}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 8}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
metadata: {version: 1.0}
""",
    "perplexity.yaml": """
task: own_perplexity
output_type: loglikelihood_rolling
custom_dataset: !function make.words
dataset_path: ""
test_split: test
doc_to_text: ""
doc_to_target: "{{q}}"
process_results: !function make.perplexity
metric_list: [{metric: word_perplexity}]
metadata: {version: 1.0}
""",
    "remote.yaml": """
task: own_remote
output_type: generate_until
dataset_path: nobody/nothing-of-that-name
test_split: test
doc_to_text: "{{q}}"
doc_to_target: "{{a}}"
metadata: {version: 1.0}
""",
}
BROKEN = """
from hyflash_bench import Drafter

class Broken(Drafter):
    name = "broken"
    def reset(self): pass
    def observe(self, tokens, features): pass
    def memory(self): return []
    def draft(self, last_token, budget, sampler, along=None): raise RuntimeError("no more drafts")
"""


def write(folder: Path) -> None:
    """Tasks go to ``tasks``, the drafter beside it."""
    (folder / "tasks").mkdir()
    for name, text in TASKS.items():
        (folder / "tasks" / name).write_text(text)
    (folder / "broken.py").write_text(BROKEN)
