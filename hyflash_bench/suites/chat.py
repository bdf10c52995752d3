"""Turns of a conversation as the target's own prompt tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hyflash_bench.errors import TargetError

__all__ = ["ChatTokenizer"]

_REPLY = "\u2402reply\u2403"


class ChatTokenizer:
    """A target's tokenizer and chat template, turn by turn.

    A conversation grows by appending tokens only, so that caches carry on: the tokens of turn k are
    what the template puts after the reply of turn k - 1. The reply's own stop token is part of the
    reply (the engine commits it); :meth:`next_turn` adds it where a limit cut the reply short.
    A tokenizer without a chat template is used in plain completion style.

    Args:
        tokenizer: A transformers tokenizer.
        max_positions: Positions that the target was made for, where texts are to be made to fit.
        max_new_tokens: Of these, what each reply needs.
    """

    def __init__(self, tokenizer: Any, *, max_positions: int | None = None, max_new_tokens: int = 0) -> None:
        self.tokenizer = tokenizer
        self.max_positions = max_positions
        self.max_new_tokens = max_new_tokens
        self.has_template = bool(getattr(tokenizer, "chat_template", None))

    def replying(self, max_new_tokens: int) -> ChatTokenizer:
        """The same with room for replies of that length."""
        return ChatTokenizer(self.tokenizer, max_positions=self.max_positions, max_new_tokens=max_new_tokens)

    def encode(self, text: str) -> list[int]:
        """Token ids of bare text, no special tokens added."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def count(self, texts: Sequence[str]) -> list[int]:
        """Number of tokens of each bare text."""
        if not texts:
            return []
        encoded = self.tokenizer(list(texts), add_special_tokens=False)
        return [len(tokens) for tokens in encoded["input_ids"]]

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of token ids, special tokens left out."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))

    def offsets(self, tokens: Sequence[int]) -> list[int]:
        """Where each token begins in :meth:`decode`'s text, in characters.

        A character of several tokens belongs to the one that completes it; special tokens are empty.
        """
        text = self.decode(tokens)
        starts, start = [], 0
        for end in range(len(tokens)):
            written = self.decode(tokens[:end])
            # An unfinished character is decoded as a replacement sign, which the text does not have there.
            start = max(start, _num_shared(written, text))
            starts.append(start)
        return starts

    def continued(self, tokens: Sequence[int], by: Sequence[int]) -> str:
        """What other tokens would add to the text of some, special tokens spelt out."""
        texts = [list(tokens), [*tokens, *by]]
        before, after = (str(self.tokenizer.decode(ids, skip_special_tokens=False)) for ids in texts)
        return after[_num_shared(before, after) :]

    def first_turn(self, text: str, system: str | None = None) -> list[int]:
        """Tokens of the opening user turn, up to where the reply starts."""
        if not self.has_template:
            return list(self.tokenizer.encode("\n\n".join(filter(None, [system, text])) + "\n\n"))
        return self.encode(self._render([*_system(system), _user(text)]))

    def next_turn(self, text: str, *, reply_ended: bool) -> list[int]:
        """Tokens between a reply and the start of the next one.

        Args:
            text: What the user says next.
            reply_ended: Whether the reply's last token is its stop token; if not, the stop token
                that the template expects comes first.
        """
        if not self.has_template:
            return self.encode(f"\n\n{text}\n\n")
        history = [_user("x"), {"role": "assistant", "content": _REPLY}]
        rendered = self._render([*history, _user(text)])
        after_reply = rendered.rpartition(_REPLY)[2]
        tokens = self.encode(after_reply)
        stops = self.stop_tokens
        if reply_ended and tokens and tokens[0] in stops:
            return tokens[1:]
        return tokens

    @property
    def stop_tokens(self) -> frozenset[int]:
        """Tokens that end a reply according to the tokenizer (the model may name more)."""
        eos = self.tokenizer.eos_token_id
        ids = eos if isinstance(eos, list) else [eos]
        return frozenset(int(token) for token in ids if token is not None)

    def whole(self, user_turns: Sequence[str], replies: Sequence[str], system: str | None) -> list[int]:
        """Tokens of a whole conversation rendered at once: the check on turn-by-turn growth."""
        messages = _system(system)
        for index, text in enumerate(user_turns):
            messages.append(_user(text))
            if index < len(replies):
                messages.append({"role": "assistant", "content": replies[index]})
        return self.encode(self._render(messages))

    def _render(self, messages: list[dict[str, str]]) -> str:
        apply = self.tokenizer.apply_chat_template
        try:
            return str(apply(messages, tokenize=False, add_generation_prompt=True))
        except Exception as error:  # a template is a program that comes with the model
            raise TargetError(
                f"The target's chat template cannot be used: {type(error).__name__}: {error}. "
                "Repair it, or use another target."
            ) from error


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _system(text: str | None) -> list[dict[str, str]]:
    return [{"role": "system", "content": text}] if text else []


def _num_shared(a: str, b: str) -> int:
    """Characters that two texts begin with alike."""
    pairs = zip(a, b, strict=False)
    return next((place for place, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))
