"""A drafter scored against a trace: no target pass, the same text for every drafter."""

from __future__ import annotations

from collections.abc import Collection

from hyflash_bench.drafters.base import Draft, Drafter
from hyflash_bench.drafters.sampler import Sampler
from hyflash_bench.engine.acceptance import check_draft, cut, replay_path
from hyflash_bench.engine.ingest import ingest
from hyflash_bench.engine.steps import ReadHeld, Steps, TurnResult
from hyflash_bench.engine.trace import TracedTurn

__all__ = ["replay_turn"]


def replay_turn(
    drafter: Drafter,
    turn: TracedTurn,
    sampler: Sampler,
    *,
    budget: int,
    capacity: int,
    vocab_size: int,
    stop_tokens: Collection[int],
    read_held: ReadHeld | None = None,
) -> TurnResult:
    """Walk one traced turn with a drafter that has observed everything before it.

    Args:
        drafter: Its state is carried on to the end of the turn.
        turn: What the target said.
        sampler: Randomness of sampled acceptance.
        budget: Most tokens per draft.
        capacity: Positions of the target's cache, which bound a draft as they would live.
        vocab_size: Of the target.
        stop_tokens: Ids that end a reply.
        read_held: Reads the drafter's bytes for the ledger, after the prompt and after every step.
    """
    ingest(drafter, turn.ingested, turn.ingested_features)
    steps = Steps()
    held = None if read_held is None else read_held(drafter)
    tokens = turn.tokens
    probabilities = None if sampler.is_greedy else turn.probabilities
    last = 0
    while last < turn.num_tokens - 1:
        upcoming = tokens[last + 1 :]
        room = min(budget, capacity - (turn.start + last) - 1)
        along = None if sampler.is_greedy else upcoming.clone()
        draft = drafter.draft(int(tokens[last]), room, sampler, along) if room > 0 else Draft.empty()
        check_draft(draft, room, vocab_size, drafter.name)
        path = replay_path(
            draft, upcoming, None if probabilities is None else probabilities[last + 1 :], sampler
        )
        # One more than the trace holds stands for the bonus token that a live step would win there.
        won = [*upcoming[: len(path) + 1].tolist()]
        won += [int(tokens[-1])] * (len(path) + 1 - len(won))
        step = cut(won, stop_tokens, room=len(upcoming))
        # A sampled draft is scored along the trace: it holds the trace's tokens, not its own.
        steps.add(draft, path, step, is_own=sampler.is_greedy or draft.probabilities is None)
        after = last + len(step.tokens)
        drafter.observe(tokens[last:after].clone(), turn.reply_features.rows(slice(last, after)))
        if read_held is not None:
            steps.held.append(read_held(drafter))
        last = after
    return TurnResult(steps, tokens.tolist(), held=held)
