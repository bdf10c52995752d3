"""Cuts a text so that a whole prompt has exactly as many tokens as asked for.

Nothing is padded. A prompt is a frame around an excerpt, and the excerpt begins and ends where a
sentence or a line does. Three things may vary: where the excerpt ends, which of a few phrasings
frames it, and, by a sentence or two, where it begins (or the other way round for excerpts that
grow backwards). The pieces are tokenised once; sums of their counts say which choices should fit,
and only those few are tokenised as the target will read them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from typing import Literal, NamedTuple

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
_LONG = 300
# Tokens by which a phrasing may cost another number than around the short excerpt it was measured
# with, and how many phrasings are tried around one excerpt.
_SHIFT = 1
_TRIES = 4

_ABBREVIATIONS = ("e.g", "i.e", "etc", "vs", "Mr", "Mrs", "Dr", "St")
_NO_ABBREVIATION = "".join(rf"(?<!\b{re.escape(short)}\.)" for short in _ABBREVIATIONS)
_SENTENCE_END = re.compile(
    rf"(?<=[.!?:]){_NO_ABBREVIATION}(?=\s+[^\sa-z])"
    rf"|(?<=[.!?]['\"`)*\u201d\u2019])(?=\s+[^\sa-z])"
    r"|(?<=\S)(?=[ \t]*\n[ \t]*\n)"
)
_LINE_END = re.compile(r"(?<=\S)(?=[ \t]*\n)")


class Span(NamedTuple):
    """Pieces ``first`` to ``last`` (exclusive)."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Cut:
    """The pieces ``first`` to ``last`` (exclusive) in a frame: a prompt of the asked length."""

    text: str
    first: int
    last: int


def split_sentences(text: str) -> list[str]:
    """Pieces that end with a sentence or a paragraph; each begins with the space before it.

    A long piece, such as a table, is split at its line ends.
    """
    pieces = _split(text, _SENTENCE_END)
    return [
        part for piece in pieces for part in (_split(piece, _LINE_END) if len(piece) > _LONG else [piece])
    ]


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
    costs = window.costs(frames)
    if window.total + max(costs) < num_tokens:
        raise DataError(
            f"{where}: the text is too short for a prompt of {num_tokens:,} tokens; about "
            f"{window.total + max(costs):,} is the most. Add neighbours to the document or leave "
            "this context length out."
        )

    def length(text: str) -> int:
        return len(chat.first_turn(text))

    low, high = num_tokens - max(costs), num_tokens - min(costs)
    for anchor in anchors:
        bodies: dict[Span, int] = {}
        shift = 0
        while True:
            fresh = [s for s in window.spans(anchor, low - shift, high - shift) if s not in bodies]
            for span in fresh:
                inside = pieces[slice(*span)]
                bodies[span] = length(frames[0](inside)) - costs[0]
                for frame in _nearest(frames, costs, num_tokens - bodies[span])[:_TRIES]:
                    text = frame(inside)
                    if length(text) == num_tokens:
                        return Cut(text, *span)
            if not fresh:
                break
            # Some tokenizers join across pieces, or put a space before each: look where they lead.
            shift = bodies[fresh[0]] - window.estimate(fresh[0])
    raise DataError(
        f"{where}: no excerpt gives exactly {num_tokens:,} tokens with this tokenizer. "
        "Offer phrasings of more different lengths in the suite file."
    )


def _nearest(frames: Sequence[Frame], costs: Sequence[int], wanted: int) -> list[Frame]:
    """Frames of about the wanted cost, the nearest first: where words meet, counts may shift."""
    off = [abs(cost - wanted) for cost in costs]
    order = sorted(range(len(frames)), key=lambda index: off[index])
    return [frames[index] for index in order if off[index] <= _SHIFT]


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
        self._sums = [0, *accumulate(self._counts)]
        self.total = self._sums[-1]

    def costs(self, frames: Sequence[Frame]) -> list[int]:
        """Tokens that each frame, with the chat template, adds to an excerpt."""
        sample = Span(self._low, min(self._low + 2, self._high))
        texts = [frame(self._pieces[slice(*sample)]) for frame in frames]
        counts = self._chat.count(texts)
        template = len(self._chat.first_turn(texts[0])) - counts[0]
        return [count + template - self.estimate(sample) for count in counts]

    def estimate(self, span: Span) -> int:
        """Tokens of an excerpt: the sum over its pieces, the first without the space before it."""
        first, last = (index - self._low for index in span)
        bare = self._chat.count([excerpt([self._pieces[span.first]])])[0]
        return bare + self._sums[last] - self._sums[first + 1]

    def spans(self, anchor: int, low: int, high: int) -> Iterator[Span]:
        """Excerpts from or up to the anchor with about ``low`` to ``high`` tokens, longest first."""
        fixed = self._sums[anchor - self._low]
        if self._grow == "forward":
            shortest = bisect_left(self._sums, fixed + low)
            longest = bisect_right(self._sums, fixed + high + 1)
            ends = range(self._low + shortest, self._low + longest)
            yield from (Span(anchor, end) for end in reversed(ends) if end > anchor)
        else:
            longest = bisect_left(self._sums, fixed - high - 1)
            shortest = bisect_right(self._sums, fixed - low)
            starts = range(self._low + longest, self._low + shortest)
            yield from (Span(start, anchor) for start in starts if start < anchor)


def _reach(pieces: Iterator[str] | Sequence[str], budget: int) -> int:
    """How many pieces it takes to fill the budget of characters."""
    number = chars = 0
    for piece in pieces:
        number += 1
        chars += len(piece)
        if chars > budget:
            break
    return number
