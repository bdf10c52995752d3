"""Tasks with a known answer: GSM8K, HumanEval."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hyflash_bench.suites.conversation import Expected, UserTurn
from hyflash_bench.suites.formats.base import BadRow, Entry, Format, Row

__all__ = ["FORMATS"]


def _gsm8k(row: Row) -> Sequence[Entry]:
    solution = row.filled("answer")
    found = re.search(r"####\s*(-?[\d,]*\.?\d+)", solution)
    if found is None:
        raise BadRow("key 'answer' does not end with #### and a number")
    expected = Expected("last_number", (found[1].replace(",", ""),))
    text = f"{row.filled('question')}\n\nThink step by step. End with the answer as a number."
    return [Entry((UserTurn(text, expected),), category="maths")]


def _humaneval(row: Row) -> Sequence[Entry]:
    """Not scored: that would mean to run what a model wrote."""
    program = row.filled("prompt").strip("\n")
    text = f"Complete this Python function. Reply with the code only.\n\n```python\n{program}\n```"
    return [Entry((UserTurn(text),), row.name("task_id"), category="code")]


FORMATS = (
    Format("gsm8k", "question, answer ending with #### and a number", _gsm8k),
    Format("humaneval", "task_id, prompt, entry_point, canonical_solution, test", _humaneval),
)
