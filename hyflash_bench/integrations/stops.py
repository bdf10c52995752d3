"""Strings that end a reply."""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["StopStrings"]


class StopStrings:
    """Ends a reply at the first of some strings, wherever the borders of tokens and drafts lie.

    Args:
        decode: From token ids to text.
        until: The strings.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], until: Sequence[str]) -> None:
        self._decode = decode
        self._until = tuple(filter(None, until))

    def __call__(self, reply: Sequence[int], tokens: Sequence[int]) -> int | None:
        """See :data:`hyflash_bench.engine.live.EndsAt`."""
        if not self._until or not self.end([*reply, *tokens]):
            return None
        counts = range(1, len(tokens))
        return next((n for n in counts if self.end([*reply, *tokens[:n]])), len(tokens))

    def end(self, tokens: Sequence[int]) -> bool:
        """Whether one of them has been written."""
        text = self._decode(tokens)
        return any(stop in text for stop in self._until)

    def text(self, tokens: Sequence[int]) -> str:
        """What stands before the first of them."""
        text = self._decode(tokens)
        places = [text.find(stop) for stop in self._until]
        return text[: min((place for place in places if place >= 0), default=len(text))]
