"""The target talks to itself: many conversations that grow in step, both sides of them its own.

All of them have the same length at any time, so the KV cache is dense and no mask is needed; each
is somewhere else in its turns. What the template or the recipe puts into a conversation is forced
upon it token by token while others speak.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

from hyflash_bench.drafters.base import Requires
from hyflash_bench.spec.corpus import TalkSpec
from hyflash_bench.targets.target import Target
from hyflash_bench.training.corpus.part import Document
from hyflash_bench.training.corpus.store import Role
from hyflash_bench.training.corpus.template import TurnTokens
from hyflash_bench.training.features import rows_of

__all__ = ["Grown", "Talk", "grow"]


class Talk:
    """Where one conversation is in its turns.

    Args:
        opening: Tokens that it begins with, up to a user's first words or to a reply.
        begins_with_reply: Whether the opening ends where a reply starts.
        spec: How it goes on.
        turns: The template's own tokens.
        follow_ups: First words of later user turns, as tokens.
        rng: Of this conversation alone.
    """

    def __init__(
        self,
        opening: Sequence[int],
        *,
        begins_with_reply: bool,
        spec: TalkSpec,
        turns: TurnTokens,
        follow_ups: Sequence[Sequence[int]],
        rng: random.Random,
    ) -> None:
        self._forced = deque(opening)
        self._is_reply = begins_with_reply
        self._spec = spec
        self._turns = turns
        self._follow_ups = follow_ups
        self._rng = rng
        self._is_greedy = rng.random() < spec.greedy_share
        self._limit = self._draw_limit()
        self._num_spoken = 0

    @property
    def num_forced(self) -> int:
        """Tokens that are already decided."""
        return len(self._forced)

    @property
    def temperature(self) -> float:
        """At which the next token is to be drawn."""
        return self._spec.reply_temperature if self._is_reply else self._spec.user_temperature

    def say(self, likeliest: int, drawn: int) -> tuple[int, Role]:
        """The next token, and who says it.

        Args:
            likeliest: The target's first choice.
            drawn: A token drawn at :attr:`temperature`.
        """
        if self._forced:
            return self._forced.popleft(), Role.FORCED
        if self._num_spoken >= self._limit:
            self._end_turn(is_cut=True)
            return self._forced.popleft(), Role.FORCED
        if not self._is_reply:
            token, role = drawn if drawn not in self._turns.stops else self._turns.to_reply[0], Role.USER
        elif self._is_greedy:
            token, role = likeliest, Role.GREEDY
        else:
            token, role = drawn, Role.SAMPLED
        self._num_spoken += 1
        if token in self._turns.stops:
            self._end_turn(is_cut=False)
        return token, role

    def _end_turn(self, *, is_cut: bool) -> None:
        if self._is_reply:
            self._forced.extend(self._turns.to_user_cut if is_cut else self._turns.to_user)
            if self._follow_ups and self._rng.random() < self._spec.follow_up_share:
                self._forced.extend(self._rng.choice(self._follow_ups))
        else:
            self._forced.extend(self._turns.to_reply if is_cut else self._turns.to_reply[1:])
        self._is_reply = not self._is_reply
        self._limit = self._draw_limit()
        self._num_spoken = 0

    def _draw_limit(self) -> int:
        return self._rng.choice(self._spec.reply_limits) if self._is_reply else self._spec.user_limit


class Grown(NamedTuple):
    """Conversations that have grown to a length.

    Attributes:
        tokens: ``[N, S]`` int64.
        roles: ``[N, S]`` uint8.
        features: ``[N, S, width]`` bfloat16, what the target computed on the way; None if not asked for.
    """

    tokens: Tensor
    roles: Tensor
    features: Tensor | None

    @classmethod
    def begun(cls, num_rows: int, length: int, requires: Requires | None, hidden_size: int) -> Self:
        """Room for what is to be said."""
        width = 0 if requires is None else (len(requires.taps) + 1) * hidden_size
        return cls(
            torch.zeros(num_rows, length, dtype=torch.int64),
            torch.zeros(num_rows, length, dtype=torch.uint8),
            torch.empty(num_rows, length, width, dtype=torch.bfloat16) if width else None,
        )

    def documents(self, groups: Iterable[str | None]) -> Iterator[Document]:
        """Each conversation as a document of its group."""
        features = [None] * len(self.tokens) if self.features is None else self.features
        for parts in zip(self.tokens, self.roles, groups, features, strict=True):
            yield Document(*parts)


@torch.inference_mode()
def grow(
    target: Target,
    talks: Sequence[Talk],
    length: int,
    spec: TalkSpec,
    seed: int,
    on_tokens: Callable[[int], None] | None = None,
    requires: Requires | None = None,
) -> Grown:
    """Let conversations grow to a length.

    Args:
        target: Speaks for both sides.
        talks: N of them, nothing said yet.
        length: S, tokens of each.
        spec: From how many tokens is drawn.
        seed: Of the draws.
        on_tokens: Told how many tokens each step added.
        requires: Features to keep of all tokens, which costs one more step; None for none.
    """
    generator = torch.Generator().manual_seed(seed)
    grown = Grown.begun(len(talks), length, requires, target.info.hidden_size)
    rows = target.new_rows(len(talks), length)

    def read(stop: int) -> Tensor:
        """Logits behind what was said up to there; features go where they belong."""
        fresh = slice(rows.length, stop)
        logits, features = rows.append(grown.tokens[:, fresh], requires or Requires())
        if requires is not None and grown.features is not None:
            grown.features[:, fresh] = rows_of(features, requires)
        return logits

    known = min(length, *(talk.num_forced for talk in talks))
    for index, talk in enumerate(talks):
        grown.tokens[index, :known] = torch.tensor([talk.say(0, 0)[0] for _ in range(known)])
    logits = read(known)
    _tell(on_tokens, known * len(talks))
    for position in range(known, length):
        temperatures = torch.tensor([talk.temperature for talk in talks])
        likeliest, drawn = _choices(logits, temperatures, spec, generator)
        said = [
            talk.say(*choice) for talk, choice in zip(talks, zip(likeliest, drawn, strict=True), strict=True)
        ]
        grown.tokens[:, position], grown.roles[:, position] = torch.tensor(said).T
        _tell(on_tokens, len(talks))
        if requires is not None or position + 1 < length:
            logits = read(position + 1)
    return grown


def _choices(
    logits: Tensor, temperatures: Tensor, spec: TalkSpec, generator: torch.Generator
) -> tuple[list[int], list[int]]:
    """The likeliest token of each of ``[N, V]`` logits, and one drawn at ``[N]`` temperatures.

    Top-k comes before the temperature here, as it orders nothing anew: only k logits of a row need
    to be looked at, and be brought over from an accelerator.
    """
    kept = logits.topk(min(spec.top_k, logits.shape[-1]), dim=-1)
    values, indices = kept.values.float().cpu(), kept.indices.cpu()
    chances = (values / temperatures[:, None]).softmax(-1)
    mass_before = chances.cumsum(-1) - chances
    places = torch.multinomial(chances.masked_fill(mass_before >= spec.top_p, 0.0), 1, generator=generator)
    return logits.argmax(-1).tolist(), indices.gather(1, places)[:, 0].tolist()


def _tell(on_tokens: Callable[[int], None] | None, num_tokens: int) -> None:
    if on_tokens is not None:
        on_tokens(num_tokens)
