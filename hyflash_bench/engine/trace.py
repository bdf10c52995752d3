"""What the target itself says in a conversation, and what drafters may read of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from hyflash_bench.drafters.base import Features, Requires
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.engine.clock import Clock
from hyflash_bench.engine.prefix import Prefix
from hyflash_bench.precision import in_float64

if TYPE_CHECKING:
    from hyflash_bench.targets.cache import KVCache
    from hyflash_bench.targets.target import Target

__all__ = ["Known", "PromptSource", "Trace", "TracedTurn", "trace_conversation"]

PromptSource = Callable[[int, bool], list[int]]
"""(turn, whether the reply before it ended by itself) -> the prompt tokens that this turn adds."""


@dataclass(frozen=True, slots=True)
class Known:
    """A reply that an earlier pass recorded; the target is walked along it instead of asked."""

    tokens: Sequence[int]
    logprobs: Sequence[float]
    gaps: Sequence[float]
    stop_reason: Literal["eos", "limit"]


@dataclass(frozen=True, slots=True)
class TracedTurn:
    """One turn.

    Attributes:
        prompt: ``[P]`` tokens that the turn adds before the reply.
        ingested: ``[I]`` what entered the cache before the reply: from the second turn on the last
            token of the reply before stands first, since no pass has seen it yet.
        ingested_features: I rows.
        first_logits: ``[vocab]`` after the prompt; the reply's first token is chosen from them.
        tokens: ``[M]`` the reply, stop token included.
        reply_features: M - 1 rows: of every reply token but the last.
        logprobs: ``[M]`` of each token under the sampling in force.
        gaps: ``[M]`` distance of the two largest logits where each token was chosen.
        stop_reason: ``eos`` or ``limit``.
        start: Cache length before the reply = context length of the turn.
        prefill_s: Seconds of the pass over ``ingested``; what was taken over from a conversation before
            counts as it took then.
        decode_s: Seconds of the passes after the first token; None for a known reply.
        held: Bytes of features kept for drafters, of the whole conversation so far, after each of those
            passes; empty for a known reply.
    """

    prompt: Tensor
    ingested: Tensor
    ingested_features: Features
    first_logits: Tensor
    tokens: Tensor
    reply_features: Features
    logprobs: Tensor
    gaps: Tensor
    stop_reason: Literal["eos", "limit"]
    start: int
    prefill_s: float
    decode_s: float | None
    held: Sequence[int] = ()

    @property
    def num_tokens(self) -> int:
        """Reply tokens."""
        return int(self.tokens.shape[0])

    @property
    def probabilities(self) -> Tensor:
        """``[M]`` p_j(x) of the reply's own tokens."""
        return self.logprobs.exp()


@dataclass(frozen=True, slots=True)
class Trace:
    """A traced conversation. The cache it was made with holds all of it but the last token."""

    turns: tuple[TracedTurn, ...]

    def history(self, turn: int) -> tuple[Tensor, Features]:
        """All that was observed before turn ``turn`` starts: tokens and features."""
        tokens: list[Tensor] = []
        features: list[Features] = []
        for past in self.turns[:turn]:
            tokens += [past.ingested, past.tokens[:-1]]
            features += [past.ingested_features, past.reply_features]
        if not tokens:
            return torch.empty(0, dtype=torch.int64), Features()
        return torch.cat(tokens), Features.concatenate(features)

    def held_bytes(self) -> int:
        """Bytes of features kept for drafters."""
        return sum(_bytes(turn.ingested_features) + _bytes(turn.reply_features) for turn in self.turns)


def trace_conversation(
    target: Target,
    prefix: Prefix,
    prompts: PromptSource,
    num_turns: int,
    sampler: Sampler,
    *,
    max_new_tokens: int,
    stop_tokens: Collection[int],
    requires: Requires,
    known: Sequence[Known] | None = None,
    on_turn: Callable[[int], None] | None = None,
) -> Trace:
    """Let the target answer every turn by itself.

    Args:
        target: The model.
        prefix: With room for the whole conversation; the first prompt takes over what it has of it.
        prompts: Gives each turn's new prompt tokens.
        num_turns: User turns.
        sampler: How the target's tokens are chosen.
        max_new_tokens: Most tokens of a reply.
        stop_tokens: Ids that end a reply.
        requires: Features to keep for the drafters.
        known: Replies recorded before; only prefill passes are then needed.
        on_turn: Called with the turn's index before it starts.
    """
    clock, cache = Clock(target.device), prefix.cache
    turns: list[TracedTurn] = []
    held = 0
    for index in range(num_turns):
        if on_turn is not None:
            on_turn(index)
        ended = not turns or turns[-1].stop_reason == "eos"
        prompt = torch.tensor(prompts(index, ended), dtype=torch.int64)
        ingested = torch.cat([turns[-1].tokens[-1:], prompt]) if turns else prompt
        if turns:
            before = clock.now()
            result = target.prefill(ingested, cache, requires)
            features, first_logits = result.features, result.logits.reshape(-1)
            prefill_s = clock.now() - before
        else:
            prefix.read(ingested.tolist(), requires)
            features, first_logits, prefill_s = prefix.features, prefix.logits, prefix.seconds
        start = cache.length
        held += _bytes(features)
        before = clock.now()
        if known is None:
            reply = _answer(target, cache, first_logits, sampler, max_new_tokens, stop_tokens, requires)
            decode_s: float | None = clock.now() - before
        else:
            reply = _walk(target, cache, known[index], requires)
            decode_s = None
        turns.append(
            TracedTurn(
                prompt=prompt,
                ingested=ingested,
                ingested_features=features,
                first_logits=first_logits,
                tokens=reply.tokens,
                reply_features=reply.features,
                logprobs=reply.logprobs,
                gaps=reply.gaps,
                stop_reason=reply.stop_reason,
                start=start,
                prefill_s=prefill_s,
                decode_s=decode_s,
                held=[held + size for size in reply.held],
            )
        )
        held += _bytes(reply.features)
    return Trace(tuple(turns))


@dataclass(frozen=True, slots=True)
class _Reply:
    tokens: Tensor
    features: Features
    logprobs: Tensor
    gaps: Tensor
    stop_reason: Literal["eos", "limit"]
    held: Sequence[int] = ()


def _answer(
    target: Target,
    cache: KVCache,
    logits: Tensor,
    sampler: Sampler,
    max_new_tokens: int,
    stop_tokens: Collection[int],
    requires: Requires,
) -> _Reply:
    tokens: list[int] = []
    logprobs: list[float] = []
    gaps: list[float] = []
    features: list[Features] = []
    while True:
        token, logprob, gap = _choose(logits, sampler)
        tokens.append(token)
        logprobs.append(logprob)
        gaps.append(gap)
        if token in stop_tokens or len(tokens) == max_new_tokens:
            break
        result = target.forward(torch.tensor([token]), cache, requires)
        features.append(result.features)
        logits = result.logits[-1]
    return _Reply(
        torch.tensor(tokens, dtype=torch.int64),
        Features.concatenate(features) if features else _no_rows(target, requires),
        torch.tensor(logprobs, dtype=torch.float64),
        torch.tensor(gaps, dtype=torch.float64),
        "eos" if tokens[-1] in stop_tokens else "limit",
        list(accumulate(map(_bytes, features))),
    )


def _walk(target: Target, cache: KVCache, known: Known, requires: Requires) -> _Reply:
    tokens = torch.tensor(list(known.tokens), dtype=torch.int64)
    if len(tokens) > 1:
        features = target.prefill(tokens[:-1], cache, requires).features
    else:
        features = _no_rows(target, requires)
    return _Reply(
        tokens,
        features,
        torch.tensor(list(known.logprobs), dtype=torch.float64),
        torch.tensor(list(known.gaps), dtype=torch.float64),
        known.stop_reason,
    )


def _bytes(features: Features) -> int:
    return sum(tensor.nbytes for tensor in features.tensors())


def _choose(logits: Tensor, sampler: Sampler) -> tuple[int, float, float]:
    """Token, its log-probability under the sampling in force, and the top-two logit gap."""
    top = logits.topk(2).values
    gap = float(top[0] - top[1])
    if sampler.is_greedy:
        token, exact = int(logits.argmax()), in_float64(logits)
        return token, float(exact[token] - exact.logsumexp(0)), gap
    probabilities = sampler.probabilities(logits)
    token = sampler.draw(probabilities)
    return token, float(probabilities[token].log()), gap


def _no_rows(target: Target, requires: Requires) -> Features:
    """Features of zero positions, so that spans can be joined."""
    info = target.info
    rows = torch.empty(0, info.hidden_size, device=target.device, dtype=target.dtype)
    return Features(
        taps=dict.fromkeys(requires.taps, rows),
        last_hidden=rows if requires.last_hidden else None,
        logits=torch.empty(0, info.vocab_size, device=target.device) if requires.logits else None,
    )
