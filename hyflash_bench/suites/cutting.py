"""Cuts a text so that a whole prompt has exactly as many tokens as asked for.

Nothing is padded. A prompt is a frame around an excerpt, and the excerpt begins and ends where a
sentence or a line does. Three things may vary: where the excerpt ends, which of a few phrasings
frames it, and, by a sentence or two, where it begins (or the other way round for excerpts that
grow backwards). The pieces are tokenised once; sums of their counts say which choices should fit,
and only those few are tokenised as the target will read them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from typing import Literal

from hyflash_bench.errors import DataError
from hyflash_bench.suites.chat import ChatTokenizer

__all__ = [
    "MAX_CHARS_PER_TOKEN",
    "Cut",
    "Frame",
    "Grow",
    "cut_exactly",
    "excerpt",
    "phrasings",
    "split_lines",
    "split_sentences",
]

Grow = Literal["forward", "backward"]
Frame = Callable[[Sequence[str]], str]
"""Makes the user's message from the pieces of an excerpt."""

MAX_CHARS_PER_TOKEN = 8
MAX_CHECKS = 200

_ABBREVIATIONS = ("e.g", "i.e", "etc", "vs", "Mr", "Mrs", "Dr", "St")
_NO_ABBREVIATION = "".join(rf"(?<!\b{re.escape(short)}\.)" for short in _ABBREVIATIONS)
_SENTENCE_END = re.compile(
    rf"(?<=[.!?:]){_NO_ABBREVIATION}(?=\s+[^\sa-z])"
    rf"|(?<=[.!?]['\"`)*\u201d\u2019])(?=\s+[^\sa-z])"
    r"|(?<=\S)(?=[ \t]*\n[ \t]*\n)"
)
_LINE_END = re.compile(r"(?<=\S)(?=[ \t]*\n)")


@dataclass(frozen=True, slots=True)
class Cut:
    """The pieces ``first`` to ``last`` (exclusive) in a frame: a prompt of the asked length."""

    text: str
    first: int
    last: int


def split_sentences(text: str) -> list[str]:
    """Pieces that end with a sentence or a paragraph; each begins with the space before it."""
    return _split(text, _SENTENCE_END)


def split_lines(text: str) -> list[str]:
    """Lines that hold something; each begins with the line ends before it."""
    return _split(text, _LINE_END)


def _split(text: str, boundary: re.Pattern[str]) -> list[str]:
    return [piece for piece in boundary.split(text.rstrip()) if piece.strip()]


def phrasings(template: str) -> list[str]:
    """All wordings of a template such as ``[Read|Here is] a page[.|:]``, in a fixed order."""
    parts = re.split(r"\[([^\[\]]*\|[^\[\]]*)\]", template)
    choices = [part.split("|") if index % 2 else [part] for index, part in enumerate(parts)]
    return ["".join(chosen) for chosen in product(*choices)]


def cut_exactly(
    chat: ChatTokenizer,
    num_tokens: int,
    pieces: Sequence[str],
    frames: Sequence[Frame],
    *,
    anchors: Sequence[int],
    grow: Grow,
    where: str,
) -> Cut:
    """Find an excerpt and a frame whose prompt has exactly ``num_tokens`` tokens.

    Args:
        chat: The target's tokenizer; its chat template is counted.
        num_tokens: Length of the prompt.
        pieces: The text, from :func:`split_sentences` or :func:`split_lines`.
        frames: Phrasings, the preferred one first.
        anchors: Where the excerpt may begin (``forward``) or end (``backward``, exclusive),
            the preferred place first.
        grow: Which side of the excerpt moves.
        where: What is being cut, for messages.

    Raises:
        DataError: The text is too short, or no choice fits (more phrasings would help).
    """
    window = _Window(chat, pieces, anchors, grow, num_tokens)
    checks = 0
    costs = [window.overhead(frame) for frame in frames]
    if window.total + min(costs) < num_tokens:
        raise DataError(
            f"{where}: the text is too short for a prompt of {num_tokens:,} tokens; about "
            f"{window.total + min(costs):,} is the most. Add neighbours to the document or leave "
            "this context length out."
        )
    for slip in (0, 1, -1, 2, -2):
        for anchor in anchors:
            for frame, cost in zip(frames, costs, strict=True):
                span = window.span(anchor, num_tokens - cost + slip)
                if span is None or checks == MAX_CHECKS:
                    continue
                checks += 1
                text = frame(pieces[span[0] : span[1]])
                if len(chat.first_turn(text)) == num_tokens:
                    return Cut(text, *span)
    raise DataError(
        f"{where}: no excerpt gives exactly {num_tokens:,} tokens with this tokenizer "
        f"({checks} candidates tried). Offer more phrasings in the suite file."
    )


def excerpt(pieces: Sequence[str]) -> str:
    """The pieces as running text; of the space before the first only its indentation stays."""
    text = "".join(pieces)
    before = text[: len(text) - len(text.lstrip())]
    indentation = before.rpartition("\n")[2] if "\n" in before else ""
    return indentation + text.strip()


class _Window:
    """Token counts of the pieces that an excerpt can reach from its anchors."""

    def __init__(
        self,
        chat: ChatTokenizer,
        pieces: Sequence[str],
        anchors: Sequence[int],
        grow: Grow,
        num_tokens: int,
    ) -> None:
        self._chat = chat
        self._pieces = pieces
        self._grow = grow
        budget = num_tokens * MAX_CHARS_PER_TOKEN
        if grow == "forward":
            self._low = min(anchors)
            self._high = self._low + _reach(pieces[self._low :], budget)
        else:
            self._high = max(anchors)
            self._low = self._high - _reach(reversed(pieces[: self._high]), budget)
        inside = pieces[self._low : self._high]
        self._counts = chat.count(inside)
        # The first piece of an excerpt loses the space before it.
        self._bare = chat.count([excerpt([piece]) for piece in inside])
        self._sums = [0, *accumulate(self._counts)]
        self.total = self._sums[-1]
        if grow == "forward":
            self._place = {total: index for index, total in enumerate(self._sums)}
        else:
            self._place = {
                self._sums[index] + count - bare: index
                for index, (count, bare) in enumerate(
                    zip(self._counts, self._bare, strict=True)
                )
            }

    def overhead(self, frame: Frame) -> int:
        """Tokens that the frame and the chat template add."""
        sample = self._pieces[self._low : self._high][:8]
        counted = self._bare[0] + sum(self._counts[1 : len(sample)])
        return len(self._chat.first_turn(frame(sample))) - counted

    def span(self, anchor: int, num_tokens: int) -> tuple[int, int] | None:
        """Pieces from or up to the anchor that count ``num_tokens`` together."""
        fixed = anchor - self._low
        if self._grow == "forward":
            skipped = self._sums[fixed] + self._counts[fixed] - self._bare[fixed]
            moving = self._place.get(num_tokens + skipped)
            if moving is None or moving <= fixed:
                return None
            return anchor, self._low + moving
        moving = self._place.get(self._sums[fixed] - num_tokens)
        if moving is None or moving >= fixed:
            return None
        return self._low + moving, anchor


def _reach(pieces: Iterator[str] | Sequence[str], budget: int) -> int:
    """How many pieces it takes to fill the budget of characters."""
    number = chars = 0
    for piece in pieces:
        number += 1
        chars += len(piece)
        if chars > budget:
            break
    return number
