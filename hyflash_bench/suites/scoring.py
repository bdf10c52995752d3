"""How right a reply is, by the rule that its turn names."""

from __future__ import annotations

import re

from hyflash_bench.suites.conversation import Expected

__all__ = ["score"]


def score(expected: Expected, reply: str) -> float:
    """Score a reply from 0 to 1.

    Args:
        expected: The rule and the answers.
        reply: What the target said.
    """
    if not expected.answers:
        return 0.0
    if expected.rule == "contains_all":
        found = sum(_contains(reply, answer) for answer in expected.answers)
        return found / len(expected.answers)
    if expected.rule == "contains_any":
        return float(any(_contains(reply, answer) for answer in expected.answers))
    if expected.rule == "choice":
        named = re.search(r"(?<![\w'])[A-D](?![\w'])", reply)
        return float(named is not None and named[0] in expected.answers)
    if expected.rule == "last_number":
        return float(_last_number(reply) in [_value(answer) for answer in expected.answers])
    return _f1(_words(reply) - _AROUND, {answer.casefold() for answer in expected.answers})


def _last_number(reply: str) -> float | None:
    """The last number of the reply, thousands separated by commas or not."""
    numbers = re.findall(r"(?:(?<![\w.])-)?\d[\d,]*(?:\.\d+)?", reply)
    return _value(numbers[-1]) if numbers else None


def _value(number: str) -> float:
    return float(number.replace(",", ""))


def _contains(reply: str, answer: str) -> bool:
    """Whether the answer stands in the reply by itself: 12 is not in 4123."""
    pattern = rf"(?<!\w){re.escape(answer.casefold())}(?!\w)"
    return re.search(pattern, reply.casefold()) is not None


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+(?:[-']\w+)*", text.casefold()))


def _f1(named: set[str], wanted: set[str]) -> float:
    hits = len(named & wanted)
    if hits == 0:
        return 0.0
    precision, recall = hits / len(named), hits / len(wanted)
    return 2 * precision * recall / (precision + recall)


# Words that a reply may use around its answer without having named them.
_AROUND = _words(
    """
    a an and answer are as be the their they these to in is it its list of on or that them
    there this three two one was were with words word names name
    """
)
