"""The target's chat template, taken apart into what stands between the words of a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from hyflash_bench.errors import TargetError
from hyflash_bench.suites import ChatTokenizer

__all__ = ["TurnTokens"]

_WORDS = "\u2402"


@dataclass(frozen=True, slots=True)
class TurnTokens:
    """The template's own tokens.

    Attributes:
        opening: Before the first user's words.
        to_reply: From the end of a user's words to the start of the reply.
        to_user: From a reply that ended by itself to the next user's words.
        to_user_cut: From a reply that was cut short; holds the stop token that is missing.
        stops: Tokens that end a turn.
    """

    opening: tuple[int, ...]
    to_reply: tuple[int, ...]
    to_user: tuple[int, ...]
    to_user_cut: tuple[int, ...]
    stops: frozenset[int]

    @classmethod
    def of(cls, chat: ChatTokenizer, stops: Sequence[int]) -> Self:
        """Take the template of a target apart.

        Args:
            chat: The target's tokenizer.
            stops: Tokens that end a reply according to the model.

        Raises:
            TargetError: It has no chat template, or words run into it.
        """
        if not chat.has_template:
            raise TargetError(
                "The target has no chat template, so it cannot make up conversations. "
                "Use an instruct model, or a recipe with documents alone."
            )
        opening, to_reply = _around(chat, chat.first_turn(_WORDS))
        to_user, _ = _around(chat, chat.next_turn(_WORDS, reply_ended=True))
        to_user_cut, _ = _around(chat, chat.next_turn(_WORDS, reply_ended=False))
        ends = frozenset(stops) | chat.stop_tokens | {to_reply[0]}
        return cls(opening, to_reply, to_user, to_user_cut, ends)


def _around(chat: ChatTokenizer, tokens: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What stands before and after the words."""
    words = chat.encode(_WORDS)
    for at in range(len(tokens) - len(words), -1, -1):
        if list(tokens[at : at + len(words)]) == words:
            before, after = tuple(tokens[:at]), tuple(tokens[at + len(words) :])
            if before and after:
                return before, after
    raise TargetError(
        "The target's chat template cannot be taken apart: a user's words run into it, or nothing stands "
        "around them. Use a recipe with documents alone."
    )
