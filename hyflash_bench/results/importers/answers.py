"""Answer files of Spec-Bench, FastChat and Medusa: a line for each question.

Spec-Bench lists the tokens of every step (bonus token included); Medusa and EAGLE give the index of a
turn's last step and its tokens, so that only sums are known. ``wall_time`` holds the prompt's pass too:
no decoding speed follows from it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from hyflash_bench.errors import DataError
from hyflash_bench.results.importers.base import Imported, Told, counts, rows_of, seconds
from hyflash_bench.results.records import ReportedTurn
from hyflash_bench.suites.formats.base import BadRow, Row

__all__ = ["is_answers", "read_answers"]

PLAIN = re.compile(r"(^|[-_/])(vanilla|baseline|autoregressive|naive)([-_/.]|$)", re.IGNORECASE)
_TEMPERATURE = re.compile(r"temperature-(\d+(?:\.\d+)?)")


def is_answers(row: Row) -> bool:
    """Whether a row looks like an answer."""
    return "question_id" in row.fields and isinstance(row.fields.get("choices"), list)


@dataclass(slots=True)
class _Choice:
    """One reply to a question: what it says of each turn."""

    question: str
    category: str | None
    index: int
    turns: list[dict[str, Any]]
    is_failed: bool
    wall_s: float
    num_tokens: int


def read_answers(path: Path) -> Imported:
    """Read an answer file.

    Raises:
        DataError: A line is wrong, or says nothing of steps.
    """
    found: dict[tuple[str, int], _Choice] = {}
    models: dict[str, None] = {}
    num_again = 0
    for where, row in rows_of(path):
        try:
            models[row.filled("model_id")] = None
            for choice in _choices(row):
                num_again += (choice.question, choice.index) in found
                found[choice.question, choice.index] = choice
        except BadRow as reason:
            raise DataError(f"{where}: {reason}. Correct the file.") from None
    if not found:
        raise DataError(f"{path} has no answers.")
    if len(models) > 1:
        raise DataError(f"{path} mixes the models {', '.join(models)}. Split the file by model_id.")
    model = next(iter(models))
    return _imported(list(found.values()), model, num_again)


def _choices(row: Row) -> list[_Choice]:
    question = row.name("question_id")
    if question is None:
        raise BadRow("key 'question_id' is missing")
    category = row.text("category", "") or None
    found = []
    for number, choice in enumerate(row.rows("choices")):
        said = choice.fields.get("turns")
        texts = said if isinstance(said, list) else []
        times = choice.fields.get("wall_time")
        known = [seconds(times, at) for at in range(len(times))] if isinstance(times, list) else []
        wall = sum(time for time in known if time is not None)
        tokens = counts(choice, "new_tokens") if choice.has("new_tokens") else []
        index = choice.fields.get("index", number)
        found.append(
            _Choice(
                question,
                category,
                index if isinstance(index, int) else number,
                _turns(choice, tokens),
                "ERROR" in texts,
                float(wall),
                sum(tokens),
            )
        )
    return found


def _turns(choice: Row, tokens: list[int]) -> list[dict[str, Any]]:
    """The turns of a reply; of each its steps, or its sums."""
    if choice.has("accept_lengths"):
        lengths = counts(choice, "accept_lengths")
        parts = counts(choice, "decoding_steps") if choice.has("decoding_steps") else [len(lengths)]
        if sum(parts) != len(lengths):
            # Which steps were whose is not told; together they still are the conversation's.
            return [{"turn": 0, "committed": lengths, "is_pooled": True}]
        ends = accumulate(parts, initial=0)
        return [
            {"turn": turn, "committed": lengths[begin:end]}
            for turn, (begin, end) in enumerate(pairwise(ends))
        ]
    if not (choice.has("idxs") and choice.has("new_tokens")):
        raise BadRow("neither accept_lengths nor idxs and new_tokens are in it: it says nothing of steps")
    indexes = counts(choice, "idxs")
    if len(indexes) != len(tokens):
        raise BadRow(f"{len(indexes)} idxs have {len(tokens)} new_tokens")
    for index, number in zip(indexes, tokens, strict=True):
        if number < index + 1:
            raise BadRow(f"{index + 1} steps gave {number} tokens; each gives at least one")
    return [
        {"turn": turn, "num_steps": index + 1, "num_committed": number}
        for turn, (index, number) in enumerate(zip(indexes, tokens, strict=True))
    ]


def _imported(choices: list[_Choice], model: str, num_again: int) -> Imported:
    has_steps = any("committed" in turn for choice in choices for turn in choice.turns)
    is_plain = PLAIN.search(model) is not None
    listed = [n for choice in choices for turn in choice.turns for n in turn.get("committed", ())]
    bonus = int(bool(listed) and min(listed) == 0)
    notes = [
        "decode_tok_per_s, ttft_s: null, since wall_time holds prefill and decoding together",
        "acceptance_rate, position_acceptance: null, since drafted tokens are not told",
        "memory: null, not told",
        "acceptance_length: steps cut by the token limit are not told apart and are counted; some methods "
        "count tokens behind the end of a reply in its last step",
    ]
    if not has_steps:
        notes.append("steps are idxs + 1, since idxs counts from 0; only sums are known")
    if bonus:
        notes.append(
            "one was added to every accept_length: a length of 0 shows that bonus tokens were left out"
        )
    if num_again:
        notes.append(f"{num_again} answers came up again (files are appended to); the last of each counts")
    failed = sum(choice.is_failed for choice in choices)
    if failed:
        notes.append(f"{failed} answers are ERROR; their numbers are another question's and are left out")
    told = [
        Told(
            choice.question,
            [] if choice.is_failed else [_turn(turn, bonus, is_plain) for turn in choice.turns],
            choice.category,
            "error" if choice.is_failed else "ok",
            "the file says ERROR" if choice.is_failed else None,
            choice.index,
        )
        for choice in choices
    ]
    stated = _TEMPERATURE.search(model)
    return Imported(
        format="spec-bench" if has_steps else "fastchat",
        conversations=told,
        drafter=model,
        temperature=float(stated[1]) if stated else None,
        is_plain=is_plain,
        notes=notes,
        reported=_speeds([choice for choice in choices if not choice.is_failed]),
    )


def _turn(known: dict[str, Any], bonus: int, is_plain: bool) -> ReportedTurn:
    if "committed" not in known:
        turn = ReportedTurn(**known)
        beyond = (turn.num_committed or 0) - (turn.num_steps or 0)
        return turn.model_copy(update={"num_accepted": beyond, "num_drafted": 0 if is_plain else None})
    committed = [length + bonus for length in known["committed"]]
    accepted = [length - 1 for length in committed]
    nothing = [0] * len(committed) if is_plain else None
    return ReportedTurn(
        turn=known["turn"],
        is_pooled=known.get("is_pooled", False),
        num_steps=len(committed),
        num_drafted=0 if is_plain else None,
        num_accepted=sum(accepted),
        num_committed=sum(committed),
        drafted=nothing,
        depth=nothing,
        accepted=accepted,
        committed=committed,
    )


def _speeds(choices: list[_Choice]) -> dict[str, Any]:
    """Tokens per second of wall time, prompt included: the speed that these benchmarks publish."""
    timed = [choice for choice in choices if choice.wall_s > 0]
    if not timed:
        return {}
    pooled = sum(choice.num_tokens for choice in timed) / sum(choice.wall_s for choice in timed)
    mean = sum(choice.num_tokens / choice.wall_s for choice in timed) / len(timed)
    return {"wall_tok_per_s": pooled, "wall_tok_per_s_mean_over_questions": mean}
