"""A document and its neighbours as one text, with the way back to the files."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from pydantic import Field

from hyflash_bench.errors import DataError
from hyflash_bench.spec.base import Spec
from hyflash_bench.suites.cutting import Grow
from hyflash_bench.suites.sources import Library

__all__ = ["Document", "JoinedText", "joined", "locate"]


class Document(Spec):
    """A file of a source, with the files around it for contexts that it does not fill."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", description="Name within the task.")
    file: str = Field(min_length=1)
    source: str | None = Field(None, description="Another source than the task's.")
    neighbours: tuple[str, ...] = Field((), description="Other neighbours than the task's.")
    max_context: int | None = Field(None, ge=1, description="Longest context it is used for.")

    def name(self, source: str) -> str:
        """The file, the same in every task that reads it.

        Args:
            source: The task's, for documents that name none.
        """
        return f"{self.source or source}:{self.file}"


@dataclass(frozen=True, slots=True)
class JoinedText:
    """Files one after the other.

    Attributes:
        text: All of it.
        main_start: Where the document itself begins.
        main_length: Its length in characters.
        source: Where the files come from.
        files: Their names, in order.
        starts: Where each begins in ``text``.
    """

    text: str
    main_start: int
    main_length: int
    source: str
    files: tuple[str, ...]
    starts: tuple[int, ...]

    def describe(self, library: Library, pieces: Sequence[str], first: int, last: int) -> list[str]:
        """The files and slices (characters) that an excerpt was cut from."""
        begin = sum(map(len, pieces[:first]))
        end = begin + sum(map(len, pieces[first:last]))
        ends = (*self.starts[1:], len(self.text))
        lines = []
        for file, file_start, file_end in zip(self.files, self.starts, ends, strict=True):
            low, high = max(begin, file_start), min(end, file_end)
            if low < high:
                whole = library.describe(self.source, file, self.text[file_start:file_end].strip())
                lines.append(f"{whole} [{low - file_start}:{high - file_start}]")
        return lines


def joined(
    library: Library, document: Document, grow: Grow, *, enough_chars: int, label: str = ""
) -> JoinedText:
    """Put a document and its neighbours in the order in which a prompt grows through them.

    Neighbours are taken in their own order from the document on, and around from the start, so
    that consecutive chapters stay consecutive; for ``backward`` the document comes last.

    Args:
        library: The texts.
        document: What to read; its ``source`` must be set.
        grow: Which way prompts grow.
        enough_chars: Neighbours are added until they hold this much.
        label: A line with ``{file}`` put before each file, such as ``# {file}``.
    """
    source = document.source or ""
    texts: dict[str, str] = {}
    neighbours_chars = 0
    for file in _reading_order(library, document, grow):
        heading = label.format(file=file) + "\n" if label else ""
        texts[file] = heading + library.read(source, file).strip() + "\n\n"
        if file != document.file:
            neighbours_chars += len(texts[file])
        if neighbours_chars >= enough_chars:
            break
    if grow == "backward":
        texts = dict(reversed(texts.items()))
    starts = dict(zip(texts, accumulate(map(len, texts.values()), initial=0), strict=False))
    whole = "".join(texts.values()).rstrip()
    main_start = starts[document.file]
    main_length = min(len(texts[document.file]), len(whole) - main_start)
    return JoinedText(whole, main_start, main_length, source, tuple(texts), tuple(starts.values()))


def _reading_order(library: Library, document: Document, grow: Grow) -> list[str]:
    """The document, then its neighbours from the nearest on."""
    around = list(library.files(document.source or "", document.neighbours))
    main = around.index(document.file) if document.file in around else -1
    others = [*around[main + 1 :], *around[: max(main, 0)]]
    return [document.file, *(others if grow == "forward" else reversed(others))]


def locate(pieces: Sequence[str], position: int) -> int:
    """Index of the piece that holds the character at ``position`` of the joined pieces.

    Raises:
        DataError: There is no such position.
    """
    starts = [0, *accumulate(map(len, pieces))]
    if not 0 <= position < starts[-1]:
        raise DataError(f"No character {position} in a text of {starts[-1]}.")
    return bisect_right(starts, position) - 1
