"""Checks a suite as its author needs it: everything that is wrong, not only the first thing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hyflash_bench.errors import HyFlashError
from hyflash_bench.suites.catalog import load_suite
from hyflash_bench.suites.chat import ChatTokenizer
from hyflash_bench.suites.conversation import Conversation, Item
from hyflash_bench.suites.datafiles.choice import DataFiles
from hyflash_bench.suites.scoring import score
from hyflash_bench.suites.sources import Progress
from hyflash_bench.suites.suite import Suite

__all__ = ["Finding", "validate_suite"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    Attributes:
        level: An ``error`` makes the suite or an item unusable; a ``warning`` does not.
        where: The suite, source or item.
        message: What is wrong and how to put it right.
    """

    level: Literal["error", "warning"]
    where: str
    message: str


def validate_suite(
    name_or_path: str | Path,
    tokenizer: ChatTokenizer | None = None,
    progress: Progress | None = None,
    data: DataFiles | None = None,
) -> list[Finding]:
    """Check the file, its sources and, with a tokenizer, every conversation.

    Args:
        name_or_path: See :func:`~hyflash_bench.suites.load_suite`.
        tokenizer: Of the target that exact lengths are checked with; None checks no texts.
        progress: Called with one line about each step that takes time.
        data: Files of a data set, for suites that read one.

    Returns:
        What is wrong; an empty list if nothing is.
    """
    try:
        suite = load_suite(name_or_path, data)
        items = suite.items()
        _ = suite.suite_hash
    except HyFlashError as error:
        return [Finding("error", str(name_or_path), str(error))]
    findings = list(_card(suite))
    if not items:
        findings.append(Finding("error", suite.name, "The suite has no conversations."))
    try:
        suite.prepare(progress)
    except HyFlashError as error:
        return [*findings, Finding("error", suite.name, str(error))]
    if tokenizer is not None:
        for number, item in enumerate(items, start=1):
            if progress is not None:
                progress(f"Building {number} of {len(items)}: {item.item_id}")
            findings += _built(suite, item, tokenizer)
    return findings


def _card(suite: Suite) -> Iterator[Finding]:
    card = suite.path.with_suffix(".md")
    if not card.is_file():
        yield Finding("warning", suite.name, f"It has no card. Write one: {card.name}.")


def _built(suite: Suite, item: Item, tokenizer: ChatTokenizer) -> Iterator[Finding]:
    try:
        built = suite.build(item, tokenizer)
        again = suite.build(item, tokenizer)
    except HyFlashError as error:
        yield Finding("error", item.item_id, str(error))
        return
    if built != again:
        yield Finding("error", item.item_id, "Two builds differ; its builder is not deterministic.")
    if len(built.turns) != item.num_turns:
        yield Finding(
            "error", item.item_id, f"{len(built.turns)} turns were built, {item.num_turns} planned."
        )
    yield from _length(built, tokenizer)
    yield from _answers(built)


def _length(built: Conversation, tokenizer: ChatTokenizer) -> Iterator[Finding]:
    wanted = built.item.context_length
    found = len(tokenizer.first_turn(built.turns[0].text, built.system))
    if wanted is not None and found != wanted:
        yield Finding("error", built.item.item_id, f"The prompt has {found:,} tokens, not {wanted:,}.")


def _answers(built: Conversation) -> Iterator[Finding]:
    """A prompt without its own answer cannot be answered."""
    for turn in built.turns:
        if turn.expected is None or turn.expected.rule != "contains_all":
            continue
        if score(turn.expected, turn.text) < 1.0:
            wanted = ", ".join(turn.expected.answers)
            yield Finding("error", built.item.item_id, f"The prompt does not hold its own answer ({wanted}).")
