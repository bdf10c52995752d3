"""What a conversation asks, turn by turn, and how many positions that can take."""

from __future__ import annotations

from dataclasses import dataclass

from hyflash_bench.errors import ContextTooLong
from hyflash_bench.suites.chat import ChatTokenizer
from hyflash_bench.suites.conversation import Conversation
from hyflash_bench.targets.info import TargetInfo

__all__ = ["Prompts"]


@dataclass(frozen=True, slots=True)
class Prompts:
    """A conversation in a target's tokens."""

    conversation: Conversation
    chat: ChatTokenizer

    def __len__(self) -> int:
        """User turns."""
        return len(self.conversation.turns)

    def tokens(self, turn: int, reply_ended: bool) -> list[int]:
        """What a turn adds, given whether the reply before it ended by itself."""
        text = self.conversation.turns[turn].text
        if turn == 0:
            return self.chat.first_turn(text, self.conversation.system)
        return self.chat.next_turn(text, reply_ended=reply_ended)

    def capacity(self, info: TargetInfo, max_new_tokens: int, draft_budget: int) -> int:
        """Positions that the conversation can need at most, drafts included.

        Raises:
            ContextTooLong: The text alone goes past the target's limit.
        """
        prompts = sum(len(self.tokens(turn, False)) for turn in range(len(self)))
        text = prompts + len(self) * max_new_tokens
        limit = info.max_positions
        if text > limit and not info.extrapolate:
            raise ContextTooLong(
                f"{self.conversation.item.item_id} can need {text:,} tokens ({prompts:,} of prompt, "
                f"{len(self)} replies of up to {max_new_tokens}), but {info.name} was made for {limit:,}. "
                "Use a smaller --max-new-tokens or --contexts, another target, or --extrapolate."
            )
        with_drafts = text + draft_budget + 1
        return with_drafts if info.extrapolate else min(with_drafts, limit)
