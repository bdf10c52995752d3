"""The real loop: draft, verify, commit, observe; timed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hyflash_bench.drafters.base import Draft, Drafter, Features
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.engine.acceptance import Cut, check_draft, cut, verify
from hyflash_bench.engine.clock import Clock
from hyflash_bench.engine.ingest import ingest
from hyflash_bench.engine.steps import ReadHeld, Steps, TurnResult

if TYPE_CHECKING:
    from hyflash_bench.targets.cache import KVCache
    from hyflash_bench.targets.target import Target

__all__ = ["EndsAt", "live_turn"]

EndsAt = Callable[[Sequence[int], Sequence[int]], int | None]
"""(reply so far, a step's tokens) -> how many of these complete the reply; None if they do not."""


def live_turn(
    target: Target,
    cache: KVCache,
    drafter: Drafter,
    sampler: Sampler,
    *,
    ingested: Tensor,
    ingested_features: Features,
    first_logits: Tensor,
    budget: int,
    max_new_tokens: int,
    stop_tokens: Collection[int],
    read_held: ReadHeld | None = None,
    ends_at: EndsAt | None = None,
) -> TurnResult:
    """Generate one reply with a drafter that has observed everything before the turn.

    Args:
        target: The model.
        cache: Holds the context up to the reply; the reply is written behind it.
        drafter: Its state is carried on to the end of the reply.
        sampler: How tokens are chosen.
        ingested: ``[I]`` what the turn adds for the drafter to observe.
        ingested_features: I rows.
        first_logits: ``[vocab]`` after the prompt.
        budget: Most tokens per draft.
        max_new_tokens: Most tokens of the reply.
        stop_tokens: Ids that end it.
        read_held: Reads the drafter's bytes for the ledger, after the prompt and after every step; the
            time that takes is not counted.
        ends_at: Ends the reply besides ``stop_tokens``, for strings that end it; looking for them counts as
            decoding.
    """
    clock = Clock(target.device)
    vocab_size = target.info.vocab_size
    requires = drafter.requires
    steps = Steps()

    before = clock.now()
    ingest(drafter, ingested, ingested_features)
    observed = clock.now()
    held = None if read_held is None else read_held(drafter)
    reading_s = 0.0
    choosing = clock.now()
    tokens = [sampler.choose(first_logits)]
    started = clock.now()
    is_complete = tokens[-1] in stop_tokens or _completed((), tokens, ends_at) is not None
    while not is_complete and len(tokens) < max_new_tokens:
        last = tokens[-1]
        start = cache.length
        room = min(budget, cache.capacity - start - 1)
        begin = clock.now()
        draft = drafter.draft(last, room, sampler) if room > 0 else Draft.empty()
        drafted = clock.now()
        check_draft(draft, room, vocab_size, drafter.name)
        rows = torch.cat([torch.tensor([last]), draft.tokens])
        parents = None if draft.parents is None else torch.cat([torch.tensor([-1]), draft.parents + 1])
        passed = clock.now()
        result = target.forward(rows, cache, requires, parents=parents)
        verified = clock.now()
        verdict = verify(draft, result.logits, sampler)
        step = cut(verdict.tokens, stop_tokens, room=max_new_tokens - len(tokens))
        end = _completed(tokens, step.tokens, ends_at)
        if end is not None:
            step = Cut(step.tokens[:end], ended=True, limited=False)
        is_complete = step.ended
        kept = torch.tensor([0, *(index + 1 for index in verdict.path)][: len(step.tokens)])
        if draft.parents is None:
            cache.truncate(start + len(kept))
        else:
            cache.keep(start, kept)
        watched = clock.now()
        drafter.observe(rows[kept], result.features.rows(kept))
        done = clock.now()
        tokens.extend(step.tokens)
        steps.add(draft, verdict.path, step)
        steps.time(drafted - begin, verified - passed, done - watched)
        if read_held is not None:
            reading = clock.now()
            steps.held.append(read_held(drafter))
            reading_s += clock.now() - reading
    return TurnResult(
        steps,
        tokens,
        observe_prompt_s=observed - before,
        choose_s=started - choosing,
        decode_s=clock.now() - started - reading_s,
        held=held,
    )


def _completed(reply: Sequence[int], tokens: Sequence[int], ends_at: EndsAt | None) -> int | None:
    return None if ends_at is None else ends_at(reply, tokens)
