"""Makes conversations of data sets fit a target that was made for fewer tokens.

A suite of this project has prompts of fixed lengths and leaves out those that do not fit. Prompts of a
data set have any length; one that does not fit loses its middle, as LongBench's own runs do it, so that
what is asked stays. Later turns that do not fit are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hyflash_bench.suites.chat import ChatTokenizer
from hyflash_bench.suites.conversation import UserTurn

__all__ = ["Fitted", "fitted"]

_TRIES = 8


@dataclass(frozen=True, slots=True)
class Fitted:
    """What is left of a conversation.

    Attributes:
        turns: The user's turns.
        remark: What was left out; None if nothing was.
    """

    turns: tuple[UserTurn, ...]
    remark: str | None = None


def fitted(turns: Sequence[UserTurn], system: str | None, chat: ChatTokenizer) -> Fitted:
    """Shorten a conversation to the room that the tokenizer's target has, replies included.

    A reply to a shortened prompt is not scored: the answer may have been in what is missing.

    Args:
        turns: The user's turns.
        system: System message.
        chat: The target's tokenizer; without ``max_positions`` nothing is shortened.
    """
    room = chat.max_positions
    if room is None:
        return Fitted(tuple(turns))
    lengths = [len(chat.first_turn(turns[0].text, system))]
    lengths += [len(chat.next_turn(turn.text, reply_ended=False)) for turn in turns[1:]]
    used = kept = 0
    for length in lengths:
        used += length + chat.max_new_tokens
        if used > room:
            break
        kept += 1
    if kept == len(turns):
        return Fitted(tuple(turns))
    if kept:
        return Fitted(tuple(turns[:kept]), f"turns {kept + 1} to {len(turns)} do not fit and are left out")
    text = _without_middle(turns[0].text, system, chat, room - chat.max_new_tokens)
    if text is None:
        return Fitted(tuple(turns))  # the system message alone is too long: let the runner say so
    now = len(chat.first_turn(text, system))
    others = f"; turns 2 to {len(turns)} too" if len(turns) > 1 else ""
    remark = f"the middle of its prompt is left out, {lengths[0]:,} tokens became {now:,}{others}"
    return Fitted((UserTurn(text),), remark)


def _without_middle(text: str, system: str | None, chat: ChatTokenizer, room: int) -> str | None:
    """The two ends of a text, of which the whole prompt fits; None if even none of it would."""
    tokens = chat.encode(text)
    keep = room - (len(chat.first_turn(text, system)) - len(tokens))
    for _ in range(_TRIES):
        if keep < 2:
            return None
        head, tail = tokens[: keep // 2], tokens[len(tokens) - (keep - keep // 2) :]
        shortened = chat.decode(head) + chat.decode(tail)
        beyond = len(chat.first_turn(shortened, system)) - room
        if beyond <= 0:
            return shortened
        keep -= beyond  # text that is put together anew can have more tokens than its pieces
    return None
